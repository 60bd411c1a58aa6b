"""What POPGym's baselines append to every observation: the previous action and a flag of the first step.

Both work on any vector of POPGym games, native or of the package, with NEXT_STEP autoreset and an exact state. All
spaces of POPGym count from 0.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from gymnasium.vector import VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from rlmem_envs.core.columns import Columns, sizes


class Appended(VectorWrapper):
    """Observations [N, D] with one more value at their end.

    Discrete values joined to discrete observations make a MultiDiscrete. Everything else makes a Box, where what is
    discrete is one-hot. `state` and `restore` save what is appended, too; all other attributes are those of `env`.

    env: a vector with observations in a Box of one dimension, a Discrete or a MultiDiscrete
    part: space of the appended value
    first: that value at the first observation of an episode
    """

    def __init__(self, env: VectorEnv, part: Space, first: int):
        super().__init__(env)
        old = env.single_observation_space
        discrete = not isinstance(old, Box) and not isinstance(part, Box)
        self._old, self._part = Columns(old, not discrete), Columns(part, not discrete)
        if discrete:
            self.single_observation_space = MultiDiscrete([*sizes(old), *sizes(part)])
        else:
            dtype = (old if isinstance(old, Box) else part).dtype
            low, high = (np.concatenate(ends) for ends in zip(self._old.bounds, self._part.bounds, strict=True))
            self.single_observation_space = Box(low.astype(dtype), high.astype(dtype), dtype=dtype)  # type: ignore[arg-type]
        self.observation_space = batch_space(self.single_observation_space, env.num_envs)
        self.first = first
        self.appended = np.full((env.num_envs, *(part.shape or ())), first, part.dtype)
        self.over = np.zeros(env.num_envs, bool)

    def _next(self, actions: Any) -> NDArray[Any]:
        """What is appended after `actions` [N, ...], in a new array [N, ...]."""
        raise NotImplementedError

    def reset(self, *, seed: Any = None, options: Mapping[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        mask = (options or {}).get("reset_mask")
        obs, info = self.env.reset(seed=seed, options=options)  # type: ignore[arg-type]
        who = slice(None) if mask is None else mask
        self.appended[who] = self.first
        self.over[who] = False
        return self._join(obs), info

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(actions)
        self.appended = self._next(actions)
        self.appended[self.over] = self.first
        self.over = terminated | truncated
        return self._join(obs), reward, terminated, truncated, info

    def _join(self, obs: NDArray[Any]) -> NDArray[Any]:
        width = self._old.width
        joined = np.zeros(self.observation_space.shape or (), self.observation_space.dtype)
        self._old.write(obs, joined[:, :width])
        self._part.write(self.appended, joined[:, width:])
        return joined

    def state(self) -> dict[str, Any]:
        """Everything needed to go on exactly from here."""
        return {"env": self.env.state(), "appended": self.appended.copy(), "over": self.over.copy()}  # type: ignore[attr-defined]

    def restore(self, state: dict[str, Any]) -> None:
        """Bring a vector of the same size to a saved `state`."""
        self.env.restore(state["env"])  # type: ignore[attr-defined]
        self.appended, self.over = np.array(state["appended"]), np.array(state["over"])

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "env":
            raise AttributeError(name)
        return getattr(self.env, name)


class PreviousAction(Appended):
    """Appends the action before the observation: 0 at the first one of an episode, as POPGym does.

    A first observation looks like one after action 0, unless a `StartFlag` is put around it.
    """

    def __init__(self, env: VectorEnv):
        super().__init__(env, env.single_action_space, first=0)

    def _next(self, actions: Any) -> NDArray[Any]:
        return np.array(actions, self.appended.dtype)


class StartFlag(Appended):
    """Appends 1 to the first observation of an episode, 0 to all others: `Antialias` of POPGym."""

    def __init__(self, env: VectorEnv):
        super().__init__(env, Discrete(2), first=1)

    def _next(self, actions: Any) -> NDArray[Any]:
        return np.zeros_like(self.appended)
