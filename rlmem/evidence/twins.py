"""Is it memory? Returns on games and on their fully observed twins, of agents with and without memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite, nan
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from rlmem.evidence.statistics import contrast
from rlmem.record.tables import Cell, Table, Value

FEWEST_ERRORS = 2.0
"""What memory could gain must be so many standard errors from zero, or a share of it says nothing."""
HEAD = ("observability gap ± SE", "memory bias ± SE", "memory improvability ± SE")


class Estimate(NamedTuple):
    """A number and its standard error, NaN where there is none."""

    value: float
    error: float


def observability_gap(partial: ArrayLike, full: ArrayLike) -> Estimate:
    """J(f, full) - J(f, partial) of an agent f: what the same agent earns more where nothing is hidden.

    partial, full: its returns [run] on the game and on the twin

    With memory bias, arXiv:2503.01450. Standard errors add in quadrature.
    """
    return _difference(full, partial)


def memory_bias(full: ArrayLike, memoryless_full: ArrayLike) -> Estimate:
    """J(f, full) - J(memoryless, full): what a memory brings or costs where there is nothing to remember.

    full, memoryless_full: returns [run] on the twin of the agent, and of one without memory
    """
    return _difference(full, memoryless_full)


def memory_improvability(partial: ArrayLike, memoryless: ArrayLike, memoryless_full: ArrayLike) -> Estimate:
    """The share that a memory recovers of what is lost because a part of the state is hidden (POBAX).

        (m - w) / (f - w),   m = J(f, partial),   w = J(memoryless, partial),   f = J(memoryless, full)

    0 is play without memory, 1 play that sees all. NaN unless f is FEWEST_ERRORS standard errors above w: where nothing
    is to be gained, nothing can be recovered. The error is that of the linearised ratio:

        ((s_m)^2 + (R s_f)^2 + ((R - 1) s_w)^2) / (f - w)^2,   with the standard errors s of the three means

    partial: returns [run] of the agent on the game
    memoryless, memoryless_full: returns [run] of an agent without memory on the game and on its twin
    """
    to_gain = _difference(memoryless_full, memoryless)
    if not to_gain.value > FEWEST_ERRORS * (0 if np.isnan(to_gain.error) else to_gain.error):
        return Estimate(nan, nan)
    gained = _difference(partial, memoryless)
    share = gained.value / to_gain.value
    errors = [_error(partial), share * _error(memoryless_full), (share - 1) * _error(memoryless)]
    return Estimate(share, float(np.hypot.reduce(errors)) / to_gain.value)


def table(name: str, agents: Mapping[tuple[str, str], Sequence[ArrayLike]], higher: bool = True) -> Table:
    """A line for every agent and game: both returns, gap, bias and improvability with their standard errors.

    agents: (row, column) -> the returns [run] of the agent on the game and on its twin, and behind them those of the
        agent without memory, if there is one to compare with
    higher: whether more is better; where it is not, differences are turned, so that more is better in them, too
    """
    several, sign = any(column for _, column in agents), 1 if higher else -1
    lines: list[list[Cell]] = []
    for (row, column), returns in agents.items():
        partial, full, *without = (sign * np.asarray(runs, float) for runs in returns)
        estimates = [observability_gap(partial, full)]
        if len(without) == 2:
            estimates += [memory_bias(full, without[1]), memory_improvability(partial, *without)]
        values = [_value(estimate) for estimate in estimates] + [None] * (3 - len(estimates))
        means = [sign * float(runs.mean()) if len(runs) else None for runs in (partial, full)]
        lines.append([row, *([column] if several else []), *means, *values])
    title = f"{name}: is it memory? `full` is the same game with all of its state in view"
    return Table(title, ["row", *(["column"] if several else []), "partial", "full", *HEAD], lines)


def _value(estimate: Estimate) -> Value | None:
    error = estimate.error if isfinite(estimate.error) else None
    return Value(estimate.value, error) if isfinite(estimate.value) else None


def _difference(left: ArrayLike, right: ArrayLike) -> Estimate:
    difference = contrast([(1, left), (-1, right)])
    return Estimate(difference.value, difference.error)


def _error(runs: ArrayLike) -> float:
    return contrast([(1, runs)]).error
