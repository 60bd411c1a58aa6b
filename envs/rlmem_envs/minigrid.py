"""MiniGrid's memory tasks and BabyAI (Chevalier-Boisvert et al. 2023, arXiv:2306.13831). Needs the package minigrid."""

import math
from functools import partial
from typing import Annotated, Any, Literal

import gymnasium as gym
import numpy as np
from annotated_types import Gt
from gymnasium.spaces import Box
from gymnasium.wrappers import FlattenObservation, TransformObservation

from rlmem_envs.replay import ReplayableVectorEnv
from rlmem_envs.vector import vectorise

View = Literal["onehot", "symbols", "pixels", "flat"]


class Success(gym.Wrapper):
    """`info["success"]`, with the last step of an episode: it was rewarded, which MiniGrid does for success alone."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        if terminated or truncated:
            info = {**info, "success": bool(float(reward) > 0)}
        return obs, reward, terminated, truncated, info


def make(
    id: str = "MiniGrid-MemoryS7-v0",
    view: View = "onehot",
    num_envs: Annotated[int, Gt(0)] = 64,
    max_episode_steps: Annotated[int, Gt(0)] | None = None,
    kwargs: dict[str, Any] | None = None,
) -> ReplayableVectorEnv:
    """`num_envs` copies of an environment of MiniGrid or BabyAI, stepped one after the other.

    Observation: what lies in the 7 x 7 cells in front of the agent; see `view`. Action: Discrete(7): left, right,
    forward, pick up, drop, toggle, done. Reward: 1 - 0.9 steps / limit for success, 0 otherwise; `info["success"]` too.
    Ends (terminated) with success or failure; is cut off (truncated) at the environment's own limit.

    id: as in the package, such as MiniGrid-MemoryS13Random-v0 or BabyAI-GoToRedBall-v0
    view: onehot: a Box of 0 and 1, object, colour and state of every cell, one-hot; symbols: the same as an image
        (7, 7, 3) of their numbers; pixels: an image (56, 56, 3) of the cells; flat: the numbers as a vector and the
        letters of the instruction one-hot, for tasks of BabyAI, where instructions differ
    max_episode_steps: time limit in environment steps (truncates); None keeps the environment's own

    The exact state is brought back by replaying the running episodes. Raises ImportError without minigrid,
    gymnasium.error.Error for an unknown id.
    """
    try:
        import minigrid  # noqa: F401  registers the ids
    except ImportError as error:
        raise ImportError(
            "MiniGrid and BabyAI need minigrid, which is not installed; pip install '.[minigrid]' in a clone of rlmem"
        ) from error
    return vectorise(partial(_one, id, view, max_episode_steps, kwargs or {}), num_envs)


def _one(id: str, view: View, max_episode_steps: int | None, kwargs: dict[str, Any]) -> gym.Env:
    from minigrid import wrappers

    env = gym.make(id, max_episode_steps, render_mode="rgb_array", disable_env_checker=True, **kwargs)
    if view == "onehot":
        env = _at_most(FlattenObservation(wrappers.ImgObsWrapper(wrappers.OneHotPartialObsWrapper(env))), 1)
    elif view == "symbols":
        env = _at_most(wrappers.ImgObsWrapper(env), _greatest())
    elif view == "pixels":
        env = wrappers.ImgObsWrapper(wrappers.RGBImgPartialObsWrapper(env))
    else:
        cells = _shape(env.observation_space["image"])  # type: ignore[index]
        env = wrappers.FlatObsWrapper(env)
        letters = _shape(env.observation_space)[0] - math.prod(cells)
        env = _at_most(env, _greatest() * math.prod(cells[:2]) + [1] * letters)
    return Success(env)


def _at_most(env: gym.Env, greatest: int | list[int]) -> gym.Env:
    """`env` with true bounds, by which encoders scale its bytes; the package says 255 of all of them."""
    high = np.broadcast_to(np.array(greatest, np.uint8), _shape(env.observation_space))
    return TransformObservation(env, lambda obs: obs, Box(np.zeros_like(high), high, dtype=np.uint8))


def _shape(space: gym.Space) -> tuple[int, ...]:
    return space.shape or ()


def _greatest() -> list[int]:
    """The greatest number of an object, a colour and a state."""
    from minigrid.core import constants

    return [max(of.values()) for of in (constants.OBJECT_TO_IDX, constants.COLOR_TO_IDX, constants.STATE_TO_IDX)]
