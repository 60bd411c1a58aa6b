"""Returns on the scale of a reference: a random policy's is 0, an expert's 100."""

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from rlmem.evidence.statistics import Array


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
