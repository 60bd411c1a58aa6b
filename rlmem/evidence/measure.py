"""Items that are measured instead of trained: speeds, and what follows from equations alone.

A measurement is one of MEASUREMENTS. It takes the path of its files without suffix, the number of the repetition, the
rows, and the options of the experiment and its budget; it returns the number of every row and column.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from rlmem import __version__
from rlmem.config.messages import nearest, sentence
from rlmem.errors import UserError
from rlmem.evidence.experiment import Cell
from rlmem.evidence.records import RESULTS, Record, read_results, write_results
from rlmem.evidence.runner import Collected, Runner
from rlmem.record.facts import short_commit
from rlmem.record.provenance import git_commit
from rlmem.sweep.run import Options
from rlmem.system.hardware import machine_class

Values = Mapping[str, Mapping[str, float]]
"""row -> column -> number"""


def figure3(path: Path, repetition: int, rows: Sequence[str], **options: Any) -> Values:
    """FFM's figure 3. Rows are options of conf/memory, and torch's GRUs beside them."""
    from rlmem.bench.figure3 import PEERS, Figure3Bench, by_model

    models = [row for row in rows if row not in PEERS]
    return by_model(Figure3Bench.run(path.with_suffix(".json"), path.with_suffix(".png"), models=models, **options))


def returns(path: Path, repetition: int, rows: Sequence[str], **options: Any) -> Values:
    """Memoroids' figure 5, left: discounted returns by scan and by loop."""
    from rlmem.bench.returns import ReturnsBench, sums_by_method

    return sums_by_method(ReturnsBench.run(path.with_suffix(".json"), path.with_suffix(".png"), **options))


def impulse(path: Path, repetition: int, rows: Sequence[str], **options: Any) -> Values:
    """LP-RNN's figure 2 and appendix A: what an impulse leaves in chained and in parallel pools."""
    from rlmem.analysis import analyze

    found: dict[str, dict[str, float]] = {}
    for name, value in analyze("impulse", None, seed=repetition, out=path.parent, **options).metrics.items():
        row, _, column = name.partition("/")
        found.setdefault(row, {})[column] = value
    return found


MEASUREMENTS: dict[str, Callable[..., Values]] = {"figure3": figure3, "returns": returns, "impulse": impulse}


class Measured(Runner):
    """All cells of a repetition are one measurement; seeds number the repetitions."""

    def check(self, cells: Sequence[Cell], files: bool = True) -> None:
        if (name := self.planned.run) not in MEASUREMENTS:
            accepted = ["train", "population", *MEASUREMENTS]
            near = nearest(name, accepted)
            raise UserError(sentence(f"run: {name}", "no such measurement", near=near, accepted=accepted))

    def run(self, cells: Sequence[Cell], options: Options) -> int:
        self.folder.mkdir(parents=True, exist_ok=True)
        name, commit = self.planned.run, short_commit(git_commit())
        about: dict[str, Any] = {"commit": commit, "machine": machine_class(), "overrides": self.asked}
        for seed in cells[0].seeds if cells else ():
            rows = list(dict.fromkeys(c.row for c in cells if (c.row, c.column, seed) not in self.records))
            values = MEASUREMENTS[name](self.folder / f"{name}-{seed}", seed, rows, **self.options) if rows else {}
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
