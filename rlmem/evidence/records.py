"""The numbers of an item: a record of every run, learning curves, and the series that metrics are read from.

Results are a line per run, with six digits of every number; curves a line per point, with five. Series are what
published metrics follow from: a line per value of a key of metrics.jsonl, with nine digits, compressed.
"""

from __future__ import annotations

import gzip
import io
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from math import isinf, nan
from pathlib import Path
from typing import Any

from rlmem.config.paths import results_dir
from rlmem.core.errors import UserError
from rlmem.core.received import LARGEST, csv_rows
from rlmem.evidence.metrics import NORMALISED, curve_key
from rlmem.record import rundir
from rlmem.record.facts import RunRecord
from rlmem.record.tables import csv_text

RESULTS, CURVES = "results.csv", "curves.csv"
"""The files of records and of curves in the directory of a reproduction."""
SERIES = ".series.csv.gz"
"""The suffix of a file of series beside published results."""
RECORDED, DRAWN, STORED = 6, 5, 9
"""The digits of numbers in the files of records, curves and series."""
PLACE = ("row", "column", "seed")
Place = tuple[str, str, int]
"""The row, the column and the seed of a run."""
Series = Mapping[tuple[str, str, int, str], list[tuple[int, float]]]
"""(row, column, seed, key) -> (step, value) of every row that has the key, NaN for what is no number."""


@dataclass(frozen=True)
class Placed:
    """A run of a table, which its row, its column and its seed tell from the others."""

    row: str
    column: str
    seed: int

    @property
    def place(self) -> Place:
        return self.row, self.column, self.seed


@dataclass(frozen=True)
class Record(Placed):
    """A run of a cell, or a repetition of a measurement.

    state: done | failed | running | interrupted | waiting
    metrics: name -> value, for the metrics that the run has
    steps, seconds: environment steps, and wall time, NaN if unknown
    config_hash: the hash of its configuration, "" for a measurement
    version, commit, machine: the rlmem and the kind of machine that made it, "" if unknown
    overrides: the overrides of the run in one line, or the options of a measurement
    run_dir: the run directory, None where only the numbers are kept
    """

    state: str
    metrics: Mapping[str, float] = field(default_factory=dict)
    steps: int = 0
    seconds: float = nan
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
class Curve(Placed):
    """The learning curve of one run: values at environment steps."""

    steps: Sequence[int]
    values: Sequence[float]


def write_results(records: Sequence[Record], file: Path) -> None:
    """Write one line per run."""
    metrics = sorted({name for record in records for name in record.metrics})
    rows: list[list[object]] = [[*FIXED, *metrics]]
    for record in records:
        cells = [*(getattr(record, name) for name in FIXED), *(record.metrics.get(name, "") for name in metrics)]
        rows.append([kept(cell) if isinstance(cell, float) else cell for cell in cells])
    rundir.write_atomically(file, csv_text(rows))


def kept(value: float) -> str:
    """A number as files of results have it."""
    return f"{value:.{RECORDED}g}"


def read_results(file: Path) -> list[Record]:
    """What `write_results` wrote. Raises UserError."""
    types: dict[str, Callable[[str], Any]] = {"seed": integer, "steps": integer, "seconds": real}
    records = []
    with _read_as("results", file):
        for line in csv_rows(file):
            metrics = {name: real(value) for name, value in line.items() if name not in FIXED and value != ""}
            records.append(Record(**{k: types.get(k, str)(line[k]) for k in FIXED}, metrics=metrics))
    return records


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
    """Write one line per point."""
    points = ((*c.place, step, f"{v:.{DRAWN}g}") for c in curves for step, v in zip(c.steps, c.values, strict=True))
    rundir.write_atomically(file, csv_text([(*PLACE, "step", "value"), *points]))


def read_curves(file: Path) -> list[Curve]:
    """What `write_curves` wrote; [] if there is no such file. Raises UserError."""
    points: dict[Place, list[tuple[int, float]]] = defaultdict(list)
    with _read_as("curves", file):
        for place, _, step, value in _points(file):
            points[place].append((step, value))
    return [Curve(*place, [s for s, _ in pairs], [v for _, v in pairs]) for place, pairs in points.items()]


def series_of(records: Iterable[Record]) -> Series:
    """The series behind the metrics of all records whose run directory is known; those of analyses have none."""
    series = {}
    for record in records:
        if record.run_dir is not None:
            run = RunRecord(record.run_dir)
            recorded = (m for m in record.metrics if not m.removeprefix(NORMALISED).startswith("analysis/"))
            for key in dict.fromkeys(map(curve_key, recorded)):
                series[(*record.place, key)] = [(s, nan if value is None else value) for s, value in run.series(key)]
    return series


def write_series(series: Series, file: Path) -> None:
    """Write the series; no file where there are none."""
    file.unlink(missing_ok=True)
    if series:
        points = ((*place, step, f"{v:.{STORED}g}") for place, own in series.items() for step, v in own)
        file.write_bytes(compressed(csv_text([(*PLACE, "key", "step", "value"), *points])))


def read_series(file: Path) -> Series:
    """What `write_series` wrote; empty if there is no such file. Raises UserError."""
    series: dict[tuple[str, str, int, str], list[tuple[int, float]]] = defaultdict(list)
    with _read_as("series", file, "rlmem reproduce --publish"):
        for place, line, step, value in _points(file, packed=True):
            series[(*place, line["key"])].append((step, value))
    return dict(series)


def _points(file: Path, packed: bool = False) -> Iterator[tuple[Place, dict[str, str], int, float]]:
    """The run, the line, the step and the value of every point; none if there is no such file."""
    for line in csv_rows(file, packed=packed) if file.exists() else ():
        place = line["row"], line["column"], integer(line["seed"])
        yield place, line, integer(line["step"]), real(line["value"])


def compressed(text: str) -> bytes:
    """The text in the format of gzip, without a name or a time: equal texts give equal bytes, with one zlib."""
    out = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=out, mtime=0) as file:
        file.write(text.encode())
    return out.getvalue()


@contextmanager
def _read_as(kind: str, file: Path, command: str = "rlmem reproduce") -> Iterator[None]:
    """Raise UserError where a file cannot be read as what a command writes."""
    try:
        yield
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{file}: cannot be read as {kind} ({error}); expected what `{command}` wrote") from error


def integer(text: str) -> int:
    """A number of 64 bits. Raises ValueError."""
    if not -(2**63) <= (number := int(text)) < 2**63:
        raise ValueError(f"{text} is not a number of 64 bits")
    return number


def real(text: str) -> float:
    """A number, which may be infinite; NaN for a finite one beyond LARGEST. Raises ValueError."""
    number = float(text)
    return number if isinf(number) or abs(number) <= LARGEST else nan
