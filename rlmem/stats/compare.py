"""More than one number: how often one algorithm beats another, ranks, and the whole distribution of scores."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from rlmem.stats.aggregate import Array, Scores, Statistic, iqm, matrix
from rlmem.stats.resampling import LEVEL, REPETITIONS, Interval, bootstrap, percentile_bounds, picks, resample


@dataclass(frozen=True)
class Improvement:
    """P(X > Y): the chance that a run of X beats a run of Y on a task drawn at random, ties counting one half."""

    probability: Interval
    """Mean over tasks; one half means that neither is better. Its `runs` is the smaller number of runs of the two."""
    per_task: Array
    """The probability for each task, [task]."""
    u: Array
    """Mann-Whitney U of X for each task, [task]: the pairs that X wins, out of runs_x * runs_y."""


def probability_of_improvement(
    x: Scores, y: Scores, *, rng: np.random.Generator, repetitions: int = REPETITIONS, level: float = LEVEL
) -> Improvement:
    """P(X > Y) of scores [run_x, task] and [run_y, task] (Agarwal et al. 2021, arXiv:2108.13264, sec. 4.3).

    The bootstrap resamples the runs of X and those of Y independently, within each task. Tasks are matched by position,
    or by name where both are mappings. The bounds are NaN unless both have two runs.
    """
    if isinstance(x, Mapping) and isinstance(y, Mapping):
        if x.keys() != y.keys():
            raise ValueError(f"both need the same tasks; only one has {', '.join(sorted(x.keys() ^ y.keys()))}")
        y = {task: y[task] for task in x}
    first, second = matrix(x), matrix(y)
    n, m, tasks = len(first), len(second), first.shape[1]
    if tasks != second.shape[1]:
        raise ValueError(f"both need the same tasks; got {tasks} and {second.shape[1]}")
    u = mann_whitney_u(first, second)
    drawn = [
        mann_whitney_u(resample(first, picked[:, :n]), resample(second, picked[:, n:])).mean(-1) / (n * m)
        for picked in picks((n + m, tasks), repetitions, rng, max(n, m), np.repeat([n, m], [n, m])[:, None])
    ]
    low, high = percentile_bounds(np.concatenate(drawn), level)
    bounds = (float(low), float(high)) if min(n, m) > 1 else (np.nan, np.nan)
    probability = Interval(float(u.mean() / (n * m)), *bounds, level, min(n, m), tasks)
    return Improvement(probability, u / (n * m), u)


def mann_whitney_u(x: Array, y: Array) -> Array:
    """U of X for each task: x [..., run_x, task], y [..., run_y, task] -> [..., task]. NaN where a score is.

    U counts the pairs (i, j) with x_i > y_j, and half of those with x_i = y_j (Mann and Whitney 1947).
    """
    a, b = x[..., :, None, :], y[..., None, :, :]
    wins = np.where(np.isnan(a) | np.isnan(b), np.nan, (a > b) + 0.5 * (a == b))
    return np.asarray(wins.sum((-3, -2)))


@dataclass(frozen=True)
class Profile:
    """A performance profile: the fraction of scores above each threshold, with a confidence band, all [threshold]."""

    thresholds: Array
    fraction: Array
    low: Array
    """Pointwise bounds; NaN where a task has one run. The band as a whole covers less than `level`."""
    high: Array
    level: float


def performance_profile(
    scores: Scores,
    thresholds: ArrayLike,
    *,
    rng: np.random.Generator,
    repetitions: int = REPETITIONS,
    level: float = LEVEL,
) -> Profile:
    """The fraction above every threshold tau (Agarwal et al. 2021, arXiv:2108.13264, sec. 4.2), scores [run, task].

        F(tau) = mean over runs and tasks of [score > tau], the run-score distribution

    The band is the stratified bootstrap interval over runs at each threshold separately.
    """
    values, tau = matrix(scores), np.atleast_1d(np.asarray(thresholds, dtype=np.float64))

    def above(batch: Array) -> Array:
        """[..., run, task] -> [..., threshold]"""
        fraction = (batch[..., None] > tau).mean((-3, -2))
        diverged = np.asarray(np.isnan(batch).any((-2, -1)))
        return np.where(diverged[..., None], np.nan, fraction)

    replicates = bootstrap(values, above, rng=rng, repetitions=repetitions, width=len(tau))
    low, high = percentile_bounds(replicates if len(values) > 1 else np.full_like(replicates, np.nan), level)
    return Profile(tau, above(values), low, high, level)


def ranks(
    scores: Mapping[str, Scores],
    statistic: Statistic = iqm,
    *,
    rng: np.random.Generator,
    repetitions: int = REPETITIONS,
    level: float = LEVEL,
) -> dict[str, Interval]:
    """The rank of every algorithm, 1 for the largest statistic, with its stratified bootstrap interval.

    scores: algorithm -> its scores [run, task]; all algorithms have the same tasks

    In a resample the runs of every algorithm are drawn anew, independently, within each task, and all are ranked.
    Bounds are rounded outwards to whole ranks. Equal algorithms share the better rank, and those whose statistic is NaN
    the last one. An algorithm with one run has no bounds, and does not vary in those of the others.
    """
    values = {name: matrix(each) for name, each in scores.items()}
    if not values:
        return {}
    known = np.nan_to_num(np.array([statistic(each) for each in values.values()], float), nan=-np.inf)
    drawn = [bootstrap(each, statistic, rng=rng, repetitions=repetitions) for each in values.values()]
    replicates = np.nan_to_num(np.stack(drawn, axis=-1), nan=-np.inf)  # [repetition, algorithm]
    better = (replicates[:, None, :] > replicates[:, :, None]).sum(-1)
    low, high = percentile_bounds(1.0 + better, level)
    return {
        name: Interval(
            float(1 + (known > known[k]).sum()),
            float(np.floor(low[k])) if len(each) > 1 else np.nan,
            float(np.ceil(high[k])) if len(each) > 1 else np.nan,
            level,
            *each.shape,
        )
        for k, (name, each) in enumerate(values.items())
    }
