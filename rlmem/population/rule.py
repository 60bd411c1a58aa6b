"""The rule of a round: which agents are compared, and which copies the other."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import ttest_ind_from_stats

from rlmem.seeding import Streams


@dataclass(frozen=True)
class Comparison:
    """Mean returns of an agent and another one, the p-value of their difference, and whether the agent copies."""

    mean: float | None
    other_mean: float | None
    p: float | None
    copies: bool


def partners(seed: int, number: int, agents: int) -> list[int]:
    """For each agent another one, uniformly at random, as a function of the seed and the round `number` alone."""
    rng = np.random.default_rng(Streams(seed).int(f"population/round/{number}"))
    drawn = rng.integers(0, agents - 1, agents)
    return [int(other + (other >= agent)) for agent, other in enumerate(drawn)]


def compare(own: Sequence[float], other: Sequence[float], level: float) -> Comparison:
    """Whether an agent with returns `own` copies one with returns `other`.

    It does if the other's mean is larger and p < level, where p is that of Welch's t-test (unequal variances, two
    sides; Welch 1947, https://doi.org/10.1093/biomet/34.1-2.28). With fewer than two returns on a side there is no p.
    """
    mean, other_mean = (float(np.mean(returns)) if len(returns) else None for returns in (own, other))
    if mean is None or other_mean is None or min(len(own), len(other)) < 2:
        return Comparison(mean, other_mean, None, copies=False)
    p = welch(own, other)
    return Comparison(mean, other_mean, p, copies=other_mean > mean and p < level)


def welch(a: Sequence[float], b: Sequence[float]) -> float:
    """The p-value of `scipy.stats.ttest_ind(a, b, equal_var=False)`; its limit where neither sample varies."""
    if np.ptp(a) == 0 and np.ptp(b) == 0:
        return float(a[0] == b[0])
    (m, s, n), (k, t, l) = ((np.mean(x), np.std(x, ddof=1), len(x)) for x in (a, b))
    return float(ttest_ind_from_stats(m, s, n, k, t, l, equal_var=False).pvalue)
