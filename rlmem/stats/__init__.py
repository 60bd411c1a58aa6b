"""Statistics of many runs: aggregates, intervals, comparisons and normalised scores. They need numpy and scipy only.

Scores are a matrix [run, task]: the runs of one algorithm, with a column for each task. The aggregates and the
bootstrap are those of Agarwal et al. 2021 (arXiv:2108.13264); docs/statistics.md says what is resampled. All tasks
have equal weight. Nothing draws from a global generator. A NaN is a diverged run, and makes what contains it NaN.
"""

from rlmem.stats.aggregate import AGGREGATES, iqm, matrix, mean, median, optimality_gap
from rlmem.stats.benchmarks import (
    GAMES,
    REFERENCES,
    Reference,
    expert_normalised,
    reference_of,
)
from rlmem.stats.compare import mann_whitney_u, performance_profile, probability_of_improvement, ranks
from rlmem.stats.resampling import bootstrap, interval, percentile_bounds, resample
from rlmem.stats.twins import memory_bias, memory_improvability, observability_gap
from rlmem.stats.welch import Contrast, contrast, runs_to_decide

__all__ = [
    "AGGREGATES",
    "GAMES",
    "REFERENCES",
    "Contrast",
    "Reference",
    "bootstrap",
    "contrast",
    "expert_normalised",
    "interval",
    "iqm",
    "mann_whitney_u",
    "matrix",
    "mean",
    "median",
    "memory_bias",
    "memory_improvability",
    "observability_gap",
    "optimality_gap",
    "percentile_bounds",
    "performance_profile",
    "probability_of_improvement",
    "ranks",
    "reference_of",
    "resample",
    "runs_to_decide",
]
