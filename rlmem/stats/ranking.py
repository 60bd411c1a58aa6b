"""Ranks of several algorithms by one statistic, with what other seeds might have made of them."""

from collections.abc import Mapping

import numpy as np

from rlmem.stats.aggregate import Scores, Statistic, iqm, matrix
from rlmem.stats.resampling import LEVEL, REPETITIONS, Interval, bootstrap, percentile_bounds


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
