"""Mask: numbers of observations that are never seen."""

from collections.abc import Sequence

import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from rlmem_envs.wrappers.layer import ObservationLayer, Who


class Mask(ObservationLayer):
    """The numbers at some indices of a vector are zero, always.

    | | |
    |---|---|
    | observation | the vector, with zeros at `indices` |
    | all else | as of the environment |

    indices: the places, counted from 0
    leaf: the part of a Dict or Tuple that it is about; None: the observation
    """

    def __init__(self, env: VectorEnv, indices: Sequence[int], leaf: str | None = None):
        super().__init__(env, leaf)
        self._seen = np.ones(self._box.shape, bool)
        self._seen[self._indices(indices)] = False
        self._shows(np.where(self._seen, self._box.low, 0), np.where(self._seen, self._box.high, 0))

    def _see(self, obs: NDArray, who: Who) -> NDArray:
        return np.where(self._seen, obs, obs.dtype.type(0))
