"""Normalised scores of the PyBullet robots: 0 is a random policy's return, 100 an expert's."""

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from rlmem.stats.scores import Array


@dataclass(frozen=True)
class Reference:
    """The returns that score 0 and 100."""

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


def expert_normalised(returns: ArrayLike, reference: Reference) -> Array:
    """100 (R - R_random) / (R_expert - R_random) (Lu et al. 2024, arXiv:2405.17358, appendix D.5, eq. 3)."""
    return (np.asarray(returns, dtype=np.float64) - reference.random) * reference.scale


def reference_of(task: str) -> Reference:
    """The reference of a robot by the name of a task: `ant`, `ant_p`, `half_cheetah_v`, or as printed, `Cheetah-V`.

    Raises ValueError for any other task.
    """
    robot = re.sub(r"[-_][fpv]$", "", task.lower())
    robot = "half_cheetah" if robot in ("cheetah", "halfcheetah") else robot
    if robot not in REFERENCES:
        raise ValueError(f"no expert's return is known for {task}; there is one for {', '.join(REFERENCES)}")
    return REFERENCES[robot]
