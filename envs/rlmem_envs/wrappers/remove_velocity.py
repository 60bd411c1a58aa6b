"""RemoveVelocity: vectors without the numbers that are velocities."""

from collections.abc import Sequence

from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from rlmem_envs.wrappers.layer import ObservationLayer, Who


class RemoveVelocity(ObservationLayer):
    """The numbers at some indices of a vector are left out, such as velocities, which memory must then estimate.

    | | |
    |---|---|
    | observation | the vector without `indices`, which is shorter |
    | all else | as of the environment |

    Velocities of Gymnasium's classic control: CartPole-v1 [1, 3], Acrobot-v1 [4, 5], Pendulum-v1 [2], MountainCar-v0
    and MountainCarContinuous-v0 [1]; of LunarLander-v3 [2, 3, 5].

    indices: the places of the velocities, counted from 0
    leaf: the part of a Dict or Tuple that it is about; None: the observation
    """

    def __init__(self, env: VectorEnv, indices: Sequence[int], leaf: str | None = None):
        super().__init__(env, leaf)
        removed = self._indices(indices)
        self._left = [place for place in range(self._box.shape[0]) if place not in removed]
        if not self._left:
            raise ValueError(f"indices={list(indices)}: nothing is left of {self._box}")
        self._shows(self._box.low[self._left], self._box.high[self._left])

    def _see(self, obs: NDArray, who: Who) -> NDArray:
        return obs[:, self._left]
