"""Measure speed on this machine, as ratios to named peers that take turns in the same process.

    python benchmarks/run.py NAME [--OPTION VALUE ...]
    python benchmarks/run.py memory --models ffm,gru --lengths 128,1024
    python benchmarks/run.py NAME --help

Options are the fields of the benchmark's class. The numbers and a plot are written to the current folder, to
bench-NAME.json and bench-NAME.png. The exit code of latency and plain is 1 if a contestant could not be measured.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "envs")]

from rlmem.bench.skeleton import Bench  # noqa: E402
from rlmem.errors import UserError  # noqa: E402

BENCHMARKS = {
    "train": "rlmem.bench.train",  # whole training runs, beside sb3-contrib
    "scan": "rlmem.bench.scan",  # the scans alone, on every engine, beside copying the same bytes
    "figure3": "rlmem.bench.figure3",  # Figure 3 of FFM's paper
    "returns": "rlmem.bench.returns",  # returns and advantages, beside the usual loops
    "solve": "benchmarks.solve",  # until a game is solved, beside sb3-contrib
    "growth": "benchmarks.growth",  # with more environments and longer rollouts
    "memory": "benchmarks.memory",  # time and memory of every memory, beside torch.nn.GRU
    "env": "benchmarks.env",  # every native environment, beside its package
    "latency": "benchmarks.latency",  # until a trained agent acts
    "plain": "benchmarks.peers.plain",  # memoryless training, beside stable-baselines3
    "before": "benchmarks.peers.before",  # training beside that of an earlier commit
}


def benchmark(name: str) -> type[Bench]:
    return getattr(import_module(BENCHMARKS[name]), f"{name.capitalize()}Bench")


def reader(annotation: Any) -> Callable[[str], Any] | None:
    """What reads the text of an option of this type; None if it cannot be typed in a line."""
    if isinstance(annotation, UnionType):
        (annotation,) = set(get_args(annotation)) - {type(None)}
    if get_origin(annotation) is Sequence:
        one = reader(*get_args(annotation))
        return one and (lambda text: tuple(map(one, text.split(","))))
    return annotation if annotation in (int, float, str, Path) else None


def options(bench: type[Bench]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        f"python benchmarks/run.py {bench.name}",
        description=bench.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    for field in fields(bench):
        flag = f"--{field.name.replace('_', '-')}"
        if field.name not in bench.options() or field.name == "device":
            continue
        if field.type is bool:
            parser.add_argument(flag, action=argparse.BooleanOptionalAction)
        elif read := reader(field.type):
            parser.add_argument(flag, type=read, dest=field.name, help=f"default: {field.default}".replace("%", "%%"))
    if "device" in bench.options():
        parser.add_argument("--device", choices=["auto", "cpu", "cuda"])
    parser.add_argument("--json", type=Path, dest="json_path")
    parser.add_argument("--plot", type=Path, dest="plot_path")
    return parser


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=BENCHMARKS, metavar="NAME", help=", ".join(BENCHMARKS))
    try:
        bench = benchmark(parser.parse_args(arguments[:1]).name)
        result = bench.run(**vars(options(bench).parse_args(arguments[1:])))
    except UserError as error:
        print(*error.problems, sep="\n", file=sys.stderr)
        return 2
    return 1 if result.get("failed") else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
