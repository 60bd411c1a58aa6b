"""The verdict: our numbers beside the paper's, and whether the claim holds."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from rlmem.reproduce.cells import cells
from rlmem.reproduce.expect import Finding, Scores, across, check
from rlmem.reproduce.outcome import Outcome
from rlmem.reproduce.published import Printed, load, misprints
from rlmem.reproduce.spec import Experiment
from rlmem.stats import percentile_bounds
from rlmem.stats.resampling import SEED

Word = Literal["matches", "direction holds", "undecided", "differs", "not run"]
MEAN = "mean"
"""The column that holds a row's mean over the others."""
OF_ALL = ("average", "all")
"""The names that papers print in the place of a task for such a mean."""
TablePlace = tuple[str, str, list[str]]
"""A place in the table: the row and column of a cell or of the mean of a row, and the columns that it is about."""


@dataclass(frozen=True)
class Compared:
    """A cell beside the published number.

    seeds: the number of our runs
    mean: our mean over seeds, with `low` and `high`, the bounds of its 95 % bootstrap interval
    published, published_std: the printed number and its spread
    difference: our mean minus the printed one
    verdict: `matches` if the published number lies within our interval, widened by its own spread; None if nothing is
        published, if the budget is another, or if one run has no interval
    """

    row: str
    column: str
    seeds: int
    mean: float
    low: float
    high: float
    published: float | None = None
    published_std: float | None = None
    difference: float | None = None
    verdict: Literal["matches", "differs", "not run"] | None = None


@dataclass(frozen=True)
class Verdict:
    """The verdict on an item: a word, the reason in a sentence, its cells, and the findings of its expectations."""

    word: Word
    why: str
    cells: Sequence[Compared]
    findings: Sequence[Finding]


def judge(outcome: Outcome) -> Verdict:
    """The verdict on what has been run so far.

    `not run` until every planned run has ended, and always at the budget `smoke`; `differs` if an expectation does not
    hold; `undecided` if the interval of one allows either; `matches` at the budget `paper` if there is a published
    number for all cells, or for the mean of every row, and our numbers match all of these; `direction holds` otherwise.
    """
    rng = np.random.default_rng(SEED)
    experiment, scores = outcome.experiment, outcome.scores()
    planned = cells(experiment, outcome.budget)
    peers = list(experiment.peers)
    rows, columns = (list(dict.fromkeys(getattr(cell, side) for cell in planned)) for side in ("row", "column"))
    places: list[TablePlace] = [(cell.row, cell.column, [cell.column]) for cell in planned]
    if len(columns) > 1 and experiment.mean:
        places += [(row, MEAN, columns) for row in rows if sum(cell.row == row for cell in planned) == len(columns)]
    places += [(row, column, [column]) for row in peers for column in columns if (row, column) in scores]
    printed = _printed(experiment, columns)
    compared = [_compare(outcome, scores, place, printed.get(place[:2]), rng) for place in places]
    expected, higher = experiment.expect, experiment.higher
    findings = [f for e in expected for f in check(e, scores, rows, columns, higher, rng, peers)]
    wanted = {(cell.row, cell.column, seed) for cell in planned for seed in cell.seeds}
    lacking = len(wanted - {(r.row, r.column, r.seed) for r in outcome.records if outcome.counts(r)})
    if outcome.budget == "smoke":  # too short to show anything
        findings = [replace(finding, state="not run") for finding in findings]
    if lacking or outcome.budget == "smoke":
        why = f"{lacking} of {len(wanted)} runs have not ended" if lacking else "this budget only shows that it runs"
        ended = {(r.row, r.column, r.seed) for r in outcome.records if r.state == "done" and not outcome.counts(r)}
        if without := len(wanted & ended):
            why = f"{without} of {len(wanted)} runs ended without the metric {experiment.metric}"
        return Verdict("not run", why, compared, findings)
    return Verdict(*_word(outcome, compared, findings), compared, findings)


def _word(outcome: Outcome, compared: Sequence[Compared], findings: Sequence[Finding]) -> tuple[Word, str]:
    """The verdict's word and reason for an item whose runs have all ended."""
    if failed := [finding for finding in findings if finding.state == "fails"]:
        each = "; ".join(f"{f.text} ({f.where}: {f.left:.3g} and {f.right:.3g})" for f in failed)
        return "differs", f"{len(failed)} of {len(findings)} expectations fail: {each}"
    if undecided := [finding for finding in findings if finding.state == "undecided"]:
        each = "; ".join(f"{f.text} ({f.where}: between {f.low:.3g} and {f.high:.3g})" for f in undecided)
        return "undecided", f"more runs are needed for {len(undecided)} of {len(findings)} expectations: {each}"
    compared = [cell for cell in compared if cell.row not in outcome.experiment.peers]
    parts = [cell for cell in compared if cell.column != MEAN], [cell for cell in compared if cell.column == MEAN]
    rows, trained = {cell.row for cell in compared}, outcome.experiment.is_trained
    for part in parts if outcome.budget == "paper" else ():
        if {cell.row for cell in part} == rows and all(cell.verdict == "matches" for cell in part):
            return "matches", f"all {len(part)} published numbers lie within our intervals"
    if held := [finding for finding in findings if finding.state == "holds"]:
        counts = {
            "within noise": sum(finding.sign in ("<", ">") and finding.low <= 0 <= finding.high for finding in held),
            "from one run each": trained * sum(not np.isfinite(finding.low) for finding in held),
        }
        doubts = "".join(f", {number} of them {doubt}" for doubt, number in counts.items() if number)
        skipped = f"; {len(findings) - len(held)} could not be compared" if len(held) < len(findings) else ""
        return "direction holds", f"all {len(held)} expectations hold{doubts}{skipped}"
    if findings:
        return "not run", f"none of {len(findings)} expectations could be compared"
    return "not run", "nothing is expected of these numbers at this budget"


def misprinted(outcome: Outcome) -> list[str]:
    """A sentence for every number of the paper's table that contradicts other numbers in it."""
    numbers = _numbers(outcome.experiment)
    found = [misprint for misprint in (misprints() if numbers else ()) if misprint.published in numbers]
    return [f"misprint in {misprint.published.item}: {misprint.reason}" for misprint in found]


def _numbers(experiment: Experiment) -> list[Printed]:
    """The paper's numbers that belong to the item."""
    where = experiment.published
    return [n for n in load(where.paper, where.item) if where.metric in (None, n.metric)] if where else []


def _printed(experiment: Experiment, columns: Sequence[str]) -> dict[tuple[str, str], Printed]:
    """Our (row, column) -> the published number; at column MEAN the one for all tasks, if `columns` has all."""
    where, numbers = experiment.published, _numbers(experiment)
    if where is None:
        return {}
    theirs = {(number.model, number.task): number for number in numbers}
    tasks = {column: where.columns.get(column, column) for column in experiment.columns}
    places = list(tasks.items())
    whole = len(columns) == len(tasks) and {number.task for number in numbers} <= {*tasks.values(), *OF_ALL}
    places += [(MEAN, task) for task in OF_ALL if whole]
    return {
        (row, column): number
        for row in experiment.rows
        for column, task in places
        if (number := theirs.get((where.rows.get(row, row), task)))
    }


def _compare(
    outcome: Outcome, scores: Scores, place: TablePlace, printed: Printed | None, rng: np.random.Generator
) -> Compared:
    row, column, columns = place
    scale, runs = outcome.experiment.scale, min((len(scores.get((row, one), ())) for one in columns), default=0)
    found = across(scores, row, columns, rng)
    mean, draws = found or (np.nan, np.array([np.nan]))
    mean, (low, high) = mean * scale, map(float, percentile_bounds(draws * scale))
    if printed is None:
        return Compared(row, column, runs, mean, low, high)
    word: Literal["matches", "differs", "not run"] | None = None if found else "not run"
    if found and outcome.budget == "paper" and np.isfinite(low):
        spread = printed.std or 0.0
        word = "matches" if low - spread <= printed.mean <= high + spread else "differs"
    difference = mean - printed.mean if found else None
    return Compared(row, column, runs, mean, low, high, printed.mean, printed.std, difference, word)
