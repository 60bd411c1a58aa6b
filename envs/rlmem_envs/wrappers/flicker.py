"""Flicker: observations that are blank now and then."""

from typing import Annotated

import numpy as np
from annotated_types import Ge, Le
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from rlmem_envs.wrappers.layer import ObservationLayer, Who, beside


class Flicker(ObservationLayer):
    """Every observation is blank, all zeros, with chance p (Hausknecht and Stone 2015, arXiv:1507.06527).

    | | |
    |---|---|
    | observation | a Box of any shape; its bounds are widened to hold zeros |
    | hidden | whether a slot is blank, drawn for each slot alone; the first one of an episode, too |
    | all else | as of the environment |

    p: chance of a blank observation
    leaf: the part of a Dict or Tuple that flickers; None: the observation
    """

    def __init__(self, env: VectorEnv, p: Annotated[float, Ge(0), Le(1)] = 0.5, leaf: str | None = None):
        super().__init__(env, leaf)
        self._p = p
        self._shows(np.minimum(self._box.low, 0), np.maximum(self._box.high, 0))

    def _see(self, obs: NDArray, who: Who) -> NDArray:
        return np.where(beside(self.draws.uniform(who) < self._p, obs), obs.dtype.type(0), obs)
