"""Welch's t intervals, for the few runs from which the bootstrap's are too narrow, and how many runs would decide."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import fsum, inf, isfinite, nan

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import nctdtr, stdtrit

from rlmem.stats.resampling import LEVEL

POWER = 0.8
ROUNDING = 1e-12
"""The share of the terms of a sum below which it is their rounding."""
Range = tuple[float, float]
ANY: Range = (-inf, inf)
"""The range of what may have any value."""
MOST = 1000
"""The greatest number of runs that `runs_to_decide` gives."""


@dataclass(frozen=True)
class Contrast:
    """A weighted sum of means of independent samples, plus a constant (Welch 1947, Biometrika 34).

        v = sum_i w_i^2 s_i^2 / n_i,   degrees of freedom  v^2 / sum_i ((w_i^2 s_i^2 / n_i)^2 / (n_i - 1))

    value: the estimate; NaN if a number is not finite
    variances: w_i^2 s_i^2 of each sample, NaN for a sample of one run
    runs: n_i
    """

    value: float
    variances: tuple[float, ...] = ()
    runs: tuple[int, ...] = ()

    @property
    def error(self) -> float:
        """The standard error of the estimate; NaN if a sample has a single run."""
        return sum(variance / n for variance, n in zip(self.variances, self.runs, strict=True) if n) ** 0.5

    def bounds(self, level: float = LEVEL, possible: Range = ANY) -> tuple[float, float]:
        """The bounds of the t interval; NaN if there are none, and equal to the value where no sample varies.

        possible: the values that the estimate can have, within which the interval stays
        """
        if not isfinite(self.value + sum(self.variances)):
            return nan, nan
        parts = [variance / n for variance, n in zip(self.variances, self.runs, strict=True)]
        v = sum(parts)
        if not v:
            return self.value, self.value
        freedom = 1 / sum((part / v) ** 2 / (n - 1) for part, n in zip(parts, self.runs, strict=True))
        half = float(stdtrit(freedom, (1 + level) / 2)) * v**0.5
        return within(self.value, self.value - half, self.value + half, possible)

    def power(self, runs: int, level: float) -> float:
        """The chance that the interval of so many runs of each sample lies above zero, if all is as it was seen."""
        v = sum(self.variances) / runs
        if not v:
            return float(self.value > 0)
        freedom = (runs - 1) * (v * runs) ** 2 / sum(variance**2 for variance in self.variances)
        return 1 - float(nctdtr(freedom, self.value / v**0.5, stdtrit(freedom, (1 + level) / 2)))


def within(value: float, low: float, high: float, possible: Range) -> tuple[float, float]:
    """The bounds of an interval around a value, within what is possible."""
    return max(low, min(possible[0], value)), min(high, max(possible[1], value))


def contrast(samples: Iterable[tuple[float, ArrayLike]], constant: float = 0.0) -> Contrast:
    """The contrast of (weight, runs of a sample [run]) and a constant. A sample without runs makes it NaN.

    A sum that is nothing but the rounding of its terms is zero: runs that do not vary would else decide by it.
    """
    terms, variances, numbers = [constant], [], []
    for weight, sample in samples:
        runs = np.asarray(sample, dtype=np.float64)
        finite = len(runs) > 0 and bool(np.isfinite(runs).all())
        terms.append(weight * float(runs.mean()) if finite else nan)
        varies = finite and np.ptp(runs) > 0  # the variance of equal numbers is not always zero
        spread = float(runs.var(ddof=1)) if varies else 0.0
        variances.append(weight**2 * spread if finite and len(runs) > 1 else nan)
        numbers.append(len(runs))
    value = fsum(terms)
    if abs(value) <= ROUNDING * fsum(map(abs, terms)):
        value = 0.0
    return Contrast(value, tuple(variances), tuple(numbers))


def runs_to_decide(
    contrasts: Sequence[Contrast], level: float = LEVEL, against: float | None = None, power: float = POWER
) -> int | None:
    """The number of runs of each sample with which intervals would show that all contrasts are positive, or one not.

    contrasts: which of both it is, and the spread of runs, are taken to be as seen
    level: of the intervals that must all lie above zero
    against: of the interval of which one must lie below zero; None: `level`
    power: the chance of such an outcome

    None if that takes more than MOST runs, or if nothing is known of the spread.
    """
    worst = min(contrasts, key=lambda each: each.value)

    def chance(runs: int) -> float:
        if worst.value > 0:
            return 1 - sum(1 - each.power(runs, level) for each in contrasts)
        turned = Contrast(-worst.value, worst.variances, worst.runs)
        return turned.power(runs, level if against is None else against)

    if not all(isfinite(each.value + sum(each.variances)) for each in contrasts) or chance(MOST) < power:
        return None
    few, enough = 1, MOST
    while enough - few > 1:
        middle = (few + enough) // 2
        few, enough = (few, middle) if chance(middle) >= power else (middle, enough)
    return enough
