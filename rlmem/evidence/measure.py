"""Items that are measured instead of trained: speeds, and what follows from equations alone.

A measurement takes the path of its files without suffix, the number of the repetition, the
rows, and the options of the experiment and its budget; it returns the number of every row and column.
"""

import json
import pkgutil
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from importlib import import_module
from pathlib import Path
from typing import Any

from rlmem import __version__
from rlmem.config.messages import mistake, nearest
from rlmem.config.paths import experiment_modules
from rlmem.core.hardware import machine_class
from rlmem.evidence.experiment import Cell
from rlmem.evidence.records import RESULTS, Record, read_results, write_results
from rlmem.evidence.runner import Collected, Runner
from rlmem.jobs.run import Options
from rlmem.record.facts import short_commit
from rlmem.record.provenance import git_commit

Values = Mapping[str, Mapping[str, float]]
"""row -> column -> number"""


def measurement(name: str) -> Callable[..., Values]:
    """The measurement of an experiment's `run`. Raises UserError if there is none of that name.

    It is an analysis that needs no run, or else the function `values` of a benchmark in the folder of its experiment.
    """
    from rlmem.analysis import analyses

    without_run = [analysis for analysis, declared in analyses().items() if not declared.needs_run]
    if name in without_run:
        return partial(_analysed, name)
    benchmarks = [module.name for module in pkgutil.iter_modules(experiment_modules()) if module.name not in analyses()]
    if name not in benchmarks:
        accepted = ["train", "population", *benchmarks, *without_run]
        raise mistake(f"run: {name}", "no such measurement", near=nearest(name, accepted), accepted=accepted)
    measure: Callable[..., Values] = import_module(f"rlmem.evidence.bench.{name}").values
    return lambda path, repetition, rows, **options: measure(path, rows, **options)


def _analysed(what: str, path: Path, repetition: int, rows: Sequence[str], **options: Any) -> Values:
    from rlmem.analysis import analyze

    values: dict[str, dict[str, float]] = {}
    for name, value in analyze(what, None, seed=repetition, out=path.parent, **options).metrics.items():
        row, _, column = name.partition("/")
        values.setdefault(row, {})[column] = value
    return values


class Measured(Runner):
    """All cells of a repetition are one measurement; seeds number the repetitions."""

    def check(self, cells: Sequence[Cell], files: bool = True) -> None:
        measurement(self.planned.run)

    def run(self, cells: Sequence[Cell], options: Options) -> int:
        self.folder.mkdir(parents=True, exist_ok=True)
        name, commit = self.planned.run, short_commit(git_commit())
        about: dict[str, Any] = {"commit": commit, "machine": machine_class(), "overrides": self.asked}
        for seed in cells[0].seeds if cells else ():
            rows = list(dict.fromkeys(c.row for c in cells if (c.row, c.column, seed) not in self.records))
            values = measurement(name)(self.folder / f"{name}-{seed}", seed, rows, **self.options) if rows else {}
            for row, numbers in values.items():
                for column, value in numbers.items():
                    if column in self.planned.experiment.columns:
                        metrics = {self.planned.metric: value}
                        made = Record(row, column, seed, "done", metrics, version=__version__, **about)
                        self.records[row, column, seed] = made
            write_results(list(self.records.values()), self.folder / RESULTS)
        return 0

    def collect(self) -> Collected:
        """What has been measured with the present options of the file, and the pictures of repetition 0."""
        files = sorted([*self.folder.glob("*.png"), *self.folder.glob("*.svg")])
        pictures = {f.stem.removesuffix("-0"): f for f in files if not re.search(r"-[1-9]\d*$", f.stem)}
        return list(self.records.values()), (), pictures

    def cost(self, cells: Sequence[Cell]) -> None:
        """None: a measurement takes no environment steps."""

    @cached_property
    def records(self) -> dict[tuple[str, str, int], Record]:
        """(row, column, seed) -> record of what was measured with these options."""
        file = self.folder / RESULTS
        kept = read_results(file) if file.exists() else []
        return {(r.row, r.column, r.seed): r for r in kept if r.overrides == self.asked}

    @property
    def asked(self) -> str:
        """The options in the form that records have them in."""
        return json.dumps(self.options, sort_keys=True)
