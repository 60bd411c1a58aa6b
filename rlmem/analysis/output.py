"""What an analysis gives, and how it is written: a table, numbers, pictures."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rlmem.analysis import Summary
from rlmem.errors import UserError
from rlmem.record import rundir

Figure = Any
"""A figure of matplotlib, which is imported when one is made."""
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
"""Okabe and Ito's palette, which colour-blind readers can tell apart."""
ASKED = "asked.json"
"""Beside an analysis that an experiment made: the options it asked for. One made by hand has none."""
STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "rlmem",
    "font.size": 12.0,
    "axes.titlesize": 12.0,
    "legend.fontsize": 10.5,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "axes.axisbelow": True,
}
WIDTH = 6.0
"""Inches; at 160 dots per inch, a picture that a phone shows without zooming."""


@dataclass
class Result:
    """What an analysis found.

    metrics: numbers by name;  rows: the table data.csv, one mapping per row with the same keys
    pictures: figures by file name, the main one as "picture";  arrays: larger numbers, by name, for data.npz
    about: settings and names, for summary.json
    """

    metrics: dict[str, float]
    rows: Sequence[Mapping[str, Any]]
    pictures: dict[str, Figure]
    about: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)


def figure(height: float, rows: int = 1, columns: int = 1, **kwargs: Any) -> tuple[Figure, np.ndarray]:
    """A figure of the common width with axes [rows, columns], in the common style; it needs no display."""
    import matplotlib
    from matplotlib import figure as figures

    with matplotlib.rc_context(STYLE):
        made = figures.Figure(figsize=(WIDTH, height), layout="constrained")
        return made, made.subplots(rows, columns, squeeze=False, **kwargs)


def whole_numbers(axis: Any) -> None:
    """No ticks between whole numbers."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(integer=True))


def write(result: Result, folder: Path, about: dict[str, Any]) -> Summary:
    """Write all of it, summary.json last. UserError if nothing can be written there."""
    wrong = {name: value for name, value in result.metrics.items() if not math.isfinite(value)}
    if wrong:
        raise UserError(
            f"{folder}: {', '.join(wrong)} is not a finite number; the agent's parameters may have diverged"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ASKED).unlink(missing_ok=True)  # it is about what was there before
        files = [_table(result.rows, folder / "data.csv")]
        if result.arrays:
            np.savez_compressed(folder / "data.npz", **result.arrays)  # type: ignore[arg-type]
            files.append("data.npz")
        for name, picture in result.pictures.items():
            files += [_draw(picture, folder / f"{name}.{kind}") for kind in ("png", "svg")]
        summary = Summary(metrics=result.metrics, about=result.about, files=tuple(files), folder=folder, **about)
        rundir.write_atomically(folder / "summary.json", json.dumps(summary.row(), indent=2) + "\n")
    except OSError as error:
        raise UserError(f"{folder}: cannot be written ({error.strerror or error}); e.g. --out /tmp/analysis") from error
    return summary


def _table(rows: Sequence[Mapping[str, Any]], path: Path) -> str:
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return path.name


def _draw(picture: Figure, path: Path) -> str:
    import matplotlib

    with matplotlib.rc_context(STYLE):
        picture.savefig(path, dpi=160, metadata={"Date": None} if path.suffix == ".svg" else None)
    return path.name
