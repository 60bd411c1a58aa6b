"""The outcome of an experiment: a record of each run, learning curves, and the files that hold both."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlmem.errors import UserError
from rlmem.record import rundir
from rlmem.record.facts import RunRecord
from rlmem.reproduce.spec import Experiment

RESULTS = "results.csv"
"""The file of records in the directory of a reproduction."""


@dataclass(frozen=True)
class Record:
    """A run of a cell, or a repetition of a measurement.

    row, column, seed: which run it is
    state: done | failed | running | interrupted | waiting
    metrics: name -> value, for the metrics that the run has
    steps: environment steps
    seconds: wall time, NaN if unknown
    config_hash: the hash of its configuration, "" for a measurement
    version, commit, machine: the rlmem and the kind of machine that made it, "" if unknown
    overrides: the overrides of the run in one line, or the options of a measurement
    run_dir: the run directory, None where only the numbers are kept
    """

    row: str
    column: str
    seed: int
    state: str
    metrics: Mapping[str, float] = field(default_factory=dict)
    steps: int = 0
    seconds: float = float("nan")
    config_hash: str = ""
    version: str = ""
    commit: str = ""
    machine: str = ""
    overrides: str = ""
    run_dir: Path | None = None

    @classmethod
    def of_run(
        cls,
        found: RunRecord,
        row: str,
        column: str,
        seed: int,
        state: str,
        metrics: Mapping[str, float],
        overrides: str,
        config_hash: str = "",
        machine: str = "",
    ) -> Record:
        """The record of a run directory, which fills in what is not given."""
        who = {"version": found.version, "commit": found.commit, "machine": machine}
        about = {"config_hash": config_hash, "overrides": overrides, **who}
        return cls(row, column, seed, state, metrics, found.last_step, found.elapsed, run_dir=found.run_dir, **about)


FIXED = tuple(field.name for field in fields(Record) if field.name not in ("metrics", "run_dir"))
"""The columns of results.csv that stand before the metrics."""


@dataclass(frozen=True)
class Curve:
    """The learning curve of one run, which a row, a column and a seed name: values at environment steps."""

    row: str
    column: str
    seed: int
    steps: Sequence[int]
    values: Sequence[float]


@dataclass(frozen=True)
class Outcome:
    """An experiment at a budget, with what has been run of it.

    name: `<paper>/<item>`
    experiment: the experiment; becomes that of the budget
    budget: the name of the budget
    records: a record of each run
    curves: learning curves, of the key that `rlmem.reproduce.metrics.curve_key` gives
    pictures: caption -> picture of an analysis
    """

    name: str
    experiment: Experiment
    budget: str
    records: Sequence[Record]
    curves: Sequence[Curve] = ()
    pictures: Mapping[str, Path] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "experiment", self.experiment.at(self.budget))

    def counts(self, record: Record, metric: str | None = None) -> bool:
        """Whether a run is done and has the metric."""
        return record.state == "done" and (metric or self.experiment.metric) in record.metrics

    def scores(self, metric: str | None = None) -> dict[tuple[str, str], NDArray[np.float64]]:
        """(row, column) -> the metric of the runs that count, [seed], sorted by seed."""
        wanted = metric or self.experiment.metric
        found: dict[tuple[str, str], list[tuple[int, float]]] = defaultdict(list)
        for record in self.records:
            if self.counts(record, wanted):
                found[record.row, record.column].append((record.seed, record.metrics[wanted]))
        return {cell: np.array([value for _, value in sorted(runs)]) for cell, runs in found.items()}


def write_results(records: Iterable[Record], file: Path) -> None:
    """Write one line per run, with unrounded numbers."""
    records = list(records)
    metrics = sorted({name for record in records for name in record.metrics})
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*FIXED, *metrics])
    for record in records:
        own = [getattr(record, name) for name in FIXED]
        writer.writerow([*map(_shown, own), *(_shown(record.metrics.get(name, "")) for name in metrics)])
    rundir.write_atomically(file, out.getvalue())


def read_results(file: Path) -> list[Record]:
    """What `write_results` wrote. Raises UserError."""
    try:
        with open(file, encoding="utf-8", newline="") as lines:
            return [_record(line) for line in csv.DictReader(lines)]
    except (OSError, ValueError, KeyError) as error:
        raise UserError(
            f"{file}: cannot be read as results ({error}); expected what `rlmem reproduce` wrote"
        ) from error


def write_curves(curves: Iterable[Curve], file: Path) -> None:
    with open(file, "w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["row", "column", "seed", "step", "value"])
        for curve in curves:
            for step, value in zip(curve.steps, curve.values, strict=True):
                writer.writerow([curve.row, curve.column, curve.seed, step, f"{value:.5g}"])


def read_curves(file: Path) -> list[Curve]:
    """What `write_curves` wrote; [] if there is no such file."""
    points: dict[tuple[str, str, int], list[tuple[int, float]]] = defaultdict(list)
    if file.exists():
        with open(file, encoding="utf-8", newline="") as lines:
            for line in csv.DictReader(lines):
                key = (line["row"], line["column"], int(line["seed"]))
                points[key].append((int(line["step"]), float(line["value"])))
    return [Curve(*key, [s for s, _ in pairs], [v for _, v in pairs]) for key, pairs in points.items()]


def _record(line: Mapping[str, str]) -> Record:
    metrics = {name: float(value) for name, value in line.items() if name not in FIXED and value != ""}
    numbers: dict[str, Callable[[str], Any]] = {"seed": int, "steps": int, "seconds": float}
    return Record(**{name: numbers.get(name, str)(line[name]) for name in FIXED}, metrics=metrics)


def _shown(value: object) -> object:
    return f"{value:.6g}" if isinstance(value, float) else value
