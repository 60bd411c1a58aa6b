"""`rlmem population`: population based training."""

from argparse import ArgumentTypeError
from contextlib import suppress
from pathlib import Path
from typing import Any

from rlmem.commands.toolkit import Arguments, Parser, directory_of_status, integer_from, refuse_changes
from rlmem.config.messages import mistake
from rlmem.errors import UserError
from rlmem.system.command import show

EXAMPLE = "rlmem population memory=gru env=repeat_first --agents 4 --ready 3000 --vary algo.lr=1e-4,1e-3"
NUMBERS = ("agents", "ready", "window", "every", "level")
"""The flags that specify a population, beside --vary."""


def _probability(text: str) -> float:
    with suppress(ValueError):
        if 0 < float(text) < 1:
            return float(text)
    raise ArgumentTypeError(f"expected a number between 0 and 1, got {text!r}")


PARSER = Parser(
    "population",
    "Train agents side by side. Every so many episodes each is compared with another one, and copies its weights\n"
    "if that was better (Welch's t-test); hyperparameters stay. The same command again continues.",
    EXAMPLE.removeprefix("rlmem population "),
    "memory=lprnn algo=impala env=cued_catch total_steps=3e8 --vary 'algo.lr=tag(log, interval(1e-5,1e-3))'",
    "runs/mine                              continue",
    "runs/mine total_steps=2e6              train longer",
    "status runs/mine",
)
PARSER.add_argument("what", nargs="*", metavar="WHAT", help="key=value of every agent; DIR; or: status DIR")
vary = "a,b: assigned in turn; interval(a,b): drawn"
PARSER.add_argument("--vary", action="append", default=[], metavar="KEY=VALUES", help=vary)
PARSER.add_argument("--agents", type=integer_from(2), metavar="N", help="how many agents (9)")
PARSER.add_argument("--ready", type=integer_from(2), metavar="N", help="episodes before the first round (30000)")
PARSER.add_argument("--window", type=integer_from(2), metavar="N", help="newest episodes to compare (3000)")
PARSER.add_argument("--every", type=integer_from(1), metavar="N", help="episodes between rounds (3000)")
PARSER.add_argument("--level", type=_probability, metavar="P", help="copy if the p-value is smaller (0.05)")
PARSER.add_argument("--dir", type=Path, metavar="DIR", help="its directory (runs/population-<memory>-<algo>-...)")
PARSER.add_argument("--ray", action="store_true", help="each agent in a process of its own, on Ray")
PARSER.add_argument("--gpus", type=float, default=0.0, metavar="X", help="--ray: GPUs per agent, such as 0.25 (0)")
PARSER.add_argument("--dry-run", action="store_true", help="check and list the agents only")
PARSER.add_trust()


def run(args: Arguments) -> None:
    overrides, places = [text for text in args.what if "=" in text], [text for text in args.what if "=" not in text]
    if places[:1] == ["status"]:
        folder = directory_of_status("population", places[1:], "runs/mine")
        from rlmem.population.history import print_table

        return print_table(folder)
    if args.gpus and not args.ray:
        raise UserError(f"--gpus {args.gpus}: is what an agent reserves on Ray; e.g. --ray --gpus {args.gpus}")
    from rlmem.population import spec as specification
    from rlmem.population.rounds import train

    if places:
        folder = Path(places[0])
        if not folder.is_dir() or len(places) > 1:
            raise mistake(" ".join(places), "expected key=value, or the directory of a population", example=EXAMPLE)
        refuse_changes(folder, "agents", args, (*NUMBERS, "vary", "dir", "dry_run"))
        if overrides:
            specification.change(folder, overrides, args.trust)
    else:
        given: dict[str, Any] = {key: value for key in NUMBERS if (value := getattr(args, key)) is not None}
        spec = specification.PopulationSpec(tuple(overrides), tuple(args.vary), **given)
        if args.dry_run:
            return show(specification.dry_run(spec))
        specification.start(spec, folder := args.dir or specification.default_folder(spec))
    train(folder, args.ray, args.gpus, args.trust)
