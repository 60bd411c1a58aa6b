"""The ranking of the rows of an item by all of its columns together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
from numpy.typing import NDArray

from rlmem.config.compose import load
from rlmem.errors import UserError
from rlmem.evidence.cells import Cell as Planned
from rlmem.evidence.cells import cells
from rlmem.evidence.metrics import in_words
from rlmem.evidence.outcome import Outcome, kept
from rlmem.evidence.parts import Leaderboard
from rlmem.evidence.spec import Experiment
from rlmem.stats import interval, iqm, probability_of_improvement, ranks
from rlmem.stats.resampling import SEED, Interval
from rlmem.stats.tables import Cell, Table, Value

LARGER = 1.1
"""A state with more than this times the numbers of that of `beside` is marked."""
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
        found = {row: interval(scores, iqm, rng=_rng()) for row, scores in self.scores.items()}
        return dict(sorted(found.items(), key=lambda pair: -np.nan_to_num(pair[1].value, nan=-np.inf)))

    @cached_property
    def ranks(self) -> dict[str, Interval]:
        return ranks(self.scores, iqm, rng=_rng())

    def better(self, row: str) -> Interval | None:
        """The chance that a run of a row beats one of `beside`; None for that row, or where it is not ranked.

        Runs below the best play without memory are told apart, too.
        """
        if row == self.board.beside or self.board.beside not in self.scores:
            return None
        return probability_of_improvement(self.shares[row], self.shares[self.board.beside], rng=_rng()).probability

    def cost(self, row: str) -> float | None:
        """The mean cost of the runs of a row; None where it is not known of every column."""
        found = self.outcome.scores(self.board.cost)
        runs = [found.get((row, column)) for column in self.columns]
        means = [float(np.mean(each)) for each in runs if each is not None]
        return float(np.mean(means)) if len(means) == len(self.columns) and np.isfinite(means).all() else None


def standings(outcome: Outcome, metric: str | None = None) -> Standings | None:
    """The ranking of an outcome's rows by its metric or another one; None for an item without a leaderboard."""
    board, metric = outcome.experiment.leaderboard, metric or outcome.experiment.metric
    if board is None:
        return None
    columns = tuple(dict.fromkeys(cell.column for cell in cells(outcome.experiment, outcome.budget)))
    # The file's rows first, then the user's: rows behind a row change none of the draws of its intervals.
    rows = dict.fromkeys([*outcome.experiment.rows, *(record.row for record in outcome.records)])
    runs: dict[str, dict[int, dict[str, float]]] = {row: {} for row in rows}
    for record in outcome.records:
        seed = runs[record.row].setdefault(record.seed, {})
        if outcome.counts(record, metric) and record.column in columns:
            low, high = board.bounds[record.column]
            seed[record.column] = (float(kept(record.metrics[metric])) - low) / (high - low)
    found, lacking = {}, {}
    for row, seeds in runs.items():
        whole = [seeds[seed] for seed in sorted(seeds) if len(seeds[seed]) == len(columns)]
        if whole:
            found[row] = {column: np.array([run[column] for run in whole]) for column in columns}
        missing = {seed: [column for column in columns if column not in seeds[seed]] for seed in sorted(seeds)}
        if any(missing.values()):
            lacking[row] = {seed: there for seed, there in missing.items() if there}
    return Standings(outcome, board, columns, found, lacking)


@cache
def size_of(cell: Planned) -> tuple[int, int]:
    """The numbers in the memory state of a cell's agent, a complex one being two, and its parameters."""
    from rlmem.run.assemble import assemble
    from rlmem.run.forecast import numbers, parameters

    parts = assemble(load(cell.overrides), dry_run=True)
    parts.env.close()
    return numbers(parts.agent.initial_state(1)), parameters(parts.agent)


def state_sizes(experiment: Experiment, planned: Sequence[Planned]) -> list[str]:
    """A line with the size of every row's state, which should be equal; none for items without a leaderboard."""
    if experiment.leaderboard is None:
        return []
    shown = (f"{row} {size_of(cell)[0]:,}" for row, cell in _first(planned).items())
    return [f"numbers in the state of each memory: {', '.join(shown)}"] if planned else []


def ranking(found: Standings) -> Table:
    """A line for every ranked row, the best first, and below it what the ranking leaves out."""
    outcome, board = found.outcome, found.board
    title = f"{outcome.name}, budget {outcome.budget}: interquartile mean over {len(found.columns)} games of the "
    title += f"{in_words(outcome.experiment.metric)}; 0 is the best play without memory, 1 the best play"
    sizes, second = _sizes(found), standings(outcome, board.second) if board.second else None
    most = LARGER * (sizes.get(board.beside) or (np.inf,))[0]
    head = ["rank [95 %]", "memory", "score [95 %]", f"beats {board.beside} [95 %]"]
    head += [f"rank by {board.second}", f"score by {board.second} [95 %]"] if second else []
    head += ["core-seconds of a run", "seeds", "numbers in the state", "parameters"]
    lines: list[list[Cell]] = []
    for row, score in found.aggregate.items():
        better, cost, size = found.better(row), found.cost(row), sizes.get(row)
        remarks = ["yours"] if row in outcome.experiment.own_rows else []
        remarks += ["larger state"] if size and size[0] > most else []
        line: list[Cell] = [_rank(found.ranks[row]), f"{row} ({', '.join(remarks)})" if remarks else row]
        line += [Value.of(score), None if better is None else Value.of(better)]
        if second:
            there = row in second.scores
            line += [_rank(second.ranks[row]), Value.of(second.aggregate[row])] if there else [None, None]
        line += [round(cost) if cost is not None and cost >= 10 else cost, score.runs, *(size or (None, None))]
        lines.append(line)
    return Table(title, head, lines, digits=2, notes=_notes(found))


def games(found: Standings) -> Table:
    """The mean score of every row in every column, in the order of the ranking."""
    lines: list[list[Cell]] = [
        [row, *(float(found.scores[row][column].mean()) for column in found.columns)] for row in found.aggregate
    ]
    return Table("Mean score by game", ["memory", *found.columns], lines, digits=2)


def _notes(found: Standings) -> list[str]:
    """What the ranking leaves out, and where its costs cannot be compared."""
    alike: dict[tuple[str, str], list[str]] = {}  # the columns without a result and the seeds -> rows
    for row, seeds in found.lacking.items():
        columns = dict.fromkeys(column for missing in seeds.values() for column in missing)
        where = "any game" if len(columns) == len(found.columns) else ", ".join(columns)
        alike.setdefault((where, ", ".join(map(str, seeds))), []).append(row)
    notes = [f"Not ranked, without a result in {at}: {', '.join(rows)}, seed {of}." for (at, of), rows in alike.items()]
    timed = (record for record in found.outcome.records if record.row in found.scores)
    machines = sorted({record.machine for record in timed if found.outcome.counts(record, found.board.cost)})
    if len(machines) > 1:
        named = "; ".join(machine or "unknown" for machine in machines)
        notes.append(f"Core-seconds are of different machines, and do not compare: {named}.")
    return notes


def _sizes(found: Standings) -> dict[str, tuple[int, int]]:
    """The `size_of` every ranked row in the first game that it plays, of those whose memory can be built here."""
    sizes = {}
    for row, cell in _first(cells(found.outcome.experiment, found.outcome.budget)).items():
        if row in found.scores:
            with suppress(UserError):
                sizes[row] = size_of(cell)
    return sizes


def _first(planned: Sequence[Planned]) -> dict[str, Planned]:
    """Row -> its first cell."""
    return {cell.row: cell for cell in reversed(planned)}


def _rank(found: Interval) -> Value:
    known = np.isfinite(found.low)
    return Value(int(found.value), low=int(found.low) if known else None, high=int(found.high) if known else None)


def _rng() -> np.random.Generator:
    return np.random.default_rng(SEED)
