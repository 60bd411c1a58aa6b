"""The outcome of an experiment and its verdict: our numbers next to the paper's, and what they say about the claim."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from math import isclose
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from rlmem.evidence.expect import Finding, Numbers, Scores, Side, State, check, combined
from rlmem.evidence.experiment import Planned
from rlmem.evidence.metrics import GIVEN, in_tables, range_of
from rlmem.evidence.published import Printed, load, misprints
from rlmem.evidence.records import Curve, Record
from rlmem.evidence.registration import change
from rlmem.evidence.statistics import LEVEL, POCOCK, contrast
from rlmem.record.tables import Value

Word = Literal[
    "supported",
    "part supported",
    "matches",
    "contradicted",
    "contradicted at this scale",
    "undecided",
    "not testable here",
    "not run",
]
EXIT_CODES: dict[Word, int] = {
    "supported": 0,
    "matches": 0,
    "part supported": 10,
    "undecided": 11,
    "not testable here": 12,
    "contradicted at this scale": 13,
    "contradicted": 14,
    "not run": 15,
}
"""Verdict -> the exit code of `rlmem reproduce --judge`."""
Likeness = Literal["matches", "differs", "undecided", "not tested"]
MEAN = "mean"
"""The column that holds a row's mean over the others."""
OF_ALL = ("average", "all")
"""The names that papers print in the place of a task for such a mean."""
MARGIN = 0.5 - 1e-9
"""Our numbers are like the printed ones if they are less than half a standard deviation of the paper apart."""


@dataclass(frozen=True)
class BesidePrinted:
    """A cell of the table, or the mean of a row, beside the published number.

    ours: our mean over seeds, with the bounds of its 95 % t interval within the values that are possible, and the
        number of our runs
    paper: the printed number and its spread
    difference: our mean minus the printed one
    verdict: whether our number is like the printed one, see `_likeness`; None if nothing is published, or if the budget
        is another
    """

    row: str
    column: str
    ours: Value
    paper: Value | None = None
    difference: float | None = None
    verdict: Likeness | None = None


@dataclass(frozen=True)
class Verdict:
    """The verdict on an item: a word, the reason in a sentence, its cells, and the findings of its expectations.

    changed: a sentence if the expectations changed after the first results, with both verdicts, or if some of the seeds
        had been looked at before; else ""
    """

    word: Word
    why: str
    cells: Sequence[BesidePrinted]
    findings: Sequence[Finding]
    changed: str = ""


@dataclass(frozen=True)
class Outcome:
    """An experiment at a budget, with what has been run of it.

    records: of our runs, and of the measured ones of peers
    curves: learning curves, of the key that `rlmem.evidence.metrics.curve_key` gives
    pictures: caption -> picture of an analysis
    """

    planned: Planned
    records: Sequence[Record]
    curves: Sequence[Curve] = ()
    pictures: Mapping[str, Path] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """`<paper>/<item>`."""
        return self.planned.name

    @property
    def budget(self) -> str:
        return self.planned.budget

    @property
    def ours(self) -> list[Record]:
        """The records without those of peers."""
        return [record for record in self.records if record.row not in self.planned.experiment.peers]

    def counts(self, record: Record, metric: str | None = None) -> bool:
        """Whether a run is done and has the metric."""
        return record.state == "done" and (metric or self.planned.metric) in record.metrics

    def numbers(self, metric: str | None = None) -> Numbers:
        """The runs that count, with what is known of the metric; see `rlmem.evidence.expect`."""
        planned, wanted = self.planned, metric or self.planned.metric
        overrides = {cell.column: cell.overrides for cell in reversed(planned.cells())}
        ranges = {column: range_of(wanted, lines) for column, lines in overrides.items()}
        # An impulse response gives equal numbers in every run, since they follow from equations.
        exact = planned.run == "impulse"
        return Numbers(self.scores(metric), metric is not None or planned.higher, exact, ranges)

    def scores(self, metric: str | None = None) -> Scores:
        """(row, column) -> the metric of the runs that count, [seed], sorted by seed; see also `in_tables`."""
        wanted = metric or self.planned.metric
        runs: dict[tuple[str, str], list[float]] = defaultdict(list)
        for record in sorted(self.records, key=lambda record: record.seed):
            if self.counts(record, wanted):
                runs[record.row, record.column].append(record.metrics[wanted])
        tabled = ((cell, in_tables(wanted, values)) for cell, values in runs.items())
        return {cell: values for cell, values in tabled if len(values)}

    @cached_property
    def verdict(self) -> Verdict:
        """The verdict on what has been run so far, and marks of earlier looks and of expectations that changed."""
        verdict, before = _verdict(self), self.planned.registration.before_runs
        changed = change(self.planned.version, self.planned.registration)
        if changed is None:
            return verdict
        if before is None:
            old = "nothing was expected before"
        else:
            earlier = _verdict(replace(self, planned=self.planned.expecting(before)))
            old = f"verdict by the expectations of {before.registered[:10]}: {earlier.word} ({earlier.why})"
        marks = [changed, old, f"verdict by the present ones: {verdict.word}", verdict.changed]
        return replace(verdict, changed="; ".join(filter(None, marks)))

    def notes(self) -> list[str]:
        """A sentence for every misprint in the paper's table, and for every metric that leaves runs out."""
        numbers = _numbers(self.planned)
        ours = [misprint for misprint in (misprints() if numbers else ()) if misprint.published in numbers]
        notes = [f"misprint in {misprint.published.item}: {misprint.reason}" for misprint in ours]
        for metric in filter(GIVEN.fullmatch, (self.planned.metric, *self.planned.experiment.also)):
            out = Counter(f"{r.row} {r.column}".strip() for r in self.ours if np.isnan(r.metrics.get(metric, 0)))
            notes.append(f"{metric}: runs left out: {', '.join(f'{n} of {cell}' for cell, n in out.items()) or 'none'}")
        return notes


def _verdict(outcome: Outcome) -> Verdict:
    """The verdict on what has been run so far, by the expectations as they are now (docs/experiments.md#verdicts)."""
    planned, numbers = outcome.planned, outcome.numbers()
    experiment, scores, cells = planned.experiment, numbers.scores, planned.cells()
    peers = list(experiment.peers)
    rows, columns = (list(dict.fromkeys(getattr(cell, side) for cell in cells)) for side in ("row", "column"))
    printed = _printed(planned, columns)
    places = [(cell.row, cell.column, [cell.column]) for cell in cells]
    if len(columns) > 1 and experiment.mean:
        places += [(row, MEAN, columns) for row in rows if sum(cell.row == row for cell in cells) == len(columns)]
    places += [(row, column, [column]) for row in peers for column in columns if (row, column) in scores]

    def beside(row: str, column: str, among: Sequence[str]) -> BesidePrinted:
        """The mean over some columns, next to what is printed for it."""
        side, number = Numbers(scores).side(row, among), printed.get((row, column))
        mean = combined((planned.scale, side)) if side else contrast([], np.nan)
        least, most = (planned.scale * bound for bound in numbers.range_of_mean(among))
        low, high = mean.bounds(possible=(least, most))
        ours = Value(mean.value, low=low, high=high, n=min(side.numbers) if side else 0)
        if number is None:
            return BesidePrinted(row, column, ours)
        word = _likeness([(side, number)], planned.scale) if outcome.budget == "paper" else None
        difference = mean.value - number.mean if side else None
        return BesidePrinted(row, column, ours, Value(number.mean, number.std), difference, word)

    table = [beside(*place) for place in places]
    earlier = planned.registration.earlier(planned.seeds)
    looks = planned.registration.allowed(planned.looks)
    seen = {seed for look in earlier for seed in look.seeds} if len(earlier) >= looks else set()
    records = [record for record in outcome.records if record.seed not in seen or record.row in peers]
    counted = replace(outcome, records=records)
    tested = planned.expectations if outcome.budget != "smoke" else ()
    level = POCOCK[looks - 1]
    findings = check(tested, counted.numbers(), rows, columns, peers, counted.numbers, level, planned.tests_means)
    dates = ", ".join(look.date[:10] for look in earlier)
    mark = f"seeds {_listed(seen)} were looked at before ({dates}); the verdict counts the others only" if seen else ""
    wanted = {(cell.row, cell.column, seed) for cell in cells for seed in cell.seeds}
    if lacking := len(wanted - {record.place for record in outcome.records if outcome.counts(record)}):
        why = f"{lacking} of {len(wanted)} runs have not ended"
        ended = {r.place for r in outcome.records if r.state == "done" and not outcome.counts(r)}
        if without := len(wanted & ended):
            why = f"{without} of {len(wanted)} runs ended without the metric {planned.metric}"
        return Verdict("not run", why, table, findings, mark)
    if outcome.budget == "smoke":
        return Verdict("not testable here", "this budget only shows that it runs", table, findings)
    likeness = _likenesses(counted.scores(), printed, rows, columns, planned.scale) if outcome.budget == "paper" else {}
    return Verdict(*_word(planned, findings, likeness), table, findings, mark)


def _listed(seeds: Collection[int]) -> str:
    """Seeds in order, such as `0 to 2, 7`."""
    runs = [[*run] for _, run in groupby(enumerate(sorted(seeds)), lambda pair: pair[1] - pair[0])]
    return ", ".join(f"{run[0][1]} to {run[-1][1]}" if len(run) > 1 else f"{run[0][1]}" for run in runs)


def _word(planned: Planned, findings: Sequence[Finding], likeness: Mapping[str, Likeness]) -> tuple[Word, str]:
    """The verdict's word and reason for an item whose runs have all ended."""
    contradicted: Word = "contradicted" if planned.at_full_scale else "contradicted at this scale"
    by = {state: [finding for finding in findings if finding.state == state] for state in get_args(State)}
    among = f"{len(findings)} expectation{'s' * (len(findings) != 1)}"
    if failed := by["contradicted"]:
        each = "; ".join(f"{f.text} ({f.where or 'all runs'}: {f.left:.3g} and {f.right:.3g})" for f in failed)
        return contradicted, f"{len(failed)} of {among}: {each}"
    of = {word: [row for row, one in likeness.items() if one == word] for word in dict.fromkeys(likeness.values())}
    counted = ", ".join(f"{len(rows)} {word} ({', '.join(rows)})" for word, rows in of.items())
    numbers = f"the printed numbers of {len(likeness)} row{'s' * (len(likeness) != 1)}"
    if set(of) == {"matches"}:
        return "matches", f"{numbers} lie within half of the paper's standard deviation of ours"
    beside = f"; beside {numbers}: {counted}" if likeness else ""
    if undecided := by["undecided"]:
        each = "; ".join(f"{f.text} ({f.where or 'all runs'}: {_open(f)})" for f in undecided)
        return "undecided", f"{len(undecided)} of {among}: {each}{beside}"
    parts = [(clause.clause, False) for clause in planned.untestable]
    parts += [(f.clause or f"{f.text} {f.where}", f.state != "not tested") for f in findings]
    tested, clauses = {clause for clause, tested in parts if tested}, {clause for clause, _ in parts}
    few = 2 * len(tested) <= len(clauses) or 2 * sum(tested for _, tested in parts) <= len(parts)
    left_out = f"; {len(clauses - tested)} of {len(clauses)} clauses are not tested here" if clauses - tested else ""
    if held := by["supported"]:
        return "part supported" if few else "supported", f"{len(held)} of {among}{left_out}{beside}"
    if of and not findings:
        return (contradicted if "differs" in of else "undecided"), f"{numbers}: {counted}"
    if findings:
        return "not testable here", f"none of {among} can be tested with these runs{beside}"
    return "not testable here", "nothing is expected of these numbers at this budget"


def _open(finding: Finding) -> str:
    """What an undecided finding has: its interval, its runs, and the seeds that would decide it."""
    parts = [f"between {finding.low:.3g} and {finding.high:.3g}", f"{finding.runs} runs are so" if finding.runs else ""]
    parts += [f"about {finding.needed} new seeds would decide"] if finding.needed else []
    return "; ".join(filter(None, parts))


def _numbers(planned: Planned) -> list[Printed]:
    """The paper's numbers that belong to the item."""
    where = planned.experiment.published
    return [n for n in load(where.paper, where.item) if where.metric in (None, n.metric)] if where else []


def _printed(planned: Planned, columns: Sequence[str]) -> dict[tuple[str, str], Printed]:
    """Our (row, column) -> the published number; at column MEAN the one for all tasks, if `columns` has all."""
    where, numbers = planned.experiment.published, _numbers(planned)
    if where is None:
        return {}
    theirs = {(number.model, number.task): number for number in numbers}
    tasks = {column: where.columns.get(column, column) for column in planned.experiment.columns}
    places = list(tasks.items())
    whole = len(columns) == len(tasks) and {number.task for number in numbers} <= {*tasks.values(), *OF_ALL}
    places += [(MEAN, task) for task in OF_ALL if whole]
    return {
        (row, column): number
        for row in planned.rows
        for column, task in places
        if (number := theirs.get((where.rows.get(row, row), task)))
    }


def _likenesses(
    scores: Scores, printed: Mapping[tuple[str, str], Printed], rows: Sequence[str], columns: list[str], scale: float
) -> dict[str, Likeness]:
    """Row -> whether its numbers are like those printed for its cells, or else for its mean, of which one must be.

    They are not if one of them differs, at a level that allows for their number.
    """
    likeness: dict[str, Likeness] = {}
    for row in rows:
        pairs = [([column], number) for column in columns if (number := printed.get((row, column)))]
        if mean := printed.get((row, MEAN)):
            pairs = pairs or [(columns, mean)]
        if pairs:
            sides = [(Numbers(scores).side(row, columns), number) for columns, number in pairs]
            level = 1 - (1 - LEVEL) / len(sides)
            single = [_likeness([side], scale, level) for side in sides]
            likeness[row] = "differs" if "differs" in single else _likeness(sides, scale)
    return likeness


def _likeness(pairs: Sequence[tuple[Side | None, Printed]], scale: float, level: float = LEVEL) -> Likeness:
    """Whether means are on average like printed ones: the equivalence test of two one-sided tests at 2.5 % each.

    pairs: the runs of one of our means, and what is printed for it

    Differences are in printed standard deviations, in ours where none but 0 is printed, and must be within MARGIN.
    """
    sides, constant = [], 0.0
    for side, number in pairs:
        if side is None or min(side.numbers) < 2:
            return "not tested"
        ours = combined((scale, side))
        if spread := number.std or sum(ours.variances) ** 0.5:
            sides.append((scale / spread / len(pairs), side))
            constant -= number.mean / spread / len(pairs)
        elif not isclose(ours.value, number.mean):
            return "differs"
    low, high = combined(*sides, constant=constant).bounds(level)
    if low > -MARGIN and high < MARGIN:
        return "matches"
    return "differs" if low >= MARGIN or high <= -MARGIN else "undecided"
