"""`rlmem dataset`: files of recorded transitions."""

from pathlib import Path
from typing import Any

from rlmem.commands.toolkit import Arguments, Parser, integer_from, out_file, stdout_to_stderr
from rlmem.config.messages import mistake, nearest
from rlmem.errors import brief, printable
from rlmem.system.command import show
from rlmem.system.strictjson import dumps, loads

IN_JSON = ("levels", "versions", "env_config")
"""The attributes of a data set that are JSON."""
ACTIONS = ("generate", "import", "info")
EXAMPLE = "rlmem dataset generate env=hopper --random --episodes 5 --out data/random.hdf5"

PARSER = Parser(
    "dataset",
    "Write, import or describe a data set: an HDF5 file in the layout of D4RL, with all of the state. What a\n"
    "partial view leaves out is hidden when the file is read.",
    "generate RUN --episodes 200 --out data/hopper.hdf5",
    "generate MEDIUM@400000 EXPERT --episodes 200 --out data/medium_expert.hdf5",
    EXAMPLE.removeprefix("rlmem dataset "),
    "import bullet-hopper-medium-expert.hdf5 env=hopper --out data/hopper.hdf5",
    "info data/hopper.hdf5",
)
PARSER.add_argument("what", nargs="+", metavar="WHAT", help="generate RUN ..., import FILE env=NAME, or info FILE")
PARSER.add_argument("--episodes", type=integer_from(1), default=200, metavar="N", help="episodes of each run (200)")
PARSER.add_argument("--out", type=out_file, metavar="FILE", help="where to write")
PARSER.add_argument("--random", action="store_true", help="generate: uniform random actions, without a run")
PARSER.add_argument("--greedy", action="store_true", help="generate: without the policies' own noise")
PARSER.add_argument("--seed", type=integer_from(0), default=0, metavar="S", help="root of the random streams (0)")
PARSER.add_argument("--json", action="store_true", help="info: print JSON only")
PARSER.add_trust()


def run(args: Arguments) -> None:
    action, *given = args.what
    if action not in ACTIONS:
        near = nearest(action, ACTIONS)
        raise mistake(action, "not what a data set can do", near=near, accepted=ACTIONS, example=EXAMPLE)
    if action != "info" and args.out is None:
        raise mistake(f"rlmem dataset {action}", "needs --out FILE", example=EXAMPLE)
    overrides, places = [text for text in given if "=" in text], [text for text in given if "=" not in text]
    if action == "info":
        return show(_info(args, overrides, places))
    with stdout_to_stderr():
        found = (_generated if action == "generate" else _imported)(args, overrides, places)
    show(f"wrote {args.out}: {_line(found)}")


def _generated(args: Arguments, overrides: list[str], places: list[str]) -> Any:
    if args.random == bool(places) or bool(overrides) != args.random:
        raise mistake("rlmem dataset generate", "needs runs, or --random with env=NAME", example=EXAMPLE)
    from rlmem.run.dataset import from_random, from_runs

    if args.random:
        return from_random(overrides, args.episodes, args.out, args.seed)
    return from_runs(places, args.episodes, args.out, args.seed, args.greedy, args.trust)


def _imported(args: Arguments, overrides: list[str], places: list[str]) -> Any:
    if len(places) != 1 or not any(text.startswith("env=") for text in overrides):
        example = "rlmem dataset import FILE.hdf5 env=hopper --out data/hopper.hdf5"
        raise mistake("rlmem dataset import", "needs one file and env=NAME", example=example)
    from rlmem.run.dataset import imported

    return imported(Path(places[0]), overrides, args.out)


def _info(args: Arguments, overrides: list[str], places: list[str]) -> str:
    if len(places) != 1 or overrides:
        raise mistake("rlmem dataset info", "expected one file", example="rlmem dataset info data/h.hdf5")
    from rlmem.supervised.dataset.file import read

    found = read(Path(places[0]))
    attrs = found.attrs | {name: _parsed(text) for name, text in found.attrs.items() if name in IN_JSON}
    intact = attrs.get("sha256_observations", found.sha256) == found.sha256
    if args.json:
        lengths, returns = found.lengths, found.returns
        numbers = {"episodes": len(lengths), "transitions": len(found.rewards), "returns": returns.tolist()}
        return dumps({"file": places[0], **numbers, "intact": intact, "attrs": attrs}, indent=2, default=str)
    lines = [
        f"{places[0]}: {_line(found)}",
        *(printable(brief(f"  {name}: {value}", 2000)) for name, value in attrs.items()),
    ]
    return "\n".join([*lines, *([] if intact else ["  the observations are not those that were written"])])


def _parsed(text: Any) -> Any:
    """The value of an attribute in JSON, or the attribute as it is if it cannot be read."""
    try:
        return loads(text)
    except (ValueError, AttributeError):
        return text


def _line(found: Any) -> str:
    returns, lengths = found.returns, found.lengths
    sizes = f"observations of {found.observations.shape[1]} numbers, actions of {found.actions.shape[1]}"
    number = f"{len(lengths):,} episodes of {lengths.min():,} to {lengths.max():,} steps, {lengths.sum():,} transitions"
    return f"{number}, {sizes}, return {returns.mean():.2f} (standard deviation {returns.std():.2f})"
