"""The outcome of an experiment: a record of each run, learning curves, and the files that hold both."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from math import isinf, nan
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlmem.config.paths import results_dir
from rlmem.errors import UserError
from rlmem.evidence.registration import Registration
from rlmem.evidence.spec import Experiment
from rlmem.record import rundir
from rlmem.record.facts import RunRecord
from rlmem.system.received import csv_rows
from rlmem.system.strictjson import LARGEST

RESULTS = "results.csv"
"""The file of records in the directory of a reproduction."""


@dataclass(frozen=True)
class Record:
    """A run of a cell, or a repetition of a measurement.

    state: done | failed | running | interrupted | waiting
    metrics: name -> value, for the metrics that the run has
    steps, seconds: environment steps, and wall time, NaN if unknown
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

    def of(self, run: RunRecord) -> Record:
        """The record with the steps, the time and the origin that a run directory tells."""
        known = replace(self, steps=run.last_step, seconds=run.elapsed, run_dir=run.run_dir)
        return replace(known, version=run.version, commit=run.commit)


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
    records: of our runs, and of the measured ones of peers
    curves: learning curves, of the key that `rlmem.evidence.metrics.curve_key` gives
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

    @property
    def registration(self) -> Registration:
        """The registered expectations at the budget, with the date of the first counted run."""
        return self.experiment.registered.get(self.budget, Registration())

    @property
    def ours(self) -> list[Record]:
        """The records without those of peers."""
        return [record for record in self.records if record.row not in self.experiment.peers]

    def counts(self, record: Record, metric: str | None = None) -> bool:
        """Whether a run is done and has the metric."""
        return record.state == "done" and (metric or self.experiment.metric) in record.metrics

    def scores(self, metric: str | None = None) -> dict[tuple[str, str], NDArray[np.float64]]:
        """(row, column) -> the metric of the runs that count, [seed], sorted by seed."""
        wanted = metric or self.experiment.metric
        found: dict[tuple[str, str], list[float]] = defaultdict(list)
        for record in sorted(self.records, key=lambda record: record.seed):
            if self.counts(record, wanted):
                found[record.row, record.column].append(record.metrics[wanted])
        return {cell: np.array(runs) for cell, runs in found.items()}


def write_results(records: Iterable[Record], file: Path) -> None:
    """Write one line per run, with six digits of every number."""
    rows = [{name: getattr(record, name) for name in FIXED} | dict(record.metrics) for record in records]
    metrics = sorted({name for row in rows for name in row} - {*FIXED})
    out = io.StringIO()
    writer = csv.DictWriter(out, [*FIXED, *metrics], lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: kept(v) if isinstance(v, float) else v for name, v in row.items()})
    rundir.write_atomically(file, out.getvalue())


def kept(value: float) -> str:
    """A number as files of results have it."""
    return f"{value:.6g}"


def read_results(file: Path) -> list[Record]:
    """What `write_results` wrote. Raises UserError."""
    types: dict[str, Callable[[str], Any]] = {"seed": integer, "steps": integer, "seconds": real}
    records = []
    try:
        for line in csv_rows(file):
            metrics = {name: real(value) for name, value in line.items() if name not in FIXED and value != ""}
            records.append(Record(**{k: types.get(k, str)(line[k]) for k in FIXED}, metrics=metrics))
    except (OSError, ValueError, KeyError) as error:
        what = f"cannot be read as results ({error}); expected what `rlmem reproduce` wrote"
        raise UserError(f"{file}: {what}") from error
    return records


def integer(text: str) -> int:
    """A number of 64 bits. Raises ValueError."""
    if not -(2**63) <= (number := int(text)) < 2**63:
        raise ValueError(f"{text} is not a number of 64 bits")
    return number


def real(text: str) -> float:
    """A number, which may be infinite; NaN for a finite one beyond LARGEST. Raises ValueError."""
    number = float(text)
    return number if isinf(number) or abs(number) <= LARGEST else nan


def shipped_records(item: str, budget: str) -> list[Record]:
    """The runs of an item at a budget whose numbers rlmem ships; [] if there are none."""
    root = results_dir()
    file = root / f"{item}.{budget}.csv" if root else None
    return read_results(file) if file and file.is_file() else []


def shipped_curves(item: str, budget: str) -> list[Curve]:
    """The learning curves of the runs of an item at a budget whose numbers rlmem ships; [] if there are none."""
    root = results_dir()
    return read_curves(root / f"{item}.{budget}.curves.csv") if root else []


def write_curves(curves: Iterable[Curve], file: Path) -> None:
    with open(file, "w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["row", "column", "seed", "step", "value"])
        for curve in curves:
            for step, value in zip(curve.steps, curve.values, strict=True):
                writer.writerow([curve.row, curve.column, curve.seed, step, f"{value:.5g}"])


def read_curves(file: Path) -> list[Curve]:
    """What `write_curves` wrote; [] if there is no such file. Raises UserError."""
    points: dict[tuple[str, str, int], list[tuple[int, float]]] = defaultdict(list)
    try:
        for line in csv_rows(file) if file.exists() else ():
            key = (line["row"], line["column"], integer(line["seed"]))
            points[key].append((integer(line["step"]), real(line["value"])))
    except (OSError, ValueError, KeyError) as error:
        what = f"cannot be read as curves ({error}); expected what `rlmem reproduce` wrote"
        raise UserError(f"{file}: {what}") from error
    return [Curve(*key, [s for s, _ in pairs], [v for _, v in pairs]) for key, pairs in points.items()]
