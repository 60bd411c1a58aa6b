"""The tables of a reproduction: our numbers beside the paper's, expectations, and where the files lie."""

from collections import Counter
from pathlib import Path

import numpy as np

from rlmem.reproduce.metrics import BESIDE, in_words
from rlmem.reproduce.outcome import Outcome
from rlmem.reproduce.verdict import MEAN, Compared, Verdict, judge, misprinted
from rlmem.stats.tables import Cell, Table, Value

WIDEST = 6
"""The greatest number of columns that are printed side by side."""


def print_outcome(outcome: Outcome, folder: Path) -> None:
    verdict = judge(outcome)
    for table in tables(outcome, verdict):
        print(table.text())
    for sentence in misprinted(outcome):
        print(f"note     {sentence}")
    states = Counter(record.state for record in outcome.records)
    counted = ", ".join(f"{number} {state}" for state, number in states.items())
    print(f"claim    {' '.join(outcome.experiment.claim.split())}")
    print(f"verdict  {verdict.word}: {verdict.why}")
    print(f"runs     {counted or 'none'}; in {folder}")


def tables(outcome: Outcome, verdict: Verdict, *, to_read: bool = True) -> list[Table]:
    """The numbers of every cell, and the findings of the expectations, if there are any.

    to_read: for people, as a grid where that fits; else for programs, with a line for each cell
    """
    numbers = (to_read and _grid(outcome, verdict)) or _numbers(outcome, verdict)
    return [numbers, *([_findings(outcome, verdict)] if verdict.findings else [])]


def metric_name(outcome: Outcome) -> str:
    metric, scale = outcome.experiment.metric, outcome.experiment.scale
    return in_words(metric) if scale == 1 else f"{in_words(metric)}, times {scale:g}"


def _numbers(outcome: Outcome, verdict: Verdict) -> Table:
    experiment = outcome.experiment
    others = {name: scores for name in _beside(outcome) if (scores := outcome.scores(name))}
    several, published = len(experiment.columns) > 1, any(cell.published is not None for cell in verdict.cells)
    head = ["row", *(["column"] if several else []), "ours [95 % CI]", "runs"]
    head += ["paper", "difference", "verdict"] if published else []
    rows: list[list[Cell]] = []
    columns = list(dict.fromkeys(cell.column for cell in verdict.cells if cell.column != MEAN))
    for cell in verdict.cells:
        line: list[Cell] = [cell.row, *([cell.column] if several else []), _ours(cell), cell.seeds]
        if published:
            paper = None if cell.published is None else Value(cell.published, cell.published_std)
            line += [paper, cell.difference, cell.verdict]
        rows.append([*line, *(_mean(scores, cell, columns) for scores in others.values())])
    return Table(_title(outcome), [*head, *others], rows)


def _grid(outcome: Outcome, verdict: Verdict) -> Table | None:
    """A grid of rows by columns, if the columns fit and every cell is one number of equally many runs; else None."""
    columns = list(dict.fromkeys(cell.column for cell in verdict.cells))
    alone = not any(outcome.scores(name) for name in _beside(outcome))
    published = any(cell.published is not None for cell in verdict.cells)
    runs = {cell.seeds for cell in verdict.cells if cell.seeds}
    if not 1 < len(columns) <= WIDEST or published or not alone or len(runs) != 1:
        return None
    found = {(cell.row, cell.column): _ours(cell) for cell in verdict.cells}
    rows = [[row, *(found.get((row, column)) for column in columns)] for row in dict.fromkeys(row for row, _ in found)]
    interval = " [95 % CI]" if any(np.isfinite(cell.low) for cell in verdict.cells) else ""
    return Table(f"{_title(outcome)}{interval}, runs of each: {runs.pop()}", ["row", *columns], rows)


def _title(outcome: Outcome) -> str:
    return f"{outcome.name}, budget {outcome.budget}: {metric_name(outcome)}"


def _beside(outcome: Outcome) -> list[str]:
    """The metrics that are shown beside the claim's."""
    experiment = outcome.experiment
    return [name for name in dict.fromkeys([*experiment.also, *BESIDE]) if name != experiment.metric]


def _findings(outcome: Outcome, verdict: Verdict) -> Table:
    rows: list[list[Cell]] = [
        [f.text, f.where, f.left, f.right, Value(f.difference, low=f.low, high=f.high), f.state]
        for f in verdict.findings
    ]
    title = f"What the claim expects of {outcome.name}: {verdict.word}"
    return Table(title, ["expected", "where", "left", "right", "difference [95 % CI]", "came out"], rows)


def _ours(cell: Compared) -> Value:
    return Value(cell.mean, low=cell.low, high=cell.high, n=cell.seeds)


def _mean(scores: dict[tuple[str, str], np.ndarray], cell: Compared, columns: list[str]) -> float | None:
    places = columns if cell.column == MEAN else [cell.column]
    runs = [scores.get((cell.row, place), np.empty(0)) for place in places]
    return float(np.mean([run.mean() for run in runs])) if all(len(run) for run in runs) else None
