"""Atari 2600 games (Bellemare et al. 2013, arXiv:1207.4708), as Memoroids plays them. Needs the package ale-py."""

from typing import Annotated, Any

import gymnasium as gym
import numpy as np
from annotated_types import Ge, Gt, Le
from gymnasium.spaces import Box
from numpy.typing import NDArray

from rlmem_envs.replay import ReplayableVectorEnv
from rlmem_envs.vector import vectorise


class GreyFrames(gym.Wrapper):
    """Grey screens made smaller, after a random number of no-ops at the beginning (Mnih et al. 2015).

    What Gymnasium's AtariPreprocessing with `frame_skip=1` shows, without OpenCV: a pixel of the small picture is the
    mean of the area that it covers. A few pixels in a million differ, by the rounding of a half.

    size: height and width
    noop_max: most no-ops at the beginning; there is at least one, unless this is 0
    """

    def __init__(self, env: gym.Env, size: int, noop_max: int):
        super().__init__(env)
        height, width = env.observation_space.shape  # type: ignore[misc]
        self.rows, self.columns = covering(height, size), covering(width, size).T
        self.noop_max = noop_max
        self.observation_space = Box(0, 255, (size, size), np.uint8)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        screen, info = self.env.reset(seed=seed, options=options)
        noops = self.env.unwrapped.np_random.integers(1, self.noop_max + 1) if self.noop_max else 0
        for _ in range(noops):
            screen, _, terminated, truncated, _ = self.env.step(0)
            if terminated or truncated:
                screen, info = self.env.reset(seed=seed, options=options)
        return self.small(screen), info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        screen, reward, terminated, truncated, info = self.env.step(action)
        return self.small(screen), reward, terminated, truncated, info

    def small(self, screen: NDArray[np.uint8]) -> NDArray[np.uint8]:
        return np.rint(self.rows @ screen @ self.columns).astype(np.uint8)


def covering(length: int, parts: int) -> NDArray[np.float32]:
    """[parts, length]: how much of each equal part of a line the pixels of that line are."""
    edges = np.arange(parts + 1)[:, None] * length / parts
    covered = np.clip(edges, np.arange(length), np.arange(1, length + 1))
    return (np.diff(covered, axis=0) * parts / length).astype(np.float32)


def make(
    game: str = "Asteroids",
    num_envs: Annotated[int, Gt(0)] = 64,
    frame_skip: Annotated[int, Gt(0)] = 4,
    repeat_action_probability: Annotated[float, Ge(0), Le(1)] = 0.25,
    full_action_space: bool = False,
    noop_max: Annotated[int, Ge(0)] = 30,
    screen_size: Annotated[int, Gt(0)] = 84,
    max_episode_steps: Annotated[int, Gt(0)] | None = None,
) -> ReplayableVectorEnv:
    """`num_envs` copies of ALE/<game>-v5, stepped one after the other.

    Observation: Box(0, 255, (screen_size, screen_size), uint8), one grey screen. Action: Discrete, those that the game
    uses. Reward: the game's points. Ends (terminated) when the game is over; is cut off (truncated)
    after 108,000 frames.

    repeat_action_probability: chance in each frame that the action before is taken once more (Machado et al. 2018)
    full_action_space: all 18 actions

    The exact state is brought back by replaying the running episodes, up to 27,000 steps each. Raises ImportError
    without ale-py, gymnasium.error.Error for an unknown game.
    """
    try:
        import ale_py
    except ImportError as error:
        raise ImportError(
            "Atari games need ale-py, which is not installed; pip install '.[atari]' in a clone of rlmem"
        ) from error
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # no banner
    gym.register_envs(ale_py)

    def make_one() -> gym.Env:
        env = gym.make(
            f"ALE/{game}-v5",
            obs_type="grayscale",
            frameskip=frame_skip,
            repeat_action_probability=repeat_action_probability,
            full_action_space=full_action_space,
            render_mode="rgb_array",
            disable_env_checker=True,
        )
        return GreyFrames(env, screen_size, noop_max)

    return vectorise(make_one, num_envs, max_episode_steps)
