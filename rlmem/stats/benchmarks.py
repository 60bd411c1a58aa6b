"""The scores of benchmarks: POPGym's maximum mean episodic return, and returns on the scale of a reference."""

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from rlmem.stats.aggregate import Array


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
    return np.asarray(np.fmax.reduce(values, axis=-1))


def normalised(score: ArrayLike) -> Array:
    """Returns in [-1, 1] as scores in [0, 1]: POPGym's normalised MMER."""
    return 0.5 * np.asarray(score, dtype=np.float64) + 0.5


def summary(run: ArrayLike) -> MMER:
    """The means shown in the papers' tables, from the MMER of runs [env, trial]; all environments weigh the same."""
    runs = np.asarray(run, dtype=np.float64)
    trial, env = runs.mean(0), runs.mean(1)
    return MMER(runs, env, float(env.mean()), trial, float(trial.std(ddof=1)) if len(trial) > 1 else np.nan)


@dataclass(frozen=True)
class Reference:
    """The returns of a task that score 0 and 100.

    random: mean return of a policy that draws its actions uniformly
    expert: mean return of an expert, or the one from which the task counts as solved
    """

    random: float
    expert: float

    @property
    def scale(self) -> float:
        """Score per unit of return, by which standard deviations of returns are multiplied, too."""
        return 100 / (self.expert - self.random)


REFERENCES = {
    "ant": Reference(373.71, 2650.5),
    "half_cheetah": Reference(-1275.77, 2381.67),
    "hopper": Reference(20.06, 1441.81),
    "walker": Reference(16.52, 1623.65),
}
"""Table 5 of Rethinking Transformers (Lu et al. 2024, arXiv:2405.17358); the returns are those of D4RL (Fu et al. 2020,
arXiv:2004.07219), measured with whole observations and used for hidden ones as well."""

GAMES = {
    "CartPole-v1": Reference(22.2, 475),
    "Acrobot-v1": Reference(-499.1, -100),
    "Pendulum-v1": Reference(-1231, -200),
    "LunarLander-v3": Reference(-182, 200),
}
"""Games of Gymnasium: the mean return of 1,000 random episodes (standard errors 0.4, 0.3, 9 and 3.5), and the
registered `reward_threshold`. Pendulum has none; -200 is in common use. Their forms that hide a part of the state have
the same rewards and ends."""


D4RL = {
    "HalfCheetah-v4": Reference(-280.18, 12135.0),
    "Hopper-v4": Reference(-20.27, 3234.3),
    "Walker2d-v4": Reference(1.63, 4592.3),
}
"""MuJoCo's robots: D4RL's reference scores (Fu et al. 2020, arXiv:2004.07219)."""


def expert_normalised(returns: ArrayLike, reference: Reference) -> Array:
    """100 (R - R_random) / (R_expert - R_random) (Lu et al. 2024, arXiv:2405.17358, appendix D.5, eq. 3)."""
    return (np.asarray(returns, dtype=np.float64) - reference.random) * reference.scale


def reference_of(task: str) -> Reference:
    """The reference of a game or robot by its id in GAMES or D4RL, or of a robot of PyBullet: `ant`, `ant_p`,
    `half_cheetah_v`, `Cheetah-V`.

    Raises ValueError for any other task.
    """
    if task in (known := GAMES | D4RL):
        return known[task]
    robot = re.sub(r"[-_][fpv]$", "", task.lower())
    robot = "half_cheetah" if robot in ("cheetah", "halfcheetah") else robot
    if robot not in REFERENCES:
        names = ", ".join((*REFERENCES, *known))
        raise ValueError(f"no expert's return is known for {task}; there is one for {names}")
    return REFERENCES[robot]
