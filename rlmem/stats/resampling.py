"""The stratified bootstrap (Agarwal et al. 2021, arXiv:2108.13264, sec. 4.1): what other seeds might have given.

A resample draws for each task separately, with replacement, as many runs as the task has; tasks are not resampled.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlmem.stats.aggregate import Array, Scores, Statistic, iqm, matrix

Index = NDArray[np.integer[Any]]

REPETITIONS = 2000
SEED = 20240527
"""Seeds the generators of reports and verdicts, so that the same runs always have the same intervals."""
LEVEL = 0.95
AT_ONCE = 2**20
"""How many numbers are resampled together: 8 MiB."""


@dataclass(frozen=True)
class Interval:
    """An estimate and the bounds of its percentile bootstrap interval."""

    value: float
    low: float
    """NaN if a task has only one run."""
    high: float
    level: float
    """Nominal coverage, 0.95 for 95 %."""
    runs: int
    """Runs per task."""
    tasks: int


def interval(
    scores: Scores,
    statistic: Statistic = iqm,
    *,
    rng: np.random.Generator,
    repetitions: int = REPETITIONS,
    level: float = LEVEL,
) -> Interval:
    """A statistic of scores [run, task] or [run], with its stratified bootstrap interval."""
    values = matrix(scores)
    low, high = percentile_bounds(bootstrap(values, statistic, rng=rng, repetitions=repetitions), level)
    runs, tasks = values.shape
    bounds = (float(low), float(high)) if runs > 1 else (np.nan, np.nan)
    return Interval(float(statistic(values)), *bounds, level, runs, tasks)


def bootstrap(
    scores: Scores, statistic: Statistic, *, rng: np.random.Generator, repetitions: int = REPETITIONS, width: int = 1
) -> Array:
    """The statistic of every resample, [repetitions, ...].

    width: numbers that the statistic holds for each score (for a profile, its thresholds), to bound memory
    """
    values = matrix(scores)
    parts = [statistic(resample(values, picked)) for picked in picks(values.shape, repetitions, rng, width)]
    return np.concatenate(parts)


def resample(scores: Array, picked: Index) -> Array:
    """Run `picked[..., i, task]` of each task: scores [run, task], picked [..., run, task] -> [..., run, task]."""
    return scores[picked, np.arange(scores.shape[1])]


def percentile_bounds(replicates: Array, level: float = LEVEL) -> tuple[Any, Any]:
    """The bounds, each [...], that leave (1 - level) / 2 of the replicates [repetitions, ...] on either side."""
    if not 0 < level < 1:
        raise ValueError(f"level is a coverage between 0 and 1, such as 0.95; got {level}")
    low, high = np.quantile(replicates, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return low, high


def picks(
    shape: tuple[int, ...], repetitions: int, rng: np.random.Generator, width: int = 1, among: Index | None = None
) -> Iterator[NDArray[np.int64]]:
    """The runs of `repetitions` resamples, in chunks [n, run, task]. The size of the chunks changes no draw.

    among: the number of runs that a row is drawn from, [run, 1]; None: as many as there are rows
    """
    if len(shape) != 2:
        raise ValueError(f"the bootstrap resamples scores [run, task]; got {len(shape)} dimensions")
    if repetitions < 1:
        raise ValueError(f"a bootstrap needs at least one repetition; got {repetitions}")
    runs, tasks = shape
    most = max(1, AT_ONCE // (runs * tasks * width))
    for begin in range(0, repetitions, most):
        yield rng.integers(runs if among is None else among, size=(min(most, repetitions - begin), runs, tasks))
