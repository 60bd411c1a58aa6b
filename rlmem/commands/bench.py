"""`rlmem bench`: speed."""

import argparse
from importlib import import_module
from pathlib import Path

from rlmem.commands.toolkit import Parser, integer_from
from rlmem.errors import UserError

IN_A_CLONE = ("solve", "growth", "memory", "returns", "env")
"""Benchmarks that are scripts of the repository and not part of the package."""


def benchmark(text: str) -> str:
    if text in IN_A_CLONE:
        what = "is not part of the package; expected a clone of rlmem"
        raise UserError(f"bench {text}: {what}; e.g. python benchmarks/run.py {text}")
    return text


def parser() -> Parser:
    made = Parser(
        "bench",
        "Measure speed on this machine, as ratios to named peers that take turns in the same process. The numbers\n"
        "and a plot are written to the current folder: bench-WHAT.json and bench-WHAT.png.",
        "train --rounds 10 --json bench.json",
        "scan --threads 1",
    )
    made.add_argument(
        "what",
        type=benchmark,
        choices=["train", "scan"],
        help="train: environment steps per second of whole training runs, beside sb3-contrib; scan: the scan alone, "
        "on every engine, beside copying",
    )
    made.argument_default = argparse.SUPPRESS  # each benchmark has its own defaults and flags
    made.add_argument("--rounds", type=integer_from(1), metavar="N", help="turns of each contestant (5)")
    made.add_argument("--threads", type=integer_from(1), metavar="N", help="CPU threads to learn with (all cores)")
    made.add_argument("--budget", type=integer_from(1), metavar="S", help="scan: seconds for all turns of a case (20)")
    made.add_argument("--device", choices=["auto", "cpu", "cuda"], help="scan: auto is cuda if there is one")
    made.add_argument("--json", type=Path, metavar="PATH", dest="json_path", help="where the numbers go")
    made.add_argument("--plot", type=Path, metavar="PATH", dest="plot_path", help="where the plot goes")
    return made


def run(args: argparse.Namespace) -> int:
    bench = getattr(import_module(f"rlmem.bench.{args.what}"), f"{args.what.capitalize()}Bench")
    bench.run(**{name: value for name, value in vars(args).items() if name not in ("what", "debug")})
    return 0


PARSER = parser()
