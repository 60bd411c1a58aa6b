"""`rlmem dataset`: record episodes to a file, import such files, and describe them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlmem.commands.toolkit import Count, Flag, Natural, OutFile, SomeWords, Trust, stdout_to_stderr
from rlmem.config.messages import mistake, nearest
from rlmem.core.command import show
from rlmem.core.errors import brief, printable
from rlmem.core.received import dumps, loads

IN_JSON = ("levels", "versions", "env_config")
"""The attributes of a data set that are JSON."""
ACTIONS = ("generate", "import", "info")
EXAMPLE = "rlmem dataset generate env=hopper --random --episodes 5 --out data/random.hdf5"


def run(
    what: SomeWords,
    *,
    episodes: Count = 200,
    out: OutFile | None = None,
    random: Flag = False,
    greedy: Flag = False,
    seed: Natural = 0,
    json: Flag = False,
    trust: Trust = False,
) -> None:
    """Write, import or describe a data set: an HDF5 file in the layout of D4RL, with all of the state. What a
    partial view leaves out is hidden when the file is read.

    what WHAT: generate RUN ..., import FILE env=NAME, or info FILE
    episodes: episodes of each run
    out: where to write
    random: generate: uniform random actions, without a run
    greedy: generate: without the policies' own noise
    seed S: root of the random streams
    json: info: print JSON only

    Examples:
        generate RUN --episodes 200 --out data/hopper.hdf5
        generate MEDIUM@400000 EXPERT --episodes 200 --out data/medium_expert.hdf5
        generate env=hopper --random --episodes 5 --out data/random.hdf5
        import bullet-hopper-medium-expert.hdf5 env=hopper --out data/hopper.hdf5
        info data/hopper.hdf5
    """
    action, *arguments = what
    if action not in ACTIONS:
        near = nearest(action, ACTIONS)
        raise mistake(action, "not what a data set can do", near=near, accepted=ACTIONS, example=EXAMPLE)
    overrides, places = [text for text in arguments if "=" in text], [text for text in arguments if "=" not in text]
    if action == "info":
        return show(_info(places, overrides, json))
    if out is None:
        raise mistake(f"rlmem dataset {action}", "needs --out FILE", example=EXAMPLE)
    if action == "generate" and (random == bool(places) or bool(overrides) != random):
        raise mistake("rlmem dataset generate", "needs runs, or --random with env=NAME", example=EXAMPLE)
    if action == "import" and (len(places) != 1 or not any(text.startswith("env=") for text in overrides)):
        example = "rlmem dataset import FILE.hdf5 env=hopper --out data/hopper.hdf5"
        raise mistake("rlmem dataset import", "needs one file and env=NAME", example=example)
    from rlmem.run.dataset import from_random, from_runs, imported

    with stdout_to_stderr():
        if action == "import":
            recording = imported(Path(places[0]), overrides, out)
        elif random:
            recording = from_random(overrides, episodes, out, seed)
        else:
            recording = from_runs(places, episodes, out, seed, greedy, trust)
    show(f"wrote {out}: {_line(recording)}")


def _info(places: Sequence[str], overrides: Sequence[str], json: bool) -> str:
    if len(places) != 1 or overrides:
        raise mistake("rlmem dataset info", "expected one file", example="rlmem dataset info data/h.hdf5")
    from rlmem.algos.supervised.dataset.file import read

    recording = read(Path(places[0]))
    attrs = recording.attrs | {name: _parsed(text) for name, text in recording.attrs.items() if name in IN_JSON}
    intact = attrs.get("sha256_observations") in (None, recording.digest("observations"))
    if json:
        lengths, returns = recording.lengths, recording.returns
        numbers = {"episodes": len(lengths), "transitions": len(recording.rewards), "returns": returns.tolist()}
        return dumps({"file": places[0], **numbers, "intact": intact, "attrs": attrs}, indent=2, default=str)
    lines = [printable(brief(f"  {name}: {value}", 2000)) for name, value in attrs.items()]
    lines += [] if intact else ["  the observations are not those that were written"]
    return "\n".join([f"{places[0]}: {_line(recording)}", *lines])


def _parsed(text: Any) -> Any:
    """The value of an attribute in JSON, or the attribute as it is if it cannot be read."""
    try:
        return loads(text)
    except (ValueError, AttributeError):
        return text


def _line(recording: Any) -> str:
    returns, lengths = recording.returns, recording.lengths
    sizes = f"observations of {recording.observations.shape[1]} numbers, actions of {recording.actions.shape[1]}"
    number = f"{len(lengths):,} episodes of {lengths.min():,} to {lengths.max():,} steps, {lengths.sum():,} transitions"
    return f"{number}, {sizes}, return {returns.mean():.2f} (standard deviation {returns.std():.2f})"
