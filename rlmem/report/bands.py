"""Learning curves of several seeds as a mean with its interval."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rlmem.reproduce.outcome import Curve
from rlmem.stats import percentile_bounds
from rlmem.stats.resampling import REPETITIONS, SEED

Points = NDArray[np.float64]
POINTS = 200
"""The number of points of a mean over curves with different steps."""


@dataclass(frozen=True)
class Line:
    """The curve of a row in one panel: a mean over seeds with its pointwise 95 % bootstrap interval, all [points].

    name: the row
    index: its place among all rows, which gives it the same colour in every panel
    steps: environment steps
    mean: the mean over seeds
    low, high: the bounds of its interval, NaN with one seed
    seeds: the curves of the single seeds, smoothed like the mean
    dots: runs with a single point, left out of the mean because other runs have more points, or theirs elsewhere
    """

    name: str
    index: int
    steps: Points
    mean: Points
    low: Points
    high: Points
    seeds: Sequence[Curve]
    dots: Sequence[Curve] = ()


@dataclass(frozen=True)
class Panel:
    """The curves of one column.

    title: the column
    what: the quantity, in words
    lines: a line for each row that has curves in this column
    """

    title: str
    what: str
    lines: Sequence[Line]


def panels(
    curves: Sequence[Curve], rows: Sequence[str], columns: Sequence[str], what: str, smooth: int = 1
) -> list[Panel]:
    """One panel for each column that has curves, with one line for each row that has curves there.

    curves: the curves of all rows and columns
    rows, columns: their names, in order
    what: the quantity, in words
    smooth: replace every value by the mean of the last `smooth` points of its curve
    """
    said = f"{what}, mean of {smooth} points" if smooth > 1 else what
    made = [Panel(column, said, _lines(curves, rows, column, smooth)) for column in columns]
    return [panel for panel in made if panel.lines]


def _lines(curves: Sequence[Curve], rows: Sequence[str], column: str, smooth: int) -> list[Line]:
    found = []
    for index, row in enumerate(rows):
        own = [smoothed(c, smooth) for c in curves if (c.row, c.column) == (row, column)]
        if own:
            counted, dots = apart(own)
            found.append(Line(row, index, *band(counted), counted, dots))
    return found


def apart(curves: Sequence[Curve]) -> tuple[list[Curve], list[Curve]]:
    """Split curves into those for the mean, and those with a single point to which the mean would shrink."""
    long, dots = ([c for c in curves if (len(c.steps) > 1) is wanted] for wanted in (True, False))
    return (dots, []) if not long and len({dot.steps[0] for dot in dots}) == 1 else (long, dots)


def smoothed(curve: Curve, over: int) -> Curve:
    """The running mean of the last `over` points, or of fewer at the beginning."""
    if over == 1:
        return curve
    values = np.asarray(curve.values, dtype=np.float64)
    means = [float(values[max(0, end - over) : end].mean()) for end in range(1, len(values) + 1)]
    return Curve(curve.row, curve.column, curve.seed, curve.steps, means)


def disjoint(curves: Sequence[Curve]) -> bool:
    """Whether no step lies within the range of all curves."""
    return bool(curves) and max(curve.steps[0] for curve in curves) > min(curve.steps[-1] for curve in curves)


def band(curves: Sequence[Curve]) -> tuple[Points, Points, Points, Points]:
    """Steps, mean, low and high, each [points], over the range that all curves cover, which may be empty."""
    steps, values = _aligned(curves)
    if not len(steps):
        return steps, steps, steps, steps
    mean, runs = values.mean(0), len(values)
    if runs == 1:
        nothing = np.full_like(mean, np.nan)
        return steps, mean, nothing, nothing
    drawn = np.random.default_rng(SEED).multinomial(runs, np.full(runs, 1 / runs), size=REPETITIONS)
    low, high = percentile_bounds(drawn @ values / runs)
    return steps, mean, low, high


def _aligned(curves: Sequence[Curve]) -> tuple[Points, Points]:
    """Common steps [points], and values [run, points], interpolated where the steps of the curves differ."""
    if not curves:
        return np.empty(0), np.empty((0, 0))
    first = np.asarray(curves[0].steps, dtype=np.float64)
    if all(list(curve.steps) == list(curves[0].steps) for curve in curves):
        return first, np.array([curve.values for curve in curves], dtype=np.float64)
    begin, end = max(curve.steps[0] for curve in curves), min(curve.steps[-1] for curve in curves)
    steps = np.linspace(begin, end, POINTS if begin < end else int(begin == end))
    return steps, np.array([np.interp(steps, curve.steps, curve.values) for curve in curves])
