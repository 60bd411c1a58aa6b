"""What environments look like, frame by frame, and GIFs of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorEnv, VectorWrapper

from rlmem.errors import UserError


class Watched(VectorWrapper):
    """Keeps a picture [height, width, 3] of environment 0 after every reset and step, until its episode is over."""

    def __init__(self, env: VectorEnv):
        super().__init__(env)
        self.frames: list[np.ndarray] = []
        self.over = False

    def reset(self, *, seed: Any = None, options: Mapping[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        result = self.env.reset(seed=seed, options=dict(options or {}))
        self.frames, self.over = [picture(self.env)], False
        return result

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        result = self.env.step(actions)
        if not self.over:
            self.frames.append(picture(self.env))
            self.over = bool(result[2][0] | result[3][0])
        return result


def picture(env: VectorEnv) -> np.ndarray:
    """Environment 0 as it is now, [height, width, 3]. Raises UserError if it cannot be drawn."""
    if hasattr(env.unwrapped, "picture"):
        return np.asarray(env.unwrapped.picture(0))
    try:
        frames = env.render() if env.render_mode == "rgb_array" else None
    except gym.error.Error as error:  # a package is missing
        raise UserError(f"{env.unwrapped}: cannot be drawn ({error})") from error
    if frames is None:
        raise UserError(
            f"{env.unwrapped}: draws nothing; e.g. env=gym env.kwargs.render_mode=rgb_array, or a native task"
        )
    return np.asarray(frames[0])


def write_gif(frames: Sequence[np.ndarray], path: Path, per_second: float = 5.0) -> None:
    """An endlessly repeated animation; frames of different sizes are put on the ground of the largest.

    Raises UserError if it cannot be written there.
    """
    from PIL import Image

    height, width = (max(frame.shape[axis] for frame in frames) for axis in (0, 1))
    images = [Image.fromarray(_padded(frame, height, width)) for frame in frames]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        images[0].save(
            path, format="GIF", save_all=True, append_images=images[1:], duration=round(1000 / per_second), loop=0
        )
    except OSError as error:
        raise UserError(f"{path}: the animation cannot be written ({error.strerror})") from error


def _padded(frame: np.ndarray, height: int, width: int) -> np.ndarray:
    padded = np.empty((height, width, 3), np.uint8)
    padded[:] = frame[-1, -1]  # the ground, in the corner
    padded[: frame.shape[0], : frame.shape[1]] = frame
    return padded
