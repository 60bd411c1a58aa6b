"""Returns on the scale of a reference: a random policy's is 0, an expert's 100."""

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from rlmem.config import plainyaml
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


REFERENCES, GAMES, D4RL = (
    {task: Reference(*returns) for task, returns in of_tasks.items()}
    for of_tasks in plainyaml.read(Path(__file__).with_name("references.yaml")).values()
)
"""The references of PyBullet's robots, games of Gymnasium, and MuJoCo's robots; the file names their sources."""


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
