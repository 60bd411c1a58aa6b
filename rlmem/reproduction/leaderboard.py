"""The ranking of the rows of an item by all of its columns together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from rlmem.config.compose import load
from rlmem.reproduction.cells import Cell as Planned
from rlmem.reproduction.cells import cells
from rlmem.reproduction.metrics import in_words
from rlmem.reproduction.outcome import Outcome
from rlmem.reproduction.parts import Leaderboard
from rlmem.reproduction.spec import Experiment
from rlmem.stats import interval, iqm, probability_of_improvement, ranks
from rlmem.stats.resampling import SEED, Interval
from rlmem.stats.tables import Cell, Table, Value

Scores = Mapping[str, NDArray[np.float64]]
"""column -> the scores of the runs, [seed], as many in every column."""


@dataclass(frozen=True)
class Standings:
    """The rows of an outcome whose item has a leaderboard, on one scale.

    columns: those of the budget
    scores: row -> its scores, for the seeds that have ended in every column; rows without such a seed are missing
    """

    outcome: Outcome
    board: Leaderboard
    columns: tuple[str, ...]
    scores: Mapping[str, Scores]

    @property
    def unranked(self) -> list[str]:
        """The rows that have runs, but no seed that has ended in every column."""
        there = dict.fromkeys(record.row for record in self.outcome.records)
        return [row for row in there if row not in self.scores]

    @cached_property
    def aggregate(self) -> dict[str, Interval]:
        """Row -> its interquartile mean over all columns, the best first."""
        found = {row: interval(scores, iqm, rng=_rng()) for row, scores in self.scores.items()}
        return dict(sorted(found.items(), key=lambda pair: -np.nan_to_num(pair[1].value, nan=-np.inf)))

    @cached_property
    def ranks(self) -> dict[str, Interval]:
        return ranks(self.scores, iqm, rng=_rng())

    def better(self, row: str) -> Interval | None:
        """The chance that a run of a row beats one of `beside`; None for that row, or where it is not ranked."""
        if row == self.board.beside or self.board.beside not in self.scores:
            return None
        return probability_of_improvement(self.scores[row], self.scores[self.board.beside], rng=_rng()).probability

    def cost(self, row: str) -> float | None:
        """The mean cost of the runs of a row; None where it is not known of every column."""
        found = self.outcome.scores(self.board.cost)
        runs = [found.get((row, column)) for column in self.columns]
        means = [float(np.mean(each)) for each in runs if each is not None]
        return float(np.mean(means)) if len(means) == len(self.columns) and np.isfinite(means).all() else None


def standings(outcome: Outcome) -> Standings | None:
    """The ranking of an outcome's rows; None for an item without a leaderboard."""
    board = outcome.experiment.leaderboard
    if board is None:
        return None
    columns = tuple(dict.fromkeys(cell.column for cell in cells(outcome.experiment, outcome.budget)))
    runs: dict[str, dict[int, dict[str, float]]] = {}
    for record in outcome.records:
        if outcome.counts(record) and record.column in columns:
            low, high = board.bounds[record.column]
            score = np.clip((record.metrics[outcome.experiment.metric] - low) / (high - low), 0, 1)
            runs.setdefault(record.row, {}).setdefault(record.seed, {})[record.column] = float(score)
    found = {}
    for row, seeds in runs.items():
        whole = [seeds[seed] for seed in sorted(seeds) if len(seeds[seed]) == len(columns)]
        if whole:
            found[row] = {column: np.array([run[column] for run in whole]) for column in columns}
    return Standings(outcome, board, columns, found)


def sizes(found: Standings) -> dict[str, tuple[int, int]]:
    """Row -> (numbers in its memory's state, parameters of its agent), both in the first game that it plays."""
    first: dict[str, Planned] = {}
    for cell in cells(found.outcome.experiment, found.outcome.budget):
        if cell.row in found.scores:
            first.setdefault(cell.row, cell)
    return {row: size_of(cell) for row, cell in first.items()}


def size_of(cell: Planned) -> tuple[int, int]:
    """The numbers in the memory state of a cell's agent, a complex one being two, and its parameters."""
    from rlmem.run.assemble import assemble
    from rlmem.run.forecast import numbers, parameters

    parts = assemble(load(cell.overrides), dry_run=True)
    parts.env.close()
    return numbers(parts.agent.initial_state(1)), parameters(parts.agent)


def beside(experiment: Experiment, planned: Sequence[Planned]) -> list[str]:
    """A line with the size of every row's state, which should be equal; none for items without a leaderboard."""
    if experiment.leaderboard is None:
        return []
    first: dict[str, Planned] = {}
    for cell in planned:
        first.setdefault(cell.row, cell)
    shown = (f"{row} {size_of(cell)[0]:,}" for row, cell in first.items())
    return [f"numbers in the state of each memory: {', '.join(shown)}"] if first else []


def ranking(found: Standings, sizes: Mapping[str, tuple[int, int]] | None = None) -> Table:
    """A line for every ranked row, the best first, with its `sizes` if they are given."""
    several = len(found.columns)
    title = f"{found.outcome.name}, budget {found.outcome.budget}: interquartile mean over {several} games of the "
    title += f"{in_words(found.outcome.experiment.metric)}; 0 is the best play without memory, 1 the best play"
    beside, own = found.board.beside, found.outcome.experiment.own_rows
    head = ["rank [95 %]", "memory", "score [95 %]", f"beats {beside} [95 %]", "core-seconds of a run", "seeds"]
    lines: list[list[Cell]] = []
    for row, score in found.aggregate.items():
        better, cost = found.better(row), found.cost(row)
        cost = round(cost) if cost is not None and cost >= 10 else cost
        shown = f"{row} (yours)" if row in own else row
        compared = None if better is None else Value.of(better)
        line: list[Cell] = [_rank(found.ranks[row]), shown, Value.of(score), compared, cost, score.runs]
        lines.append([*line, *(sizes[row] if sizes else ())])
    head += ["numbers in the state", "parameters"] if sizes else []
    return Table(title, head, lines, digits=2)


def games(found: Standings) -> Table:
    """The mean score of every row in every column, in the order of the ranking."""
    lines: list[list[Cell]] = [
        [row, *(float(found.scores[row][column].mean()) for column in found.columns)] for row in found.aggregate
    ]
    return Table("Mean score by game", ["memory", *found.columns], lines, digits=2)


def _rank(found: Interval) -> Value:
    known = np.isfinite(found.low)
    return Value(int(found.value), low=int(found.low) if known else None, high=int(found.high) if known else None)


def _rng() -> np.random.Generator:
    return np.random.default_rng(SEED)
