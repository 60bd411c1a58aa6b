"""The ranking of the rows of an item by all of its columns together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property, partial

import numpy as np
from numpy.typing import NDArray

from rlmem.config.compose import load
from rlmem.core.errors import UserError
from rlmem.evidence import experiment
from rlmem.evidence.metrics import in_words
from rlmem.evidence.records import kept
from rlmem.evidence.sections import Leaderboard
from rlmem.evidence.statistics import SEED, Interval, interval, iqm, probability_of_improvement, ranks
from rlmem.evidence.verdict import Outcome
from rlmem.record.tables import Cell, Table, Value

LARGER = 1.1
"""A state with more than this times the numbers of that of `beside` is marked."""
RNG = partial(np.random.default_rng, SEED)
"""Makes the generator of an interval; all begin alike, so that the same runs always have the same intervals."""
Scores = Mapping[str, NDArray[np.float64]]
"""column -> the scores of the runs, [seed], as many in every column."""


@dataclass(frozen=True)
class Standings:
    """The rows of an outcome whose item has a leaderboard, on one scale.

    columns: those of the budget
    shares: row -> the shares of its runs in what memory can gain, for the seeds that have ended in every column; rows
        without such a seed are missing
    lacking: row -> seeds that are not ranked, and the columns in which they have not ended
    """

    outcome: Outcome
    board: Leaderboard
    columns: tuple[str, ...]
    shares: Mapping[str, Scores]
    lacking: Mapping[str, Mapping[int, Sequence[str]]]

    @cached_property
    def scores(self) -> dict[str, Scores]:
        """Row -> its scores: shares from 0 to 1."""
        clipped = lambda runs: {column: np.clip(each, 0, 1) for column, each in runs.items()}  # noqa: E731
        return {row: clipped(runs) for row, runs in self.shares.items()}

    @cached_property
    def aggregate(self) -> dict[str, Interval]:
        """Row -> its interquartile mean over all columns, the best first."""
        means = {row: interval(scores, iqm, rng=RNG()) for row, scores in self.scores.items()}
        return dict(sorted(means.items(), key=lambda pair: -np.nan_to_num(pair[1].value, nan=-np.inf)))

    @cached_property
    def ranks(self) -> dict[str, Interval]:
        return ranks(self.scores, iqm, rng=RNG())

    def better(self, row: str) -> Interval | None:
        """The chance that a run of a row beats one of `beside`; None for that row, or where it is not ranked.

        Runs below the best play without memory are told apart, too.
        """
        if row == self.board.beside or self.board.beside not in self.scores:
            return None
        return probability_of_improvement(self.shares[row], self.shares[self.board.beside], rng=RNG())

    def cost(self, row: str) -> float | None:
        """The mean cost of the runs of a row; None where it is not known of every column."""
        costs = self.outcome.scores(self.board.cost)
        means = [float(np.mean(costs[row, column])) for column in self.columns if (row, column) in costs]
        return float(np.mean(means)) if len(means) == len(self.columns) and np.isfinite(means).all() else None

    @cached_property
    def sizes(self) -> dict[str, tuple[int, int]]:
        """Row -> the `size_of` its first cell, for the ranked rows whose memory can be built here."""
        sizes = {}
        for row, cell in {cell.row: cell for cell in reversed(self.outcome.planned.cells())}.items():
            if row in self.scores:
                with suppress(UserError):
                    sizes[row] = size_of(cell)
        return sizes


def standings(outcome: Outcome, metric: str | None = None) -> Standings | None:
    """The ranking of an outcome's rows by its metric or another one; None for an item without a leaderboard."""
    board, metric = outcome.planned.experiment.leaderboard, metric or outcome.planned.metric
    if board is None:
        return None
    columns = tuple(dict.fromkeys(cell.column for cell in outcome.planned.cells()))
    # The file's rows first, then the user's: rows behind a row change none of the draws of its intervals.
    rows = dict.fromkeys([*outcome.planned.rows, *(record.row for record in outcome.records)])
    runs: dict[str, dict[int, dict[str, float]]] = {row: {} for row in rows}
    for record in outcome.records:
        seed = runs[record.row].setdefault(record.seed, {})
        if outcome.counts(record, metric) and record.column in columns:
            low, high = board.bounds[record.column]
            seed[record.column] = (float(kept(record.metrics[metric])) - low) / (high - low)
    shares, lacking = {}, {}
    for row, seeds in runs.items():
        whole = [seeds[seed] for seed in sorted(seeds) if len(seeds[seed]) == len(columns)]
        if whole:
            shares[row] = {column: np.array([run[column] for run in whole]) for column in columns}
        missing = {seed: [column for column in columns if column not in seeds[seed]] for seed in sorted(seeds)}
        if any(missing.values()):
            lacking[row] = {seed: names for seed, names in missing.items() if names}
    return Standings(outcome, board, columns, shares, lacking)


@cache
def size_of(cell: experiment.Cell) -> tuple[int, int]:
    """The numbers in the memory state of a cell's agent, a complex one being two, and its parameters."""
    from rlmem.run.assemble import assemble
    from rlmem.run.forecast import numbers, parameters

    parts = assemble(load(cell.overrides), dry_run=True)
    parts.env.close()
    return numbers(parts.agent.initial_state(1)), parameters(parts.agent)


def ranking(board: Standings) -> Table:
    """A line for every ranked row, the best first, and below it what the ranking leaves out."""
    outcome, beside, second = board.outcome, board.board.beside, board.board.second
    title = f"{outcome.name}, budget {outcome.budget}: interquartile mean over {len(board.columns)} games of the "
    title += f"{in_words(outcome.planned.metric)}; 0 is the best play without memory, 1 the best play"
    other = standings(outcome, second) if second else None
    most = LARGER * (board.sizes.get(beside) or (np.inf,))[0]
    head = ["rank [95 %]", "memory", "score [95 %]", f"beats {beside} [95 %]"]
    head += [f"rank by {second}", f"score by {second} [95 %]"] if second else []
    head += ["core-seconds of a run", "seeds", "numbers in the state", "parameters"]
    lines: list[list[Cell]] = []
    for row, score in board.aggregate.items():
        better, cost, size = board.better(row), board.cost(row), board.sizes.get(row)
        remarks = ["yours"] if row in outcome.planned.own_rows else []
        remarks += ["larger state"] if size and size[0] > most else []
        line: list[Cell] = [_rank(board.ranks[row]), f"{row} ({', '.join(remarks)})" if remarks else row]
        line += [Value.of(score), None if better is None else Value.of(better)]
        if other:
            ranked = row in other.scores
            line += [_rank(other.ranks[row]), Value.of(other.aggregate[row])] if ranked else [None, None]
        line += [round(cost) if cost is not None and cost >= 10 else cost, score.runs, *(size or (None, None))]
        lines.append(line)
    return Table(title, head, lines, digits=2, notes=_notes(board))


def games(board: Standings) -> Table:
    """The mean score of every row in every column, in the order of the ranking."""
    lines: list[list[Cell]] = [
        [row, *(float(board.scores[row][column].mean()) for column in board.columns)] for row in board.aggregate
    ]
    return Table("Mean score by game", ["memory", *board.columns], lines, digits=2)


def _notes(board: Standings) -> list[str]:
    """What the ranking leaves out, and where its costs cannot be compared."""
    alike: dict[tuple[str, str], list[str]] = {}  # the columns without a result and the seeds -> rows
    for row, seeds in board.lacking.items():
        columns = dict.fromkeys(column for missing in seeds.values() for column in missing)
        where = "any game" if len(columns) == len(board.columns) else ", ".join(columns)
        alike.setdefault((where, ", ".join(map(str, seeds))), []).append(row)
    notes = [f"Not ranked, without a result in {at}: {', '.join(rows)}, seed {of}." for (at, of), rows in alike.items()]
    timed = (record for record in board.outcome.records if record.row in board.scores)
    machines = sorted({record.machine for record in timed if board.outcome.counts(record, board.board.cost)})
    if len(machines) > 1:
        named = "; ".join(machine or "unknown" for machine in machines)
        notes.append(f"Core-seconds are of different machines, and do not compare: {named}.")
    return notes


def _rank(rank: Interval) -> Value:
    known = np.isfinite(rank.low)
    return Value(int(rank.value), low=int(rank.low) if known else None, high=int(rank.high) if known else None)
