"""Expectations about the numbers of a table, as sentences that can be checked.

    ffm > gru                               in the mean over the columns
    lstm > gpt on parity, sym5              in each of these columns
    all > 0.95 on even_pairs                every row
    tape = segment_10 within 0.1            the difference is at most 0.1
    tape = segment_10 within 10%            the difference is at most a tenth of the right side

`>` means better, which is the smaller number where lower is better.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rlmem.stats import bootstrap, mean, percentile_bounds
from rlmem.stats.resampling import REPETITIONS

Scores = Mapping[tuple[str, str], NDArray[np.float64]]
"""(row, column) -> the metric of the runs that have ended, [seed]."""

ALL = "all"
FORM = re.compile(
    r"\s*(?P<left>.+?)\s*(?P<sign>[<>=])\s*(?P<right>.+?)(?:\s+within\s+(?P<within>\S+))?(?:\s+on\s+(?P<on>.+?))?\s*"
)


@dataclass(frozen=True)
class Expectation:
    """An expected relation between two rows, or between a row and a number.

    text: the sentence as it was written
    left: a row, or ALL
    sign: the relation
    right: a row, or a number
    within: the greatest difference for `=`
    on: the columns; () for the mean over all of them
    relative: whether `within` is a fraction of the right side
    """

    text: str
    left: str
    sign: Literal["<", ">", "="]
    right: str | float
    within: float = 0.0
    on: tuple[str, ...] = ()
    relative: bool = False

    @property
    def rows(self) -> tuple[str, ...]:
        named = [self.left] + ([self.right] if isinstance(self.right, str) else [])
        return tuple(name for name in named if name != ALL)


@dataclass(frozen=True)
class Finding:
    """The result of checking an expectation.

    text: the expectation, with this row in place of `all`
    where: the column, or `mean`
    left: the left side
    right: the right side
    difference: left minus right
    low: lower bound of the 95 % interval of the difference, NaN with one seed
    high: its upper bound
    state: whether the expectation holds
    sign: the expected relation
    """

    text: str
    where: str
    left: float
    right: float
    difference: float
    low: float
    high: float
    state: Literal["holds", "fails", "not run"]
    sign: Literal["<", ">", "="]


def parse(text: str) -> Expectation:
    """The expectation that a sentence states. Raises ValueError for a sentence of another form."""
    found = FORM.fullmatch(text)
    if found is None:
        raise ValueError("expected `ROW > ROW`, `ROW > NUMBER` or `ROW = ROW within NUMBER`, with `on COLUMN, ...`")
    on = tuple(name.strip() for name in (found["on"] or "").split(",") if name.strip())
    relative = (found["within"] or "").endswith("%")
    within = float((found["within"] or "0").removesuffix("%")) / (100 if relative else 1)
    sign = found["sign"]
    if sign == "=" and not within:
        raise ValueError("`=` needs `within NUMBER`; e.g. tape = segment within 0.1")
    assert sign in ("<", ">", "=")
    return Expectation(text, found["left"], sign, _number(found["right"]), within, on, relative)  # type: ignore[arg-type]


def check(
    expectation: Expectation,
    scores: Scores,
    rows: Sequence[str],
    columns: Sequence[str],
    higher: bool,
    rng: np.random.Generator,
) -> list[Finding]:
    """One finding for each column that the expectation names, or one for the mean; for every row if it says `all`.

    rows: the rows of the budget; others have no findings
    columns: the columns of the budget; others have no findings
    """
    if not set(expectation.rows) <= set(rows):
        return []
    lefts = rows if expectation.left == ALL else [expectation.left]
    named: list[Sequence[str]] = [[column] for column in expectation.on if column in columns]
    places = named if expectation.on else [columns]
    return [
        _found(expectation, left, expectation.right, scores, place, higher, rng) for left in lefts for place in places
    ]


def _found(
    expectation: Expectation,
    left: str,
    right: str | float,
    scores: Scores,
    place: Sequence[str],
    higher: bool,
    rng: np.random.Generator,
) -> Finding:
    said = expectation.text.partition(" on ")[0]
    text = said.replace(ALL, left) if expectation.left == ALL else said
    where = place[0] if len(place) == 1 else "mean"
    ours = across(scores, left, place, rng)
    theirs = across(scores, right, place, rng) if isinstance(right, str) else _exactly(right)
    if ours is None or theirs is None:
        nan = float("nan")
        return Finding(text, where, nan, nan, nan, nan, nan, "not run", expectation.sign)
    difference, draws = ours[0] - theirs[0], ours[1] - theirs[1]
    low, high = map(float, percentile_bounds(draws))
    better = difference if higher else -difference
    bound = expectation.within * (abs(theirs[0]) if expectation.relative else 1)
    holds = {">": better > 0, "<": better < 0, "=": abs(difference) <= bound}[expectation.sign]
    state: Literal["holds", "fails"] = "holds" if holds else "fails"
    return Finding(text, where, ours[0], theirs[0], difference, low, high, state, expectation.sign)


def across(
    scores: Scores, row: str, columns: Sequence[str], rng: np.random.Generator
) -> tuple[float, NDArray[np.float64]] | None:
    """The mean over columns of the mean over seeds, and its bootstrap replicates (NaN where a cell has one run).

    Seeds are resampled within each column. The result is None if a column has no run.
    """
    runs = [scores.get((row, column), np.empty(0)) for column in columns]
    if not runs or not all(len(run) for run in runs):
        return None
    draws = [bootstrap(run, mean, rng=rng) if len(run) > 1 else np.full(REPETITIONS, np.nan) for run in runs]
    return float(np.mean([run.mean() for run in runs])), np.mean(draws, axis=0)


def _exactly(number: float) -> tuple[float, NDArray[np.float64]]:
    return number, np.full(REPETITIONS, number)


def _number(text: str) -> str | float:
    try:
        return float(text)
    except ValueError:
        return text
