"""Measure speed on this machine, as ratios to named peers that take turns in the same process.

    python benchmarks/run.py NAME [--OPTION VALUE ...]
    python benchmarks/run.py memory --models ffm,gru --lengths 128,1024
    python benchmarks/run.py NAME --help

Options are the fields of the benchmark's class. The numbers and a plot are written to the current folder, to
bench-NAME.json and bench-NAME.png. The exit code is 1 if a contestant could not be measured.
"""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from inspect import getfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "envs")]

from rlmem.core.declared import PLAIN, add_options, read  # noqa: E402
from rlmem.core.errors import UserError  # noqa: E402
from rlmem.evidence.bench.skeleton import Bench  # noqa: E402
from rlmem.evidence.bench.timing import Stopwatch  # noqa: E402

BENCHMARKS = {
    "train": "rlmem.evidence.bench.train",  # whole training runs, beside sb3-contrib
    "scan": "rlmem.evidence.bench.scan",  # the scans alone, on every engine, beside copying the same bytes
    "figure3": "rlmem.evidence.bench.figure3",  # Figure 3 of FFM's paper
    "returns": "rlmem.evidence.bench.returns",  # returns and advantages, beside the usual loops
    "memory": "benchmarks.memory",  # time and memory of every memory, beside torch.nn.GRU
    "env": "benchmarks.env",  # every native environment, beside its package
    "before": "benchmarks.peers.before",  # training beside that of an earlier commit
}


def benchmark(name: str) -> type[Bench]:
    return getattr(import_module(BENCHMARKS[name]), f"{name.capitalize()}Bench")


def options(bench: type[Bench]) -> argparse.ArgumentParser:
    """The parser of a benchmark, whose flags are fields of the class and of those that it derives from."""
    parser = argparse.ArgumentParser(
        f"python benchmarks/run.py {bench.name}",
        description=bench.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    bases = [base for base in bench.__mro__ if issubclass(base, Stopwatch)]
    fields = {it.name: it for base in reversed(bases) for it in read(Path(getfile(base)), base.__name__).options}
    taken = bench.options()
    add_options(parser, [it for name, it in fields.items() if name in taken and it.kind in PLAIN], PLAIN)
    if "device" in taken:
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
