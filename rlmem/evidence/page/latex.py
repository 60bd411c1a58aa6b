"""The tables of published items as LaTeX, and their figures as PDF."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, isfinite
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from rlmem.errors import writing
from rlmem.evidence.metrics import in_words
from rlmem.evidence.page.draw import ACROSS, TITLE, literal, save
from rlmem.evidence.page.find import Item
from rlmem.evidence.page.markdown import curves
from rlmem.evidence.verdict import Compared
from rlmem.record import rundir
from rlmem.stats import figures
from rlmem.stats.figures import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, LINE, REST = 3.4, 0.22, 1.1
"""Sizes of a panel of cells in inches: its width, the height of a row, and that of all that is not rows."""
WIDE = 100
"""The ratio of the greatest number to the least from which on their axis is logarithmic."""


def write_latex(items: Sequence[Item], folder: Path) -> list[Path]:
    """Write `folder`/<paper>/<item>.<budget>.tex and .pdf of every item; returns the files."""
    made = []
    for item in items:
        path = folder / f"{item.name}.{item.outcome.budget}.tex"
        with writing(path, "--latex /tmp/latex"):
            path.parent.mkdir(parents=True, exist_ok=True)
            about = f"% {item.name}, budget {item.outcome.budget}: {item.verdict.word}. Needs the package booktabs.\n"
            rundir.write_atomically(path, about + "\n".join(table.latex() for table in item.tables()))
        picture = path.with_suffix(".pdf")
        save(curves(item) if item.outcome.curves else numbers(item), picture)
        made += [path, picture]
    return made


def numbers(item: Item) -> Figure:
    """The means of the cells with their intervals, for an item without curves: a panel for each column."""
    cells = [cell for cell in item.verdict.cells if isfinite(cell.mean)]
    rows, columns = (list(dict.fromkeys(getattr(cell, side) for cell in cells)) for side in ("row", "column"))
    across, down = min(ACROSS, max(len(columns), 1)), max(ceil(len(columns) / ACROSS), 1)
    what = fill(literal(in_words(item.outcome.experiment.metric)), TITLE)
    height = down * (REST + LINE * len(rows))
    figure, grid = figures.figure(height, down, across, width=WIDTH * across, sharey=True)
    with figures.style():
        for axes, column in zip(grid.flat, columns, strict=False):
            _draw(axes, [cell for cell in cells if cell.column == column], rows)
            axes.set(title=fill(literal(column), TITLE), xlabel=what)
        for axes in grid.flat[len(columns) :]:
            axes.remove()
    return figure


def _draw(axes: Axes, cells: Sequence[Compared], rows: Sequence[str]) -> None:
    for cell in cells:
        place = rows.index(cell.row)
        look: Any = {"color": COLOURS[place % len(COLOURS)]}
        axes.plot([cell.mean], [place], "o", **look)
        if isfinite(cell.low):
            axes.plot([cell.low, cell.high], [place, place], linewidth=1.8, **look)
    shown = [cell.mean for cell in cells]
    if min(shown) > 0 and max(shown) / min(shown) > WIDE:
        axes.set_xscale("log")
    axes.set_yticks(range(len(rows)), [literal(row) for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
