"""Learning curves of several seeds as a mean with its interval, in panels, one for each column, and their drawings.

Reports and `rlmem plot` draw them alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from math import ceil
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rlmem.config.messages import mistake, nearest, sentence
from rlmem.core.errors import UserError, extra, printable, writing
from rlmem.evidence.page.groups import Section, apart, disjoint, key_in_words, of_metric, unseen
from rlmem.evidence.records import Curve
from rlmem.evidence.statistics import ANY, Range, contrast
from rlmem.record import figures
from rlmem.record.facts import RunRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


Points = NDArray[np.float64]
POINTS = 200
"""The number of points of a mean over curves with different steps."""
PANEL = (4.6, 3.0)
"""Width and height of a panel in inches; on a phone its letters are as large as those of the text around it."""
ACROSS, MOST = 3, 4
"""The greatest number of panels side by side, and of names on a line of the legend."""
LINE, ENTRY, LETTER, WIDE = 0.25, 0.7, 0.085, 0.1
"""Sizes in a legend, in inches: the height of a line, the width of an entry without its name, that of a letter, and an
upper bound on the latter, for wrapping long names."""
WRAP, TITLE = 32, 46
"""The greatest number of letters on a line of a panel's side label and of its title."""
FORMATS = ("png", "pdf", "svg")


@dataclass(frozen=True)
class Line:
    """The curve of a row in one panel: a mean over seeds with its pointwise 95 % t interval, all [points].

    index: the row's place among all rows, which gives it the same colour in every panel
    low, high: the bounds of the interval, NaN with one seed
    seeds: the curves of the single seeds, smoothed like the mean
    dots: runs with a single point, left out of the mean because other runs have more points or another step
    """

    name: str
    index: int
    steps: Points
    mean: Points
    low: Points
    high: Points
    seeds: Sequence[Curve]
    dots: Sequence[Curve]


@dataclass(frozen=True)
class Panel:
    """The curves of one column: its title, the quantity in words, and a line for each row that has curves there."""

    title: str
    what: str
    lines: Sequence[Line]


def panels(
    curves: Sequence[Curve],
    rows: Sequence[str],
    columns: Sequence[str],
    ylabel: str,
    smooth: int = 1,
    ranges: Mapping[str, Range] | None = None,
) -> list[Panel]:
    """One panel for each column that has curves.

    smooth: every value becomes the mean of as many last points
    ranges: the values that are possible in a column, within which intervals stay; any, where it is not named
    """
    ylabel, drawn = f"{ylabel}, mean of {smooth} points" if smooth > 1 else ylabel, []
    for column in columns:
        possible, lines = (ranges or {}).get(column, ANY), []
        for index, row in enumerate(rows):
            if own := [smoothed(c, smooth) for c in curves if (c.row, c.column) == (row, column)]:
                counted, dots = apart(own)
                lines.append(Line(row, index, *band(counted, possible), counted, dots))
        if lines:
            drawn.append(Panel(column, ylabel, lines))
    return drawn


def chosen(
    sections: Sequence[Section], metric: str | None, smooth: int = 1, columns: Sequence[str] = ()
) -> tuple[list[Panel], list[str]]:
    """The panels of all sections, and sentences that name the runs that are left out, or shown without a mean.

    Each section shows the metric of its own curves where `metric` is None, and all columns where `columns` is empty. A
    row has one colour in all of them. Raises UserError if nothing is left to draw.
    """
    known = list(dict.fromkeys(name for section in sections for name in section.axes[1] if name))
    if unknown := [name for name in columns if name not in known]:
        problem = "no such column" if known else "no such column; these runs have none"
        raise mistake(f"--columns {unknown[0]}", problem, near=nearest(unknown[0], known), accepted=known)
    rows = list(dict.fromkeys(row for section in sections for row in section.axes[0]))
    drawn, omitted = [], []
    for section in sections:
        key = section.key if metric is None else metric
        own = key == section.key
        curves = section.curves if own else of_metric(section.records, key)
        wanted = [column for column in section.axes[1] if not columns or column in columns]
        ranges = section.ranges if own else None
        for panel in panels(curves, rows, wanted, key_in_words(key), smooth, ranges):
            parts = [section.label if len(sections) > 1 or not panel.title else "", panel.title]
            drawn.append(replace(panel, title=": ".join(filter(None, parts))))
        runs = [run for run in section.records if not columns or run.column in columns]
        omitted += [f"{section.label}: {text}" for text in [*unseen(runs, curves, key), *section.left_out]]
    if not drawn:
        raise UserError(_nothing(sections, metric))
    return drawn, omitted


def _nothing(sections: Sequence[Section], metric: str | None) -> str:
    """The reason why there is nothing to draw. Of published results, one metric is known."""
    if metric is None:
        names = ", ".join(section.label for section in sections)
        return f"{names}: no learning curves there; no run has an evaluation that can be read"
    runs = [RunRecord(run.run_dir) for section in sections for run in section.records if run.run_dir is not None]
    known = {key for run in runs for row in run.rows for key in row} or {section.key for section in sections}
    return sentence(
        f"--metric {metric}", "no run has it", near=nearest(metric, known), accepted=sorted(known - {"step"})
    )


def smoothed(curve: Curve, over: int) -> Curve:
    """The running mean of the last `over` points, or of fewer at the beginning."""
    if over == 1:
        return curve
    values = np.asarray(curve.values, dtype=np.float64)
    ends = range(1, len(values) + 1)
    return replace(curve, values=[float(values[max(0, end - over) : end].mean()) for end in ends])


def band(curves: Sequence[Curve], possible: Range = ANY) -> tuple[Points, Points, Points, Points]:
    """Steps, mean, low and high, each [points], over the range of all curves; interpolated where their steps differ.

    possible: the values that a curve can have, within which the interval stays
    """
    if not curves or disjoint(curves):
        return np.empty(0), np.empty(0), np.empty(0), np.empty(0)
    if all(list(curve.steps) == list(curves[0].steps) for curve in curves):
        steps = np.asarray(curves[0].steps, dtype=np.float64)
        values = np.array([curve.values for curve in curves], dtype=np.float64)
    else:
        begin, end = max(curve.steps[0] for curve in curves), min(curve.steps[-1] for curve in curves)
        steps = np.linspace(begin, end, POINTS if begin < end else 1)
        values = np.array([np.interp(steps, curve.steps, curve.values) for curve in curves])
    low, high = zip(*(contrast([(1, point)]).bounds(possible=possible) for point in values.T), strict=True)
    return steps, values.mean(0), np.array(low), np.array(high)


def require_matplotlib() -> None:
    if find_spec("matplotlib") is None:
        raise mistake("curves", "matplotlib is not installed", example=extra("report"))


def together(shown: Sequence[Panel]) -> Figure:
    """A figure of all panels with a legend."""
    across, names = min(ACROSS, len(shown)), {line.name for panel in shown for line in panel.lines}
    width, longest = PANEL[0] * across, max(map(len, names), default=0)
    abreast = max(1, min(MOST, int(width / (ENTRY + LETTER * longest))))
    wrap = max(longest, 1) if ENTRY + LETTER * longest <= width else int((width - ENTRY) / WIDE)
    wrapped = {name: fill(literal(name), wrap) for name in names}
    lines = sum(text.count("\n") for text in wrapped.values()) + ceil(len(names) / abreast)
    down = ceil(len(shown) / across)
    figure, grid = figures.figure(PANEL[1] * down + LINE * lines, down, across, width=width)
    handles: dict[str, Any] = {}
    with figures.style():
        for panel, axes in zip(shown, grid.flat, strict=False):
            handles |= draw(axes, panel)
        for axes in grid.flat[len(shown) :]:
            axes.remove()
        texts = [wrapped[name] for name in handles]
        figure.legend(list(handles.values()), texts, loc="outside lower center", ncols=abreast)
    return figure


def draw(axes: Axes, panel: Panel) -> dict[str, Any]:
    """Draw the means with their bands; returns row -> the handle for the legend.

    A single point is drawn as a dot, also that of a run among longer ones. Runs without a common step have no mean and
    are drawn one by one. The groups of an SVG are named `band-N`, `mean-N` and `dot-N` by the row's index.
    """
    from matplotlib.ticker import EngFormatter, MaxNLocator

    handles: dict[str, Any] = {}
    for line in panel.lines:
        look: Any = {"color": figures.COLOURS[line.index % len(figures.COLOURS)]}
        dash = figures.DASHES[line.index // len(figures.COLOURS) % len(figures.DASHES)]
        thick: Any = look | {"linestyle": dash, "linewidth": 1.8}
        if np.isfinite(line.low).any():
            edge = 1.8 if len(line.steps) == 1 else 0
            axes.fill_between(line.steps, line.low, line.high, **look, lw=edge, alpha=0.18, gid=f"band-{line.index}")
        means = [(line.steps, line.mean)] if len(line.steps) else [(curve.steps, curve.values) for curve in line.seeds]
        for steps, values in means:
            marker = "o" if len(steps) == 1 else None
            (handles[line.name],) = axes.plot(steps, values, **thick, marker=marker, gid=f"mean-{line.index}")
        for curve in line.dots:
            (drawn,) = axes.plot(curve.steps, curve.values, **thick, marker="o", gid=f"dot-{line.index}")
            handles.setdefault(line.name, drawn)
    axes.set(title=fill(literal(panel.title), TITLE), xlabel="environment steps")
    axes.set_ylabel(fill(literal(panel.what), WRAP))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.xaxis.set_major_locator(MaxNLocator(5))
    return handles


def save(figure: Figure, path: Path) -> None:
    """Write a figure in the format of its suffix, reproducibly byte by byte. Raises UserError if it cannot."""
    kind = path.suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise mistake(f"--out {path}", "no such format", accepted=FORMATS, example="--out figure.pdf")
    with writing(path, "--out /tmp/figure.png"):
        path.parent.mkdir(parents=True, exist_ok=True)
        figures.save(figure, path, kind)


def literal(text: str) -> str:
    """Escape a text for matplotlib's mathematics, and drop characters that XML forbids."""
    return printable(text).replace("$", r"\$")
