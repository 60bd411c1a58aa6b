"""Pictures of environments, and films of them with captions."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import VectorEnv, VectorWrapper

from rlmem.acting.evaluate import Request, evaluate
from rlmem.acting.workers import closing
from rlmem.agents.actor_critic import Agent
from rlmem.core.errors import UserError
from rlmem.core.seeding import Streams

SIDE = 480
"""Small pictures are enlarged by a whole number, to about this many pixels."""
LETTERS, LINE = 18, 24
"""Heights in pixels of the letters and of a line of a caption."""
LONGEST = 1000
"""The most frames of a film."""
GROUND, INK = (24, 26, 32), (230, 230, 225)


class Frame(NamedTuple):
    """A picture [height, width, 3] of a film, and the lines of its caption."""

    picture: np.ndarray
    caption: Sequence[str]


class Watched(VectorWrapper):
    """Keeps a frame of environment 0 after every reset and step, until its episode or the film is over.

    cut: whether the episode was longer than LONGEST frames
    """

    frames: list[Frame]

    def reset(self, *, seed: Any = None, options: Mapping[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        result = self.env.reset(seed=seed, options=dict(options or {}))
        self.over = self.cut = False
        self.steps, self.total = 0, 0.0
        self.frames = [Frame(picture(self.env), caption(0))]
        return result

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        result = self.env.step(actions)
        if not self.over:
            _, reward, terminated, truncated, _ = result
            self.steps, self.total = self.steps + 1, self.total + float(reward[0])
            end = "terminated" if terminated[0] else "truncated" if truncated[0] else ""
            said = caption(self.steps, np.asarray(actions)[0], float(reward[0]), self.total, end)
            self.frames.append(Frame(picture(self.env), said))
            self.cut = not end and len(self.frames) == LONGEST
            self.over = bool(end) or self.cut
        return result


def film_episode(
    agent: Agent, env: VectorEnv, streams: Streams, device: torch.device, max_steps: int | None, path: Path
) -> Watched:
    """Play one greedy episode and write it as an animation; returns what was watched.

    agent: plays
    env: one environment, which is closed at the end
    streams: the random streams of the episode
    device: where the agent computes
    max_steps: the most steps of an episode of an evaluation; None: there is no bound
    path: the file to write

    Raises UserError if the environment cannot be drawn or the file cannot be written.
    """
    with closing(Watched(env)) as watched:
        evaluate(agent, watched, Request(1, streams, device, min(max_steps or LONGEST, LONGEST)), greedy=True)
    write_gif(watched.frames, path, watched.metadata.get("render_fps", 5))
    return watched


def caption(step: int, action: Any = None, reward: float = 0.0, total: float = 0.0, end: str = "") -> tuple[str, str]:
    """`step 3, action 2` and `reward 0.5, return 1.25`, the action that led to a frame and its result."""
    if step == 0:
        return "step 0", "return 0"
    numbers = [f"{number:.2f}" if isinstance(number, float) else str(number) for number in np.ravel(action).tolist()]
    several = f"[{', '.join(numbers[:4] + ['...'] * (len(numbers) > 4))}]"
    acted = several if np.ndim(action) else numbers[0]
    return f"step {step}, action {acted}{end and ', '}{end}", f"reward {reward:.4g}, return {total:.4g}"


def picture(env: VectorEnv) -> np.ndarray:
    """Environment 0 as it is now, [height, width, 3]. Raises UserError if it cannot be drawn."""
    if hasattr(env.unwrapped, "picture"):
        return np.asarray(env.unwrapped.picture(0))
    try:
        frames = env.render() if env.render_mode == "rgb_array" else None
    except gym.error.Error as error:  # a package is missing
        raise UserError(f"{env.unwrapped}: cannot be drawn ({error})") from error
    if frames is None:
        example = "env=gym env.kwargs.render_mode=rgb_array, or a native task"
        raise UserError(f"{env.unwrapped}: draws nothing; e.g. {example}")
    return np.asarray(frames[0])


def write_gif(frames: Sequence[Frame], path: Path, per_second: float = 5.0) -> None:
    """Write an endless animation of pictures with their captions. Raises UserError if it cannot be written."""
    first, *others = _drawn(frames)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        first.save(path, format="GIF", save_all=True, append_images=others, duration=round(1000 / per_second), loop=0)
    except OSError as error:
        raise UserError(f"{path}: the animation cannot be written ({error.strerror})") from error


def _drawn(frames: Sequence[Frame]) -> list[Any]:
    """Images of one size, that of the largest picture: every picture is enlarged alike, its caption below."""
    from PIL import Image, ImageDraw, ImageFont

    font = ImageFont.load_default(LETTERS)
    height, width = (max(frame.picture.shape[axis] for frame in frames) for axis in (0, 1))
    times = max(1, round(SIDE / max(height, width)))
    below = height * times
    lines = max(len(frame.caption) for frame in frames)
    letters = max((font.getlength(line) for frame in frames for line in frame.caption), default=-LINE)
    size = (max(width * times, round(letters) + LINE), below + LINE * lines + LINE // 2)
    made = []
    for frame in frames:
        image = Image.new("RGB", size, tuple(map(int, frame.picture[-1, -1])))  # the background, as in the corner
        large = frame.picture.repeat(times, axis=0).repeat(times, axis=1)
        image.paste(Image.fromarray(large), ((size[0] - width * times) // 2, 0))
        draw = ImageDraw.Draw(image)
        draw.rectangle((0, below, *size), GROUND)
        for row, line in enumerate(frame.caption):
            draw.text((LINE // 2, below + LINE // 4 + LINE * row), line, INK, font)
        made.append(image)
    return made
