"""Learning curves of several seeds as a mean with its interval."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rlmem.evidence.outcome import Curve
from rlmem.stats import contrast
from rlmem.stats.welch import ANY, Range

Points = NDArray[np.float64]
POINTS = 200
"""The number of points of a mean over curves with different steps."""


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
    what: str,
    smooth: int = 1,
    ranges: Mapping[str, Range] | None = None,
) -> list[Panel]:
    """One panel for each column that has curves.

    smooth: every value becomes the mean of as many last points
    ranges: the values that are possible in a column, within which intervals stay; any, where it is not named
    """
    said, made = f"{what}, mean of {smooth} points" if smooth > 1 else what, []
    for column in columns:
        lines = []
        for index, row in enumerate(rows):
            if own := [smoothed(c, smooth) for c in curves if (c.row, c.column) == (row, column)]:
                counted, dots = apart(own)
                lines.append(Line(row, index, *band(counted, (ranges or {}).get(column, ANY)), counted, dots))
        if lines:
            made.append(Panel(column, said, lines))
    return made


def apart(curves: Sequence[Curve]) -> tuple[list[Curve], list[Curve]]:
    """Split curves into those for the mean, and those with a single point to which the mean would shrink."""
    long, dots = ([c for c in curves if (len(c.steps) > 1) is wanted] for wanted in (True, False))
    return (dots, []) if not long and len({dot.steps[0] for dot in dots}) == 1 else (long, dots)


def smoothed(curve: Curve, over: int) -> Curve:
    """The running mean of the last `over` points, or of fewer at the beginning."""
    if over == 1:
        return curve
    values = np.asarray(curve.values, dtype=np.float64)
    ends = range(1, len(values) + 1)
    return replace(curve, values=[float(values[max(0, end - over) : end].mean()) for end in ends])


def disjoint(curves: Sequence[Curve]) -> bool:
    """Whether no step lies within the range of all curves."""
    return bool(curves) and max(curve.steps[0] for curve in curves) > min(curve.steps[-1] for curve in curves)


def band(curves: Sequence[Curve], possible: Range = ANY) -> tuple[Points, Points, Points, Points]:
    """Steps, mean, low and high, each [points], over the range of all curves; interpolated where their steps differ.

    possible: the values that a curve can have, within which the interval stays
    """
    nothing = np.empty(0)
    if not curves or disjoint(curves):
        return nothing, nothing, nothing, nothing
    if all(list(curve.steps) == list(curves[0].steps) for curve in curves):
        steps = np.asarray(curves[0].steps, dtype=np.float64)
        values = np.array([curve.values for curve in curves], dtype=np.float64)
    else:
        begin, end = max(curve.steps[0] for curve in curves), min(curve.steps[-1] for curve in curves)
        steps = np.linspace(begin, end, POINTS if begin < end else 1)
        values = np.array([np.interp(steps, curve.steps, curve.values) for curve in curves])
    low, high = zip(*(contrast([(1, point)]).bounds(possible=possible) for point in values.T), strict=True)
    return steps, values.mean(0), np.array(low), np.array(high)
