"""Delay: observations that arrive late."""

from typing import Annotated

import numpy as np
from annotated_types import Ge
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from rlmem_envs.wrappers.layer import ObservationLayer, Who


class Delay(ObservationLayer):
    """Slot t shows the observation of slot t - steps; the first `steps` slots show the episode's first one.

    | | |
    |---|---|
    | observation | the one from `steps` slots ago, a Box of any shape |
    | reward, end | at once, as of the environment |

    The last observations of an episode are never seen.

    steps: how late observations are
    leaf: the part of a Dict or Tuple that is late; None: the observation
    """

    def __init__(self, env: VectorEnv, steps: Annotated[int, Ge(0)] = 1, leaf: str | None = None):
        super().__init__(env, leaf)
        self.past = np.zeros((env.num_envs, steps + 1, *self._box.shape), self._box.dtype)  # oldest first
        self._shows(self._box.low, self._box.high)

    def _first(self, who: Who, obs: NDArray) -> None:
        self.past[who] = obs[:, None]

    def _see(self, obs: NDArray, who: Who) -> NDArray:
        self.past[who, :-1] = self.past[who, 1:]
        self.past[who, -1] = obs
        return self.past[who, 0]
