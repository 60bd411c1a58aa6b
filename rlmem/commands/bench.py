"""`rlmem bench`: speed."""

import argparse
from dataclasses import fields
from importlib import import_module
from pathlib import Path

from rlmem.commands.toolkit import Parser, integer_from
from rlmem.errors import UserError


def parser() -> Parser:
    made = Parser(
        "bench",
        "Measure speed on this machine, as ratios to named peers that take turns in the same process.\n"
        "All but train and solve write their numbers and a plot to the current folder: bench-WHAT.json and\n"
        "bench-WHAT.png.",
        "train --rounds 10 --json bench.json",
        "memory --models ffm,gru --lengths 128,1024",
        "memory --figure3",
        "update --models gru,ffm --threads 1",
        "solve --models gru,ffm --rounds 5 --threads 1",
        "growth --models ffm --threads 1",
        "returns --threads 1",
        "env --tasks RepeatPrevious,CuedCatch",
    )
    made.add_argument(
        "what",
        choices=["train", "solve", "growth", "update", "memory", "scan", "returns", "env"],
        help="train: environment steps per second of whole training runs, beside sb3-contrib; solve: steps and "
        "seconds of PPO until it solves repeat_previous, a seed a round, beside sb3-contrib; growth: rates and memory "
        "of PPO with more environments and longer rollouts, and of a memory over longer rows; update: updates of SAC "
        "per second, and where their time goes, beside POMDP-Baselines' update; memory: time and memory of every "
        "memory, beside torch.nn.GRU, and, unless --models or --lengths is given, scan; scan: the scan alone, on every "
        "engine, beside copying; returns: returns and GAE, beside the usual loops; env: steps per second of every "
        "native environment, beside one environment of its reference package",
    )
    made.argument_default = argparse.SUPPRESS  # each benchmark has its own defaults and flags
    number = integer_from(1)
    numbers = lambda text: tuple(map(number, text.split(",")))  # noqa: E731
    names = lambda text: tuple(text.split(","))  # noqa: E731
    made.add_argument("--rounds", type=number, metavar="N", help="turns of each contestant (5)")
    made.add_argument("--threads", type=number, metavar="N", help="CPU threads to learn with (all cores)")
    made.add_argument("--budget", type=number, metavar="S", help="seconds for all turns of one cell (20)")
    made.add_argument("--device", choices=["auto", "cpu", "cuda"], help="auto: cuda if there is one")
    made.add_argument("--models", type=names, metavar="A,B", help="memory, update, solve, growth: these only")
    made.add_argument("--tasks", type=names, metavar="A,B", help="env: these only, by class name")
    lengths = "memory: episode lengths (128,1024,16384); growth: of the row (1000 to 1000000); "
    lengths += "update: of the segments beside the tape (10,50,200)"
    made.add_argument("--lengths", type=numbers, metavar="T,T", help=lengths)
    made.add_argument("--slots", type=number, metavar="N", help="memory: slots of a cell (16384)")
    made.add_argument("--figure3", action="store_const", const=True, help="memory: Figure 3 of FFM's paper instead")
    made.add_argument("--json", type=Path, metavar="PATH", dest="json_path", help="where the numbers go")
    made.add_argument("--plot", type=Path, metavar="PATH", dest="plot_path", help="where the plot goes")
    return made


def run(args: argparse.Namespace) -> int:
    from rlmem.bench.skeleton import Bench

    given = {name: value for name, value in vars(args).items() if name not in ("what", "debug")}
    what = "figure3" if args.what == "memory" and given.pop("figure3", False) else args.what
    bench: type[Bench] = getattr(import_module(f"rlmem.bench.{what}"), f"{what.capitalize()}Bench")
    taken = {"json_path", "plot_path", *(field.name for field in fields(bench))} - bench.refused
    if flags := [f"--{option.removesuffix('_path')}" for option in given if option not in taken]:
        raise UserError(*(f"bench {what}: takes no {flag}; e.g. rlmem bench --help" for flag in flags))
    bench.run(**given)
    return 0


PARSER = parser()
