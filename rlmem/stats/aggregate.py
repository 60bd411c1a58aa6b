"""Scores [run, task] as one number.

Every aggregate reduces the last two axes, so that it reads a whole batch of resamples [..., run, task] at once. Its
value is a float for one matrix and an array [...] for a batch.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from rlmem.stats.scores import Array, Scores, matrix

Statistic = Callable[[Array], Any]
"""Scores [..., run, task] -> [...]."""


def mean(scores: Scores) -> Any:
    """Mean of all scores; every task has the same weight."""
    return matrix(scores).mean((-2, -1))


def median(scores: Scores) -> Any:
    """Median over tasks of the mean over runs; for a single task this is the mean of its runs."""
    return np.median(matrix(scores).mean(-2), axis=-1)


def iqm(scores: Scores) -> Any:
    """Interquartile mean (Agarwal et al. 2021, arXiv:2108.13264): the mean of the middle half of all scores, pooled.

    floor(N / 4) scores are dropped on each side. The result is NaN if any score is NaN.
    """
    values = matrix(scores)
    pooled = np.sort(values.reshape(*values.shape[:-2], -1), axis=-1)
    cut = pooled.shape[-1] // 4
    middle = pooled[..., cut : pooled.shape[-1] - cut].mean(-1)
    return np.where(np.isnan(pooled[..., -1]), np.nan, middle)[()]


def iqm_per_task(scores: ArrayLike) -> Array:
    """The interquartile mean over runs of each task, from scores [run, task]."""
    return np.asarray(iqm(matrix(scores).T[..., None]))


def optimality_gap(scores: Scores, target: float = 1.0) -> Any:
    """How far scores stay below `target` on average: mean of max(target - score, 0)."""
    return target - np.minimum(matrix(scores), target).mean((-2, -1))


AGGREGATES: dict[str, Statistic] = {"mean": mean, "median": median, "iqm": iqm, "optimality_gap": optimality_gap}
"""Every aggregate, by its name in tables and figures."""
