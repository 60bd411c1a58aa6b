"""Dropout: numbers of observations that are missing now and then."""

from typing import Annotated

import numpy as np
from annotated_types import Ge, Le
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from rlmem_envs.wrappers.layer import ObservationLayer, Who


class Dropout(ObservationLayer):
    """Every number of an observation is zero with chance p, by itself (dropout noise).

    | | |
    |---|---|
    | observation | a Box of any shape; its bounds are widened to hold zeros |
    | hidden | which numbers are missing, drawn for each slot and number alone |
    | all else | as of the environment |

    p: chance that a number is missing
    leaf: the part of a Dict or Tuple that it is about; None: the observation
    """

    def __init__(self, env: VectorEnv, p: Annotated[float, Ge(0), Le(1)] = 0.1, leaf: str | None = None):
        super().__init__(env, leaf)
        self._p = p
        self._shows(np.minimum(self._box.low, 0), np.maximum(self._box.high, 0))

    def _see(self, obs: NDArray, who: Who) -> NDArray:
        return np.where(self.draws.uniform(who, *self._box.shape) < self._p, obs.dtype.type(0), obs)
