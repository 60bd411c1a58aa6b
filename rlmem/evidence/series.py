"""What the metrics of published runs are made of: <item>.<budget>.series.csv.gz has the values over each run.

A line is one value of a key of metrics.jsonl that a metric of the run is read from, with nine digits.
"""

import csv
import gzip
import io
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from rlmem.errors import UserError
from rlmem.evidence.metrics import NORMALISED, curve_key
from rlmem.evidence.outcome import Record, integer, real
from rlmem.record.facts import RunRecord
from rlmem.system.received import csv_rows

Series = Mapping[tuple[str, str, int, str], list[tuple[int, float]]]
"""(row, column, seed, key) -> (step, value) of every row that has the key, NaN for what is no number."""
SUFFIX = ".series.csv.gz"
FIELDS = ("row", "column", "seed", "key", "step", "value")


def series_of(records: Iterable[Record]) -> Series:
    """The series behind the metrics of all records whose run directory is known; those of analyses have none."""
    found = {}
    for record in records:
        if record.run_dir is not None:
            run = RunRecord(record.run_dir)
            read = [metric for metric in record.metrics if not is_analysed(metric)]
            for key in dict.fromkeys(curve_key(metric) for metric in read):
                points = [(step, float("nan") if value is None else value) for step, value in run.series(key)]
                found[record.row, record.column, record.seed, key] = points
    return found


def is_analysed(metric: str) -> bool:
    """Whether a metric is the result of an analysis, and not read from metrics.jsonl."""
    return metric.removeprefix(NORMALISED).startswith("analysis/")


def write_series(series: Series, file: Path) -> None:
    """Write the series; no file where there are none."""
    file.unlink(missing_ok=True)
    if series:
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(FIELDS)
        for place, points in series.items():
            writer.writerows([*place, step, f"{value:.9g}"] for step, value in points)
        file.write_bytes(compressed(out.getvalue()))


def read_series(file: Path) -> Series:
    """What `write_series` wrote; empty if there is no such file. Raises UserError."""
    found: dict[tuple[str, str, int, str], list[tuple[int, float]]] = defaultdict(list)
    try:
        for line in csv_rows(file, packed=True) if file.exists() else ():
            place = line["row"], line["column"], integer(line["seed"]), line["key"]
            found[place].append((integer(line["step"]), real(line["value"])))
    except (OSError, ValueError, KeyError) as error:
        what = f"cannot be read as series ({error}); expected what `rlmem reproduce --publish` wrote"
        raise UserError(f"{file}: {what}") from error
    return dict(found)


def compressed(text: str) -> bytes:
    """The text in the format of gzip, without a name or a time: equal texts give equal bytes, with one zlib."""
    out = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=out, mtime=0) as file:
        file.write(text.encode())
    return out.getvalue()
