"""One environment of a batched task, with Gymnasium's interface for single environments."""

from typing import Any

import gymnasium as gym
import numpy as np

from rlmem_envs.core.batched import BatchedEnv


class SingleEnv(gym.Env):
    """A vector of one, without its axis. `vector` is the batched task: its rules, `oracle()` and exact state."""

    def __init__(self, vector: BatchedEnv):
        if vector.num_envs != 1:
            raise ValueError(f"num_envs={vector.num_envs}: expected a vector of 1")
        self.vector = vector
        self.metadata = {name: value for name, value in vector.metadata.items() if name != "autoreset_mode"}
        self.observation_space, self.action_space = vector.single_observation_space, vector.single_action_space
        self.render_mode = vector.render_mode

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """As of the vector; hidden facts in `options` are given without the axis of environments."""
        super().reset(seed=seed)
        options = dict(options or {})
        if hidden := options.get("hidden"):
            options["hidden"] = {name: np.asarray(value)[None] for name, value in hidden.items()}
        obs, info = self.vector.reset(seed=seed, options=options)
        return self._first(obs), {name: value[0] for name, value in info.items()}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Raises gymnasium.error.ResetNeeded after the end of an episode."""
        if self.vector.over[0]:
            raise gym.error.ResetNeeded("the episode is over: call reset() before step()")
        obs, reward, terminated, truncated, info = self.vector.step(np.asarray(action)[None])
        info = {name: value[0] for name, value in info.items() if not name.startswith("_")}
        return self._first(obs), float(reward[0]), bool(terminated[0]), bool(truncated[0]), info

    def render(self) -> Any:
        frames = self.vector.render()
        return None if frames is None else frames[0]

    def close(self) -> None:
        self.vector.close()

    def _first(self, obs: Any) -> Any:
        if isinstance(obs, dict):
            return {name: np.asarray(part[0], self.observation_space[name].dtype)[()] for name, part in obs.items()}  # type: ignore[index]
        return np.asarray(obs[0], self.observation_space.dtype)[()]
