"""Noise: observations with an error of measurement."""

from typing import Annotated

import numpy as np
from annotated_types import Ge
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from rlmem_envs.wrappers.layer import ObservationLayer, Who


class Noise(ObservationLayer):
    """Every number of an observation has a normal error added, of standard deviation std.

    | | |
    |---|---|
    | observation | a Box of floats of any shape, without bounds |
    | hidden | the errors, drawn for each slot and number alone |
    | all else | as of the environment |

    std: standard deviation of the errors
    leaf: the part of a Dict or Tuple that it is about; None: the observation
    """

    def __init__(self, env: VectorEnv, std: Annotated[float, Ge(0)] = 0.1, leaf: str | None = None):
        super().__init__(env, leaf)
        if np.dtype(self._box.dtype).kind != "f":
            raise ValueError(f"Noise reads a Box of floats, not {self._box}")
        self._std = std
        everywhere = np.full(self._box.shape, np.inf, self._box.dtype)
        self._shows(-everywhere, everywhere)

    def _see(self, obs: NDArray, who: Who) -> NDArray:
        return (obs + self._std * self.draws.normal(who, *self._box.shape)).astype(obs.dtype)
