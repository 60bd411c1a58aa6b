"""Pictures and short tables of the numbers of an item, for experiment files with a key `draw`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from rlmem.record import figures
from rlmem.record.tables import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from rlmem.evidence.verdict import BesidePrinted

COLUMN = re.compile(r"(\S+) (\S+)=(\S+) (\S+)=(\S+)")
"""The name of a column of heat maps: its panel, and the dials along the horizontal and the vertical axis."""
SIZE = 2.3
"""The width and height of a heat map in inches."""
COLOURS = "YlGnBu"
"""matplotlib's colour map, from pale to dark."""


def heat_maps(cells: Sequence[BesidePrinted]) -> Figure:
    """A line of heat maps for each row: one for each panel, on a scale from 0 to 100."""
    rows, panels = _axes(cells)
    figure, grid = figures.figure(SIZE * len(rows), len(rows), len(panels), width=SIZE * len(panels))
    with figures.style():
        for (row, panel), axes in zip(product(rows, panels), grid.flat, strict=True):
            axes.set_title(f"{row}: {panel}")
            if of_panel := _of(cells, row, panel):
                _heat_map(axes, of_panel)
    return figure


def means(title: str, cells: Sequence[BesidePrinted]) -> Table:
    """The mean of every panel for every row, and the mean over panels; missing where a cell is."""
    rows, panels = _axes(cells)
    lines = []
    for row in rows:
        of_panels = [_mean([cell.ours.mean for cell in _of(cells, row, panel)]) for panel in panels]
        lines.append([row, *of_panels, _mean(of_panels)])
    return Table(f"{title}, means of panels", ["row", *panels, "mean"], lines, digits=1)


def _axes(cells: Sequence[BesidePrinted]) -> tuple[list[str], list[str]]:
    """The rows and the panels that have numbers."""
    places = [(cell.row, cell.column.split()[0]) for cell in cells if cell.ours.n]
    return list(dict.fromkeys(row for row, _ in places)), list(dict.fromkeys(panel for _, panel in places))


def _of(cells: Sequence[BesidePrinted], row: str, panel: str) -> list[BesidePrinted]:
    return [cell for cell in cells if (cell.row, cell.column.split()[0]) == (row, panel)]


def _mean(values: Sequence[float | None]) -> float | None:
    return float(np.mean(np.array(values, np.float64))) if values else None


def _heat_map(axes: Axes, cells: Sequence[BesidePrinted]) -> None:
    names = [match.groups() for cell in cells if (match := COLUMN.fullmatch(cell.column))]
    _, across, xs, up, ys = (list(dict.fromkeys(words)) for words in zip(*names, strict=True))
    scores = np.full((len(ys), len(xs)), np.nan)
    for (_, _, x, _, y), cell in zip(names, cells, strict=True):
        column, row, score = xs.index(x), ys.index(y), cell.ours.mean
        scores[row, column] = score
        if score is not None and np.isfinite(score):
            colour = "white" if score > 55 else figures.INK
            axes.text(column, row, str(round(score)), ha="center", va="center", color=colour)
    axes.imshow(scores, cmap=COLOURS, vmin=0, vmax=100, origin="lower", aspect="auto")
    figures.as_image(axes)
    axes.set(xlabel=across[0], ylabel=up[0])
    axes.set_xticks(range(len(xs)), xs)
    axes.set_yticks(range(len(ys)), ys)
