"""Expectations about the numbers of a table, as sentences that can be tested.

    ffm > gru                               in the mean over the columns
    lstm > gpt on parity, sym5              in each of these columns
    all > 0.95 on even_pairs                every row
    tape = segment_10 within 0.1            equivalent: the 95 % interval of the difference lies within 0.1 of zero
    tape = segment_10 within 10%            ... within a tenth of the metric's range, or else of the right side
    ours >= sb3 within 0.1                  not inferior: the 95 % interval of the difference lies above -0.1
    scan >= loop within -90%                better by at least nine tenths of the right side
    ffm > ffm at hard on easy               beside a row in another column
    ffm > gru in mmer on parity             of another metric that the item shows, of which more is better

`>` means better, which is the smaller number where lower is better: the 95 % interval of the difference lies on that
side of zero. Intervals are Welch's t; an equivalence is the two one-sided tests of Schuirmann 1987 (J. Pharmacokinet.
Biopharm. 15) at 2.5 % each. Few equal runs say little of rarer ones. So where a row is compared with a number, or has a
margin, the interval also allows for one more run of each row, at the end of the metric's range.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from math import comb, isfinite, nan, prod
from typing import Any, Literal, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from rlmem.evidence.statistics import ANY, LEVEL, Contrast, Range, Sample, contrast, runs_to_decide

Scores = Mapping[tuple[str, str], NDArray[np.float64]]
"""(row, column) -> the metric of the runs that have ended, [seed]."""

Sign = Literal["<", ">", "=", ">="]
State = Literal["supported", "contradicted", "undecided", "not tested"]
ALL = "all"
FORM = re.compile(
    r"\s*(?P<left>.+?)\s*(?P<sign>>=|[<>=])\s*(?P<right>.+?)(?:\s+at\s+(?P<at>.+?))?(?:\s+within\s+(?P<within>\S+))?"
    r"(?:\s+in\s+(?P<metric>.+?))?(?:\s+on\s+(?P<on>.+?))?\s*"
)
NOT_TESTABLE = "not testable"


@dataclass(frozen=True, kw_only=True)
class Expected:
    """Something that a claim says; `clause` is its part of the claim, "" for the whole."""

    clause: str = ""


@dataclass(frozen=True, kw_only=True)
class Untestable(Expected):
    """A clause that no number of the item can support or contradict, with the reason."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class Expectation(Expected):
    """An expected relation between two rows, or between a row and a number.

    left, right: a row or ALL, and a row or a number
    within: for `=` the greatest difference, for `>=` by how much the left side may be worse; if it is `relative`, a
        fraction of the metric's range, or of the right side where the range is not known
    on: the columns; () for the mean over all of them
    at: the column of the right side; "" for that of the left side
    metric: another metric than that of the item; "" for that
    """

    text: str
    left: str
    sign: Sign
    right: str | float
    within: float = 0.0
    on: tuple[str, ...] = ()
    relative: bool = False
    at: str = ""
    metric: str = ""

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.on, self.at) if self.at else self.on

    @property
    def rows(self) -> tuple[str, ...]:
        return tuple(name for name in (self.left, self.right) if isinstance(name, str) and name != ALL)


@dataclass(frozen=True)
class Finding:
    """The result of testing an expectation.

    clause: the part of the claim that it tests
    text: the expectation, with this row in place of `all`
    where: the column, or `mean`
    left, right: both sides
    difference: left minus right, with `low` and `high`, the bounds of its interval, NaN where there is none
    state: supported, if the interval excludes whatever is not expected; contradicted, if one that is wide enough for
        all findings of its table excludes what is expected; not tested, where runs are lacking for an interval
    runs: for a comparison with a number, the runs of the left side that are as expected, such as `3 of 3`
    seeds: how many seeds of each side would probably decide what is undecided, at least and at most; None if too many,
        or unknown
    """

    text: str
    where: str
    sign: Sign
    left: float = nan
    right: float = nan
    difference: float = nan
    low: float = nan
    high: float = nan
    state: State = "not tested"
    runs: str = ""
    seeds: tuple[int, int | None] | None = None
    clause: str = ""

    @property
    def needed(self) -> str:
        """The seeds that would decide, such as `12 to 60` or `12 or more`; "" if they are not known."""
        if self.seeds is None:
            return ""
        least, most = self.seeds
        return f"{least} or more" if most is None else f"{least} to {most}" if most > least else f"{least}"


def parse_all(entries: Any) -> tuple[Expected, ...]:
    """What a list expects: expectations, or mappings from clauses of the claim to their expectations.

        - ffm > gru
        - FFM forgets: [ffm > no_decay, gru > no_decay]
        - Traces are learnt: not testable, since the paper gives no numbers

    Raises ValueError for anything else.
    """
    expected: list[Expected] = []
    for part in entries if isinstance(entries, list | tuple) else [entries]:
        for clause, texts in part.items() if isinstance(part, Mapping) else [("", [part])]:
            if isinstance(texts, list):
                expected += [text if isinstance(text, Expected) else parse(text, clause) for text in texts]
            elif isinstance(texts, str) and (reason := texts.partition(f"{NOT_TESTABLE}, ")[2]):
                expected.append(Untestable(clause=clause, reason=reason))
            else:
                raise ValueError(f"`{clause}`: expected a list of expectations, or `{NOT_TESTABLE}, REASON`")
    return tuple(expected)


def parse(text: Any, clause: str = "") -> Expectation:
    """The expectation that a sentence states. Raises ValueError for anything else."""
    match = FORM.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        example = "`ROW > ROW`, `ROW > NUMBER` or `ROW = ROW within NUMBER`"
        raise ValueError(f"`{text}`: expected {example}, then `in METRIC`, `on COLUMN, ...`; or `ROW > ROW at COLUMN`")
    right: str | float = match["right"]
    with suppress(ValueError):
        right = float(right)
    parts = match.groupdict("")
    relative, sign = parts["within"].endswith("%"), cast(Sign, parts["sign"])
    within = float(parts["within"].removesuffix("%") or 0) / (100 if relative else 1)
    if sign in ("=", ">=") and not within:
        raise ValueError(f"`{text}`: `{sign}` needs `within NUMBER`; e.g. tape {sign} segment within 0.1")
    if sign == "=" and within < 0:
        raise ValueError(f"`{text}`: nothing is less than nothing apart; e.g. tape = segment within 0.1")
    if parts["at"] and not (isinstance(right, str) and parts["on"]):
        raise ValueError(
            f"`{text}`: `at COLUMN` is of a row, beside `on COLUMN, ...`; e.g. tape > tape at hard on easy"
        )
    on = tuple(name.strip() for name in parts["on"].split(",") if name.strip())
    other = {"at": parts["at"], "metric": parts["metric"], "clause": clause}
    return Expectation(
        text=text, left=parts["left"], sign=sign, right=right, within=within, relative=relative, on=on, **other
    )


class Numbers(NamedTuple):
    """The numbers that expectations are tested with.

    scores: the runs; what has none is not tested
    higher: whether more is better
    exact: whether every run gives the same number, so that one is enough
    possible: the range of the values that a run can have, by column; a column that it lacks may have any value
    """

    scores: Scores
    higher: bool = True
    exact: bool = False
    possible: Mapping[str, Range] = {}

    def side(self, row: str | float, columns: Sequence[str]) -> "Side | None":
        """The mean over columns of a row, or a number; None if a column has no run."""
        if not isinstance(row, str):
            return Side(number=row)
        runs = [self.scores.get((row, column), np.empty(0)) for column in columns]
        if not runs or not all(len(each) for each in runs):
            return None
        if self.exact:
            return Side(number=float(np.mean([each.mean() for each in runs])))
        ranges = [self.possible.get(column, ANY) for column in columns]
        return Side([Sample(1 / len(runs), each, possible) for each, possible in zip(runs, ranges, strict=True)])

    def range_of_mean(self, columns: Sequence[str]) -> Range:
        """The range of the mean over columns of a row."""
        least, most = zip(*(self.possible.get(column, ANY) for column in columns), strict=True)
        return sum(least) / len(columns), sum(most) / len(columns)


class Side(NamedTuple):
    """One side of an expectation: a number, plus samples of runs [seed] with their weights."""

    samples: Sequence[Sample] = ()
    number: float = 0.0

    @property
    def numbers(self) -> list[int]:
        """The number of runs of each sample."""
        return [len(sample.runs) for sample in self.samples]


def combined(*sides: tuple[float, Side], constant: float = 0.0) -> Contrast:
    """The sum of sides with weights, and of a constant."""
    samples = [sample._replace(weight=weight * sample.weight) for weight, side in sides for sample in side.samples]
    return contrast(samples, constant + sum(weight * side.number for weight, side in sides))


def check(
    expectations: Sequence[Expectation],
    numbers: Numbers,
    rows: Sequence[str],
    columns: Sequence[str],
    peers: Sequence[str] = (),
    other: Callable[[str], Numbers] = lambda metric: Numbers({}),
    level: float = LEVEL,
    means: bool = True,
) -> list[Finding]:
    """The findings of a table: of each expectation one for every column that it names, or one for the mean over all
    columns; and if it says `all`, these for every row.

    rows, columns: those of the budget, beside rows of `peers`; what is expected of others is not tested
    other: gives the numbers of another metric, of which more is better
    level: of the intervals
    means: whether a mean over these columns is what the expectations are about; else it is not tested
    """
    planned = []
    for expectation in expectations:
        own = other(expectation.metric) if expectation.metric else numbers
        known = {*expectation.rows} <= {*rows, *peers} and (not expectation.at or expectation.at in columns)
        places = [(name, [name] if name in columns else []) for name in expectation.on]
        places = places or [(columns[0] if len(columns) == 1 else "mean", [*columns] if means else [])]
        for left, (where, of) in product(rows if expectation.left == ALL else [expectation.left], places):
            planned.append((expectation, left, of if known else [], where, own))
    among = sum(bool(of) for _, _, of, _, _ in planned)
    return [_finding(*one, level, among) for one in planned]


def _finding(
    expectation: Expectation,
    left: str,
    columns: Sequence[str],
    where: str,
    numbers: Numbers,
    level: float,
    among: int,
) -> Finding:
    """The finding about the mean of some columns of a row, none if the budget lacks them; one of `among` in its table.

    A claim is all its expectations together. So each is supported at its own level, while the chance that any of those
    that are true, or about what makes no difference, is contradicted must be small: each gets its share (Bonferroni).
    Between two rows a decision needs so many runs that chance hardly gives their order, for a contradiction in half of
    that share.
    """
    text = expectation.text.partition(" on ")[0]
    text = text.replace(ALL, left) if expectation.left == ALL else text
    finding = Finding(text, where, expectation.sign, clause=expectation.clause)
    beside, right = [expectation.at] if expectation.at else columns, expectation.right
    ours, theirs = numbers.side(left, columns), numbers.side(right, beside)
    if not columns or ours is None or theirs is None:
        return finding
    against = 1 - (1 - level) / among
    span = numbers.range_of_mean(columns)
    margins = list(_margins(expectation, ours, theirs, numbers.higher, span))
    unequal = len({*ours.numbers, *theirs.numbers}) > 1
    one_more = unequal or expectation.sign in ("=", ">=") or not isinstance(right, str)
    low, high = numbers.range_of_mean(beside) if isinstance(right, str) else (right, right)
    difference, values = combined((1, ours), (-1, theirs)), [combined((1, side)).value for side in (ours, theirs)]
    low, high = difference.bounds(level, (span[0] - high, span[1] - low), one_more)
    finding = replace(finding, left=values[0], right=values[1], difference=difference.value, low=low, high=high)
    if not isinstance(right, str) and len(ours.samples) == 1:
        runs = [Side(number=float(run)) for run in ours.samples[0].runs]
        fits = [all(m.value > 0 for m in _margins(expectation, run, theirs, numbers.higher, span)) for run in runs]
        finding = replace(finding, runs=f"{sum(fits)} of {len(fits)}")
    by_chance = prod(1 / comb(n + m, n) for n, m in zip(ours.numbers, theirs.numbers, strict=False))
    enough = lambda share: not (ours.samples and theirs.samples) or by_chance < 1.001 * share  # noqa: E731
    if enough(1 - level) and all(margin.bounds(level, one_more=one_more)[0] > 0 for margin in margins):
        return replace(finding, state="supported")
    if enough((1 - against) / 2) and any(margin.bounds(against, one_more=one_more)[1] < 0 for margin in margins):
        return replace(finding, state="contradicted")
    if min((*ours.numbers, *theirs.numbers), default=2) < 2:  # one run has no spread
        return finding
    return replace(finding, state="undecided", seeds=runs_to_decide(margins, level, against, one_more))


def _margins(expectation: Expectation, left: Side, right: Side, higher: bool, span: Range) -> Iterator[Contrast]:
    """By how much the difference is on the expected side of a bound, for one or both bounds.

    span: the range of the metric, of which relative margins are a part if both ends are finite
    """
    sign, within, width = expectation.sign, expectation.within, span[1] - span[0]
    relative = expectation.relative and not isfinite(width)
    margin = within * width if expectation.relative and not relative else within
    better = 1 if higher != (sign == "<") else -1
    for towards in (1, -1) if sign == "=" else (better,):
        part = within * (1 if combined((1, right)).value >= 0 else -1) if relative else 0
        yield combined((towards, left), (part - towards, right), constant=0 if relative else margin)
