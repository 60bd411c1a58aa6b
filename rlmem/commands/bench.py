"""`rlmem bench`: measure speed."""

from importlib import import_module
from pathlib import Path
from typing import Literal

from rlmem.commands.toolkit import Count, Text
from rlmem.config.messages import mistake, nearest
from rlmem.core.errors import UserError

PACKAGED = ("train", "scan")
"""Benchmarks that are part of the package."""
IN_A_CLONE = ("memory", "returns", "env")
"""Benchmarks that are scripts of the repository and not part of the package."""


def run(
    what: Text,
    *,
    rounds: Count | None = None,
    threads: Count | None = None,
    budget: Count | None = None,
    device: Literal["auto", "cpu", "cuda"] | None = None,
    json: Text | None = None,
    plot: Text | None = None,
) -> None:
    """Measure speed on this machine, as ratios to named peers that take turns in the same process. The numbers
    and a plot are written to the current folder: bench-WHAT.json and bench-WHAT.png.

    what WHAT: train: environment steps per second of whole training runs, beside sb3-contrib; scan: the scan alone, on
        every engine, beside copying
    rounds: turns of each contestant (5)
    threads: CPU threads to learn with (all cores)
    budget S: scan: seconds for all turns of a case (20)
    device: scan: auto is cuda if there is one
    json PATH: where the numbers go
    plot PATH: where the plot goes

    Examples:
        train --rounds 10 --json bench.json
        scan --threads 1
    """
    if what in IN_A_CLONE:
        problem = "is not part of the package; expected a clone of rlmem"
        raise UserError(f"bench {what}: {problem}; e.g. python benchmarks/run.py {what}")
    if what not in PACKAGED:
        near = nearest(what, PACKAGED)
        raise mistake(f"bench {what}", "no such benchmark", near=near, accepted=PACKAGED, example="rlmem bench train")
    bench = getattr(import_module(f"rlmem.evidence.bench.{what}"), f"{what.capitalize()}Bench")
    files = {"json_path": json and Path(json), "plot_path": plot and Path(plot)}
    options = {"rounds": rounds, "threads": threads, "budget": budget, "device": device, **files}
    bench.run(**{name: value for name, value in options.items() if value is not None})
