"""Performance profiles: the whole distribution of scores, instead of one number."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from rlmem.stats.resampling import LEVEL, REPETITIONS, bootstrap, percentile_bounds
from rlmem.stats.scores import Array, Scores, matrix

Of = Literal["runs", "tasks"]


@dataclass(frozen=True)
class Profile:
    """The fraction of scores above each threshold, with a confidence band. All arrays are [threshold]."""

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
    of: Of = "runs",
    repetitions: int = REPETITIONS,
    level: float = LEVEL,
) -> Profile:
    """The fraction above every threshold tau (Agarwal et al. 2021, arXiv:2108.13264, sec. 4.2), scores [run, task].

        runs:   F(tau) = mean over runs and tasks of [score > tau], the run-score distribution
        tasks:  F(tau) = mean over tasks of [mean over runs of score > tau], the average-score distribution

    The band is the stratified bootstrap interval over runs at each threshold separately.
    """
    values, tau = matrix(scores), np.atleast_1d(np.asarray(thresholds, dtype=np.float64))

    def above(batch: Array) -> Array:
        """[..., run, task] -> [..., threshold]"""
        if of == "tasks":
            batch = batch.mean(-2, keepdims=True)
        fraction = (batch[..., None] > tau).mean((-3, -2))
        diverged = np.asarray(np.isnan(batch).any((-2, -1)))
        return np.where(diverged[..., None], np.nan, fraction)

    replicates = bootstrap(values, above, rng=rng, repetitions=repetitions, width=len(tau))
    low, high = percentile_bounds(replicates, level)
    if len(values) == 1:
        low, high = np.full((2, len(tau)), np.nan)
    return Profile(tau, above(values), low, high, level)
