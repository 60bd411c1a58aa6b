"""FrameStack: the last observations side by side."""

from typing import Annotated

import numpy as np
from annotated_types import Gt
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from rlmem_envs.wrappers.layer import ObservationLayer, Who


class FrameStack(ObservationLayer):
    """The last `size` observations of the episode as one, oldest first (Mnih et al. 2015).

    | | |
    |---|---|
    | observation | vectors [D] one after the other [size * D]; grey images [H, W] as [size, H, W]; images with \
channels joined along these |
    | all else | as of the environment |

    Before the episode is as long, its first observation stands for those that are missing. `memory=frame_stack` does
    the same inside of the agent, where nothing is stored several times.

    size: observations that are seen together
    leaf: the part of a Dict or Tuple that it is about; None: the observation
    """

    def __init__(self, env: VectorEnv, size: Annotated[int, Gt(0)] = 4, leaf: str | None = None):
        super().__init__(env, leaf)
        self.past = np.zeros((env.num_envs, size, *self._box.shape), self._box.dtype)  # oldest first
        low, high = (np.repeat(bound[None, None], size, 1) for bound in (self._box.low, self._box.high))
        self._shows(self._joined(low)[0], self._joined(high)[0])

    def _joined(self, frames: NDArray) -> NDArray:
        """Frames [n, size, ...] as one observation each."""
        shape = frames.shape[2:]
        if len(shape) == 2:
            return frames
        if len(shape) == 3 and shape[0] > shape[-1]:  # channels last
            frames = np.moveaxis(frames, 1, -2)
            return frames.reshape(*frames.shape[:-2], -1)
        return frames.reshape(len(frames), -1, *shape[1:])

    def _first(self, who: Who, obs: NDArray) -> None:
        self.past[who] = obs[:, None]

    def _see(self, obs: NDArray, who: Who) -> NDArray:
        self.past[who, :-1] = self.past[who, 1:]
        self.past[who, -1] = obs
        return self._joined(self.past[who]).copy()
