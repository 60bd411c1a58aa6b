"""Scores [run, task]: as a matrix, and as one number.

Every aggregate reduces the last two axes, so that it reads a whole batch of resamples [..., run, task] at once. Its
value is a float for one matrix and an array [...] for a batch.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Scores = ArrayLike | Mapping[str, ArrayLike]
"""[run, task]; the runs of one task [run]; or {task: [run]}, where every task has the same number of runs."""
Statistic = Callable[[Array], Any]
"""Scores [..., run, task] -> [...]."""


def matrix(scores: Scores) -> Array:
    """Scores as a matrix [run, task], with tasks in the order of the mapping; arrays [..., run, task] stay as they are.

    Raises ValueError where there is no run or no task, and where tasks have different numbers of runs: whether to leave
    runs out or to weight them is up to the caller.
    """
    if isinstance(scores, Mapping):
        counts = {task: np.size(runs) for task, runs in scores.items()}
        if len(set(counts.values())) > 1:
            ends = (choose(counts, key=counts.__getitem__) for choose in (min, max))
            unequal = ", ".join(f"{task} has {counts[task]}" for task in ends)
            raise ValueError(f"every task needs the same number of runs; {unequal}")
        scores = np.array([np.asarray(runs, dtype=np.float64) for runs in scores.values()]).T
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim == 1:
        values = values[:, None]
    if values.ndim < 2 or values.size == 0:
        raise ValueError(f"scores are [run, task], at least one of each; got the shape {values.shape}")
    return values


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


def optimality_gap(scores: Scores, target: float = 1.0) -> Any:
    """How far scores stay below `target` on average: mean of max(target - score, 0)."""
    return target - np.minimum(matrix(scores), target).mean((-2, -1))


AGGREGATES: dict[str, Statistic] = {"mean": mean, "median": median, "iqm": iqm, "optimality_gap": optimality_gap}
"""Every aggregate, by its name in tables and figures."""
