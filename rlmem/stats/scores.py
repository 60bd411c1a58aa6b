"""Scores as a matrix [run, task]."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Scores = ArrayLike | Mapping[str, ArrayLike]
"""[run, task]; the runs of one task [run]; or {task: [run]}, where every task has the same number of runs."""


def matrix(scores: Scores) -> Array:
    """Scores as a matrix [run, task], with tasks in the order of the mapping; arrays [..., run, task] stay as they are.

    Raises ValueError where there is no run or no task, and where tasks have different numbers of runs: whether to leave
    runs out or to weight them is up to the caller.
    """
    if isinstance(scores, Mapping):
        counts = {task: np.size(runs) for task, runs in scores.items()}
        if len(set(counts.values())) > 1:
            fewest, most = min(counts, key=counts.__getitem__), max(counts, key=counts.__getitem__)
            raise ValueError(
                f"every task needs the same number of runs; {fewest} has {counts[fewest]}, {most} has {counts[most]}"
            )
        values = np.array([np.asarray(runs, dtype=np.float64) for runs in scores.values()]).T
    else:
        values = np.asarray(scores, dtype=np.float64)
    if values.ndim == 1:
        values = values[:, None]
    if values.ndim < 2 or values.size == 0:
        raise ValueError(f"scores are [run, task], at least one of each; got the shape {values.shape}")
    return values
