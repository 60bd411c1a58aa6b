"""POPGym's score: the maximum mean episodic return (MMER), and its means over environments and trials.

All environments have equal weight.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from rlmem.stats.scores import Array


@dataclass(frozen=True)
class MMER:
    """The maximum mean episodic return (MMER) of runs [env, trial], and its means."""

    run: Array
    """MMER of each run, [env, trial]."""
    env: Array
    """Mean over trials, [env]."""
    model: float
    """Mean over environments: the number in a table of models."""
    trial: Array
    """Mean over environments, [trial]."""
    trial_std: float
    """Sample standard deviation (n - 1) of `trial`; NaN for one trial."""


def mmer(curves: ArrayLike, timesteps: ArrayLike | None = None, budget: float | None = None) -> Array:
    """Maximum mean episodic return (POPGym, Morad et al. 2023, arXiv:2303.01859) of learning curves [..., iteration].

    The largest value among the iterations with timesteps <= budget, or among all without a budget. A NaN is an
    iteration in which no episode ended, and is ignored. The maximum of a noisy curve is optimistic, so compare it only
    with numbers that were computed in the same way.
    """
    values = np.asarray(curves, dtype=np.float64)
    if budget is not None:
        if timesteps is None:
            raise ValueError("a budget needs the timesteps of the iterations")
        values = values[..., np.asarray(timesteps) <= budget]
    if values.shape[-1] == 0:
        raise ValueError(f"no iteration within the budget of {budget} steps")
    best = np.fmax.reduce(values, axis=-1)
    return np.asarray(best)


def normalised(score: ArrayLike) -> Array:
    """Returns in [-1, 1] as scores in [0, 1]: POPGym's normalised MMER."""
    return 0.5 * np.asarray(score, dtype=np.float64) + 0.5


def summary(run: ArrayLike) -> MMER:
    """The means shown in the papers' tables, from the MMER of runs [env, trial]."""
    runs = np.asarray(run, dtype=np.float64)
    trial = runs.mean(0)
    spread = float(trial.std(ddof=1)) if len(trial) > 1 else np.nan
    return MMER(runs, runs.mean(1), float(runs.mean(1).mean()), trial, spread)
