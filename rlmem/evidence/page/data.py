"""All published numbers as one file, and the checksums of all published files. results/README.md describes both."""

from collections.abc import Iterator, Sequence
from hashlib import sha256
from itertools import chain
from pathlib import Path
from typing import Any

from rlmem.evidence.page.find import Item
from rlmem.evidence.records import PLACE, SERIES, read_series
from rlmem.record.tables import csv_text, inert
from rlmem.system.received import ROWS, content, inside

SUMS = "SHA256SUMS"
"""The file of checksums in a folder of published results."""
ABOUT = ("steps", "seconds", "config_hash", "version", "commit", "machine", "overrides")
"""The columns about a run, which stand beside its metrics."""
FIELDS = ("item", "budget", "verdict", "row", "column", "seed", "kind", "name", "step", "value", *ABOUT)
Line = dict[str, str | int | float]


def data_text(items: Sequence[Item]) -> str:
    """All numbers of the items, one a line."""
    lines = (_item(item) | line for item in items for line in _lines(item))
    rows = ([inert(v) if isinstance(v := line.get(name, ""), str) else v for name in FIELDS] for line in lines)
    return csv_text(chain([FIELDS], rows))


def checksums(folder: Path) -> str:
    """The SHA-256 of every published file in a folder, in the format of `sha256sum`; documents are none of them."""
    lines = []
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        if path.name != SUMS and path.suffix not in (".md", ".partial"):
            name = path.relative_to(folder).as_posix()
            lines.append(f"{sha256(content(inside(folder, name), ROWS)).hexdigest()}  {name}\n")
    return "".join(lines)


def _lines(item: Item) -> Iterator[Line]:
    """The means of the cells, the metrics of every run, and what they are read from."""
    assert item.file is not None
    for cell in item.verdict.cells:
        for name in ("mean", "low", "high"):
            yield {"row": cell.row, "column": cell.column, "kind": "cell", **_value(name, getattr(cell, name))}
    for run in item.outcome.records:
        about = {name: getattr(run, name) for name in ABOUT} | {"seconds": f"{run.seconds:.6g}"}
        for name, value in run.metrics.items():
            yield {**_place(run.place), "kind": "metric", **_value(name, value), **about}
    series = read_series(item.file.with_suffix(SERIES))
    for (*place, key), points in series.items():
        for step, number in points:
            yield {**_place(place), "step": step, "kind": "series", **_value(key, number)}
    for curve in item.curves:
        if (*curve.place, item.key) not in series:
            for step, number in zip(curve.steps, curve.values, strict=True):
                yield {**_place(curve.place), "step": step, "kind": "curve", **_value(item.key, number)}


def _item(item: Item) -> Line:
    return {"item": item.name, "budget": item.outcome.budget, "verdict": item.verdict.word}


def _place(place: Sequence[Any]) -> Line:
    return dict(zip(PLACE, place, strict=True))


def _value(name: str, value: float) -> Line:
    return {"name": name, "value": f"{value:.9g}"}
