"""Expectations about the numbers of a table, as sentences that can be tested.

    ffm > gru                               in the mean over the columns
    lstm > gpt on parity, sym5              in each of these columns
    all > 0.95 on even_pairs                every row
    tape = segment_10 within 0.1            equivalent: the 90 % interval of the difference lies within 0.1 of zero
    tape = segment_10 within 10%            ... within a tenth of the right side
    ours >= sb3 within 0.1                  not inferior: the 95 % interval of the difference lies above -0.1
    scan >= loop within -90%                better by at least nine tenths of the right side
    ffm > ffm at hard on easy               beside a row in another column
    ffm > gru in mmer on parity             of another metric that the item shows, of which more is better

`>` means better, which is the smaller number where lower is better: the 95 % interval of the difference lies on that
side of zero. Intervals are Welch's t. Those of an equivalence are the two one-sided tests of Schuirmann 1987
(J. Pharmacokinet. Biopharm. 15) at 5 % each.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from math import nan
from typing import Any, Literal, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from rlmem.evidence.statistics import ANY, Contrast, Range, contrast, runs_to_decide

Scores = Mapping[tuple[str, str], NDArray[np.float64]]
"""(row, column) -> the metric of the runs that have ended, [seed]."""

Sign = Literal["<", ">", "=", ">="]
State = Literal["supported", "contradicted", "undecided", "not tested"]
ALL = "all"
FORM = re.compile(
    r"\s*(?P<left>.+?)\s*(?P<sign>>=|[<>=])\s*(?P<right>.+?)(?:\s+at\s+(?P<at>.+?))?(?:\s+within\s+(?P<within>\S+))?"
    r"(?:\s+in\s+(?P<metric>.+?))?(?:\s+on\s+(?P<on>.+?))?\s*"
)
LEVELS: Mapping[Sign, float] = {"<": 0.95, ">": 0.95, "=": 0.9, ">=": 0.95}


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
    within: for `=` the greatest difference, for `>=` by how much the left side may be worse; a fraction of the right
        side if it is `relative`
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
    seeds: how many seeds of each side would probably decide what is undecided; None if too many, or unknown
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
    seeds: int | None = None
    clause: str = ""


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
    possible: gives the values that the mean of some columns can have
    """

    scores: Scores
    higher: bool = True
    exact: bool = False
    possible: Callable[[Sequence[str]], Range] = lambda columns: ANY


def check(
    expectations: Sequence[Expectation],
    numbers: Numbers,
    rows: Sequence[str],
    columns: Sequence[str],
    peers: Sequence[str] = (),
    other: Callable[[str], Scores] = lambda metric: {},
) -> list[Finding]:
    """The findings of a table: of each expectation one for every column that it names, or one for the mean over all
    columns; and if it says `all`, these for every row.

    rows, columns: those of the budget, beside rows of `peers`; what is expected of others is not tested
    other: gives the scores of another metric, of which more is better
    """
    findings = []  # each still without the number of all
    for expectation in expectations:
        own = Numbers(other(expectation.metric), exact=numbers.exact) if expectation.metric else numbers
        known = {*expectation.rows} <= {*rows, *peers} and (not expectation.at or expectation.at in columns)
        places = [(name, [name] if name in columns else []) for name in expectation.on]
        places = places or [(columns[0] if len(columns) == 1 else "mean", [*columns])]
        for left, (where, of) in product(rows if expectation.left == ALL else [expectation.left], places):
            findings.append(partial(_finding, expectation, left, of if known else [], where, own))
    return [finding(len(findings)) for finding in findings]


def _finding(
    expectation: Expectation, left: str, columns: Sequence[str], where: str, numbers: Numbers, among: int
) -> Finding:
    """The finding about the mean of some columns of a row, none if the budget lacks them; one of `among` in its table.

    A claim is all its expectations together. So each is supported at its own level, while the chance that any of those
    that are true, or about what makes no difference, is contradicted must be small: each gets its share (Bonferroni).
    """
    text = expectation.text.partition(" on ")[0]
    text = text.replace(ALL, left) if expectation.left == ALL else text
    finding = Finding(text, where, expectation.sign, clause=expectation.clause)
    beside, right = [expectation.at] if expectation.at else columns, expectation.right
    scores, higher, exact, possible = numbers
    ours, theirs = side_of(scores, left, columns, exact), side_of(scores, right, beside, exact)
    if not columns or ours is None or theirs is None:
        return finding
    level = LEVELS[expectation.sign]
    against = 1 - (1 - level) / among
    margins = list(_margins(expectation, ours, theirs, higher))
    difference, values = combined((1, ours), (-1, theirs)), [combined((1, side)).value for side in (ours, theirs)]
    (least, most), (low, high) = possible(columns), possible(beside) if isinstance(right, str) else (right, right)
    low, high = difference.bounds(level, (least - high, most - low))
    finding = replace(finding, left=values[0], right=values[1], difference=difference.value, low=low, high=high)
    if all(margin.bounds(level)[0] > 0 for margin in margins):
        return replace(finding, state="supported")
    if any(margin.bounds(against)[1] < 0 for margin in margins):
        return replace(finding, state="contradicted")
    if min((*ours.numbers, *theirs.numbers), default=2) < 2:  # one run has no spread
        return finding
    return replace(finding, state="undecided", seeds=runs_to_decide(margins, level, against))


def _margins(expectation: Expectation, left: "Side", right: "Side", higher: bool) -> Iterator[Contrast]:
    """By how much the difference is on the expected side of a bound, for one or both bounds."""
    sign, within = expectation.sign, expectation.within
    better = 1 if higher != (sign == "<") else -1
    for towards in (1, -1) if sign == "=" else (better,):
        part = within * (1 if combined((1, right)).value >= 0 else -1) if expectation.relative else 0
        yield combined((towards, left), (part - towards, right), constant=0 if expectation.relative else within)


class Side(NamedTuple):
    """One side of an expectation: a number, plus samples of runs [seed] with their weights."""

    samples: Sequence[tuple[float, NDArray[np.float64]]] = ()
    number: float = 0.0

    @property
    def numbers(self) -> list[int]:
        """How many runs there are of each sample."""
        return [len(runs) for _, runs in self.samples]


def side_of(scores: Scores, row: str | float, columns: Sequence[str], exact: bool = False) -> Side | None:
    """The mean over columns of a row, or a number; None if a column has no run."""
    if not isinstance(row, str):
        return Side(number=row)
    runs = [scores.get((row, column), np.empty(0)) for column in columns]
    if not runs or not all(len(each) for each in runs):
        return None
    if exact:
        return Side(number=float(np.mean([each.mean() for each in runs])))
    return Side([(1 / len(runs), each) for each in runs])


def combined(*sides: tuple[float, Side], constant: float = 0.0) -> Contrast:
    """The sum of sides with weights, and of a constant."""
    samples = [(weight * share, runs) for weight, side in sides for share, runs in side.samples]
    return contrast(samples, constant + sum(weight * side.number for weight, side in sides))
