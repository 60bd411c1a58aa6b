"""Noise on what a task shows, as in the noisy games of POPGym."""

from typing import Annotated, Any

import numpy as np
from annotated_types import Ge, Gt
from numpy.typing import NDArray

from rlmem_envs.core.batched import BatchedEnv, Facts, Who


class SensorNoise(BatchedEnv):
    """Adds normal noise to every number of every observation, the first included, and clips the sum to the space.

    To be named before the task whose observations it disturbs. `noise` [T, D] of an episode can be given to `reset`.

    noise_sigma: standard deviation of the noise
    max_episode_length: the most steps of an episode
    """

    levels = {
        "easy": {"noise_sigma": 0.1, "max_episode_length": 200},
        "medium": {"noise_sigma": 0.2, "max_episode_length": 200},
        "hard": {"noise_sigma": 0.3, "max_episode_length": 200},
    }

    def __init__(
        self,
        num_envs: Annotated[int, Gt(0)] = 1,
        noise_sigma: Annotated[float, Ge(0)] = 0.1,
        max_episode_length: Annotated[int, Gt(0)] = 200,
        **kwargs: Any,
    ):
        super().__init__(num_envs=num_envs, max_episode_length=max_episode_length, **kwargs)
        self.params["noise_sigma"] = noise_sigma
        self._sigma, (self._width,) = noise_sigma, self._space.shape or ()
        self.per_step = {"noise": (self._width,)}
        self.noise = np.zeros((self.num_envs, self._width), np.float32)

    def _begin(self, who: Who, facts: Facts) -> None:
        super()._begin(who, facts)
        noise = self._sigma * self.draws.normal(who, self._width)
        self.noise[who] = self._or_given("noise", noise, who, self.t[who])

    def _advance(self, actions: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]:
        outcome = super()._advance(actions)
        noise = self._sigma * self.draws.normal(None, self._width)
        self.noise[:] = self._or_given("noise", noise, self._all, self.t + 1)
        return outcome

    def _observe(self) -> NDArray[Any]:
        space: Any = self._space
        return np.minimum(np.maximum(super()._observe() + self.noise, space.low), space.high)
