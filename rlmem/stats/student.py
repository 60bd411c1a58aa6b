"""Welch's t interval of a difference of means, for the few runs from which the bootstrap's are too narrow."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from rlmem.stats.resampling import LEVEL

GRID = 100_001
"""Points of the integral in `student_quantile`, whose relative error is then below 1e-5."""


def welch_bounds(left: Sequence[ArrayLike], right: Sequence[ArrayLike], level: float = LEVEL) -> tuple[float, float]:
    """The bounds of Welch's t interval of a mean over tasks, left minus right (Welch 1947, Biometrika 34).

        d -+ t sqrt(v),   d = mean_k mean(left_k) - mean_k mean(right_k)
        v = sum_i w_i^2 s_i^2 / n_i,   degrees of freedom  v^2 / sum_i ((w_i^2 s_i^2 / n_i)^2 / (n_i - 1))

    over the tasks i of both sides, w_i one over the number of tasks on the side of i, s_i^2 the variance of its n_i
    runs. Runs of different tasks and sides are taken to be independent.

    left, right: for each task its runs, [run]; a side without tasks is a known number, zero

    Both bounds are NaN if a task has one run or a number that is not finite, and equal to d where no task varies.
    """
    d, parts, freedom = 0.0, [], []
    for sign, side in ((1, left), (-1, right)):
        for runs in (np.asarray(each, dtype=np.float64) for each in side):
            if len(runs) < 2 or not np.isfinite(runs).all():
                return np.nan, np.nan
            d += sign * float(runs.mean()) / len(side)
            parts.append(float(runs.var(ddof=1)) / len(runs) / len(side) ** 2)
            freedom.append(len(runs) - 1)
    v = sum(parts)
    if not v:
        return d, d
    shares = sum((part / v) ** 2 / n for part, n in zip(parts, freedom, strict=True))
    half = student_quantile((1 + level) / 2, 1 / shares) * v**0.5
    return d - half, d + half


def student_quantile(probability: float, freedom: float) -> float:
    """The quantile, for a probability of 1/2 and more, of Student's t with at least one degree of freedom.

    t = sqrt(freedom) tan(phi), where phi in [-pi/2, pi/2] has a density proportional to cos(phi)^(freedom - 1).
    """
    if not (0.5 <= probability < 1 and freedom >= 1):
        given = f"got {probability} and {freedom}"
        raise ValueError(f"a quantile needs a probability in [0.5, 1) and at least one degree of freedom; {given}")
    phi = np.linspace(0, np.pi / 2, GRID)
    density = np.cos(phi) ** (freedom - 1)
    mass = np.concatenate([[0], np.cumsum(density[1:] + density[:-1])])
    return float(freedom**0.5 * np.tan(np.interp(2 * probability - 1, mass / mass[-1], phi)))
