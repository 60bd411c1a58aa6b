"""Vector environments from single Gymnasium environments, with observations an encoder can read."""

from collections.abc import Callable
from typing import Annotated, Any

import gymnasium as gym
import numpy as np
from annotated_types import Gt
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit, TransformObservation

from rlmem_envs.replay import ReplayableVectorEnv


def make(
    id: str,
    num_envs: Annotated[int, Gt(0)] = 64,
    max_episode_steps: Annotated[int, Gt(0)] | None = None,
    kwargs: dict[str, Any] | None = None,
    action_masks: bool = False,
) -> ReplayableVectorEnv:
    """`num_envs` copies of the registered Gymnasium environment `id`.

    action_masks: whether agents follow the masks in `info["action_mask"]`. Those in observations, and those that
        `action_masks()` of an environment returns, are always followed
    max_episode_steps: time limit in environment steps (truncates); None keeps the environment's own.
    Raises gymnasium.error.Error if `id` is unknown or a package it needs is missing.
    """
    env = vectorise(lambda: gym.make(id, **(kwargs or {})), num_envs, max_episode_steps)
    env.masks_in_info = action_masks
    return env


def vectorise(
    make_env: Callable[[], gym.Env], num_envs: int, max_episode_steps: int | None = None
) -> ReplayableVectorEnv:
    """Vector of `num_envs` environments, as `flat_observations` shows them."""

    def make_one() -> gym.Env:
        env = flat_observations(make_env())
        return env if max_episode_steps is None else TimeLimit(env, max_episode_steps)

    return ReplayableVectorEnv([make_one] * num_envs)


def flat_observations(env: gym.Env) -> gym.Env:
    """Show a Tuple of Discrete values as one MultiDiscrete of the same values. Other observations stay as they are."""
    space = env.observation_space
    if isinstance(space, spaces.Tuple) and all(isinstance(part, spaces.Discrete) for part in space):
        nvec, start = ([int(getattr(part, name)) for part in space] for name in ("n", "start"))
        return TransformObservation(env, np.array, spaces.MultiDiscrete(nvec, start=start))
    return env
