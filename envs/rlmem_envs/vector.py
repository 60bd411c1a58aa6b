"""Vector environments from single Gymnasium environments, with observations an encoder can read."""

from collections.abc import Callable
from typing import Annotated, Any

import gymnasium as gym
import numpy as np
from annotated_types import Gt
from gymnasium import spaces
from gymnasium.wrappers import FlattenObservation, TimeLimit, TransformObservation

from rlmem_envs.replay import ReplayableVectorEnv


def make(
    id: str,
    num_envs: Annotated[int, Gt(0)] = 64,
    max_episode_steps: Annotated[int, Gt(0)] | None = None,
    kwargs: dict[str, Any] | None = None,
) -> ReplayableVectorEnv:
    """`num_envs` copies of the registered Gymnasium environment `id`.

    max_episode_steps: time limit in environment steps (truncates); None keeps the environment's own.
    Raises gymnasium.error.Error if `id` is unknown or a package it needs is missing.
    """
    return vectorise(lambda: gym.make(id, **(kwargs or {})), num_envs, max_episode_steps)


def vectorise(
    make_env: Callable[[], gym.Env], num_envs: int, max_episode_steps: int | None = None
) -> ReplayableVectorEnv:
    """Vector of `num_envs` environments whose observations are a Box, Discrete or MultiDiscrete."""

    def make_one() -> gym.Env:
        env = flat_observations(make_env())
        return env if max_episode_steps is None else TimeLimit(env, max_episode_steps)

    return ReplayableVectorEnv([make_one] * num_envs)


def flat_observations(env: gym.Env) -> gym.Env:
    """Show a Tuple of discrete observations as one MultiDiscrete, any other composite as one Box."""
    space = env.observation_space
    if isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiDiscrete):
        return env
    if isinstance(space, spaces.Tuple) and all(isinstance(part, spaces.Discrete) for part in space):
        starts = np.array([part.start for part in space])
        nvec = [int(part.n) for part in space]
        return TransformObservation(env, lambda obs: np.array(obs) - starts, spaces.MultiDiscrete(nvec))
    return FlattenObservation(env)
