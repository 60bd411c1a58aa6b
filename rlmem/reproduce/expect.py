"""Expectations about the numbers of a table, as sentences that can be checked.

    ffm > gru                               in the mean over the columns
    lstm > gpt on parity, sym5              in each of these columns
    all > 0.95 on even_pairs                every row
    tape = segment_10 within 0.1            the difference is at most 0.1
    tape = segment_10 within 10%            the difference is at most a tenth of the right side
    ours >= sb3 within 0.1                  not inferior: the 95 % interval of the difference lies above -0.1

`>` means better, which is the smaller number where lower is better. `>=` is about an interval, the others are about
means. Its interval is Welch's t, since a bootstrap's of few runs is too narrow to conclude from.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from math import isfinite, isnan, nan
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from rlmem.stats import bootstrap, mean, percentile_bounds, welch_bounds
from rlmem.stats.resampling import REPETITIONS

Scores = Mapping[tuple[str, str], NDArray[np.float64]]
"""(row, column) -> the metric of the runs that have ended, [seed]."""

Sign = Literal["<", ">", "=", ">="]
State = Literal["holds", "fails", "undecided", "not run"]
ALL = "all"
FORM = re.compile(
    r"\s*(?P<left>.+?)\s*(?P<sign>>=|[<>=])\s*(?P<right>.+?)(?:\s+within\s+(?P<within>\S+))?(?:\s+on\s+(?P<on>.+?))?\s*"
)


@dataclass(frozen=True)
class Expectation:
    """An expected relation between two rows, or between a row and a number.

    left, right: a row or ALL, and a row or a number
    within: for `=` the greatest difference, for `>=` by how much the left side may be worse; a fraction of the right
        side if it is `relative`
    on: the columns; () for the mean over all of them
    """

    text: str
    left: str
    sign: Sign
    right: str | float
    within: float = 0.0
    on: tuple[str, ...] = ()
    relative: bool = False

    @property
    def rows(self) -> tuple[str, ...]:
        return tuple(name for name in (self.left, self.right) if isinstance(name, str) and name != ALL)


@dataclass(frozen=True)
class Finding:
    """The result of checking an expectation.

    text: the expectation, with this row in place of `all`
    where: the column, or `mean`
    left, right: both sides
    difference: left minus right, with `low` and `high`, the bounds of its 95 % interval, NaN with one seed
    state: undecided, of `>=` alone: the interval contains what is tolerated, so that more runs are needed
    """

    text: str
    where: str
    left: float
    right: float
    difference: float
    low: float
    high: float
    state: State
    sign: Sign


def parse(text: Any) -> Expectation:
    """The expectation that a sentence states. Raises ValueError for anything else."""
    found = FORM.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise ValueError("expected `ROW > ROW`, `ROW > NUMBER` or `ROW = ROW within NUMBER`, with `on COLUMN, ...`")
    right: str | float = found["right"]
    with suppress(ValueError):
        right = float(right)
    relative = (found["within"] or "").endswith("%")
    within = float((found["within"] or "0").removesuffix("%")) / (100 if relative else 1)
    if (sign := found["sign"]) in ("=", ">=") and not within:
        raise ValueError(f"`{sign}` needs `within NUMBER`; e.g. tape {sign} segment within 0.1")
    on = tuple(name.strip() for name in (found["on"] or "").split(",") if name.strip())
    return Expectation(text, found["left"], cast(Sign, found["sign"]), right, within, on, relative)


def check(
    expectation: Expectation,
    scores: Scores,
    rows: Sequence[str],
    columns: Sequence[str],
    higher: bool,
    rng: np.random.Generator,
    peers: Sequence[str] = (),
) -> Iterator[Finding]:
    """One finding for each column that the expectation names, or one for the mean; for every row if it says `all`.

    Rows and columns are those of the budget, beside rows of peers; there is nothing to find about others.
    """
    if not set(expectation.rows) <= {*rows, *peers}:
        return
    lefts = rows if expectation.left == ALL else [expectation.left]
    named: list[Sequence[str]] = [[column] for column in expectation.on if column in columns]
    for left, place in product(lefts, named if expectation.on else [columns]):
        sign, text = expectation.sign, expectation.text.partition(" on ")[0]
        text = text.replace(ALL, left) if expectation.left == ALL else text
        where = place[0] if len(place) == 1 else "mean"
        ours, theirs = across(scores, left, place, rng), across(scores, expectation.right, place, rng)
        if ours is None or theirs is None:
            yield Finding(text, where, nan, nan, nan, nan, nan, "not run", sign)
            continue
        difference = ours[0] - theirs[0]
        bound = expectation.within * (abs(theirs[0]) if expectation.relative else 1)
        if sign == ">=":
            low, high = welch(scores, left, expectation.right, place)
            state = _not_inferior(difference, *((low, high) if higher else (-high, -low)), bound)
        else:
            low, high = map(float, percentile_bounds(ours[1] - theirs[1]))
            better = difference if higher else -difference
            holds = {">": better > 0, "<": better < 0, "=": abs(difference) <= bound}[sign]
            state = "holds" if holds else "fails"
        yield Finding(text, where, ours[0], theirs[0], difference, low, high, state, sign)


def _not_inferior(difference: float, low: float, high: float, margin: float) -> State:
    """What the interval of how much better the left side is says of its being worse by no more than a margin.

    One run has no interval, and says nothing. A difference that is not finite, of a run that diverged, fails.
    """
    if isnan(low):
        return "not run" if isfinite(difference) else "fails"
    return "holds" if low > -margin else "fails" if high < -margin else "undecided"


def welch(scores: Scores, left: str, right: str | float, columns: Sequence[str]) -> tuple[float, float]:
    """The bounds of Welch's interval of the mean over columns of a row, minus that of another row or a number."""
    known = 0.0 if isinstance(right, str) else right
    ours, theirs = ([scores[row, c] for c in columns] if isinstance(row, str) else [] for row in (left, right))
    low, high = welch_bounds(ours, theirs)
    return low - known, high - known


def across(
    scores: Scores, row: str | float, columns: Sequence[str], rng: np.random.Generator
) -> tuple[float, NDArray[np.float64]] | None:
    """The mean over columns of the mean over seeds, and its bootstrap replicates (NaN where a cell has one run).

    Seeds are resampled within each column. The result is None if a column has no run. A number stands for itself.
    """
    if not isinstance(row, str):
        return row, np.full(REPETITIONS, row)
    runs = [scores.get((row, column), np.empty(0)) for column in columns]
    if not runs or not all(len(run) for run in runs):
        return None
    draws = [bootstrap(run, mean, rng=rng) if len(run) > 1 else np.full(REPETITIONS, nan) for run in runs]
    return float(np.mean([run.mean() for run in runs])), np.mean(draws, axis=0)
