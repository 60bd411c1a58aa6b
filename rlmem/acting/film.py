"""Pictures of environments: films of them with captions, and games in the terminal (`rlmem play`)."""

import contextlib
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any, Literal, NamedTuple

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import VectorEnv, VectorWrapper

from rlmem.acting.evaluate import Request, evaluate
from rlmem.acting.workers import closing
from rlmem.agents.actor_critic import Agent
from rlmem.core.errors import UserError
from rlmem.core.seeding import Streams
from rlmem.core.spaces import ACTION_MASK, component_sizes
from rlmem.core.types import each_leaf

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


Show = Callable[[Any, Sequence[str]], None]
"""Shows environment 0 as it is now, of which an observation and the lines of a caption are given."""


class Watched(VectorWrapper):
    """Calls `show` after every reset and step of environment 0, until its episode is over.

    most: frames after which an episode counts as over
    cut: whether it was
    """

    def __init__(self, env: VectorEnv, show: Show, most: float = inf):
        super().__init__(env)
        self.show, self.most = show, most

    def reset(self, *, seed: Any = None, options: Mapping[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        result = self.env.reset(seed=seed, options=dict(options or {}))
        self.over = self.cut = False
        self.steps, self.total = 0, 0.0
        self.show(result[0], caption(0))
        return result

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        result = self.env.step(actions)
        if not self.over:
            obs, reward, terminated, truncated, _ = result
            self.steps, self.total = self.steps + 1, self.total + float(reward[0])
            end = "terminated" if terminated[0] else "truncated" if truncated[0] else ""
            self.cut = not end and self.steps + 1 == self.most
            self.over = bool(end) or self.cut
            self.show(obs, caption(self.steps, np.asarray(actions)[0], float(reward[0]), self.total, end))
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
    frames: list[Frame] = []
    show = lambda obs, said: frames.append(Frame(picture(env), said))  # noqa: E731
    with closing(Watched(env, show, LONGEST)) as watched:
        evaluate(agent, watched, Request(1, streams, device, min(max_steps or LONGEST, LONGEST)), greedy=True)
    write_gif(frames, path, watched.metadata.get("render_fps", 5))
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
    images = []
    for frame in frames:
        image = Image.new("RGB", size, tuple(map(int, frame.picture[-1, -1])))  # the background, as in the corner
        large = frame.picture.repeat(times, axis=0).repeat(times, axis=1)
        image.paste(Image.fromarray(large), ((size[0] - width * times) // 2, 0))
        draw = ImageDraw.Draw(image)
        draw.rectangle((0, below, *size), GROUND)
        for row, line in enumerate(frame.caption):
            draw.text((LINE // 2, below + LINE // 4 + LINE * row), line, INK, font)
        images.append(image)
    return images


PlayerName = Literal["keys", "random", "memoryless", "oracle"]
Choose = Callable[[Any], Any]
"""The next action, or None to end the game, of what is observed."""
CLEAR = "\x1b[2J\x1b[H"


def play(
    env: VectorEnv, player: PlayerName = "keys", episodes: int = 1, seed: int | None = None, gif: Path | None = None
) -> list[float]:
    """Play `episodes` of a vector of one environment; the returns of those that were finished.

    By hand, every frame is shown, and actions are read from the keyboard: single keys on a terminal, characters or
    lines of a pipe otherwise; q or the end of the input ends the game. On a terminal, other players are shown at the
    environment's own pace. Raises UserError for a player that the environment does not have.

    env: a vector of one environment; the random player follows action masks in a leaf `action_mask`
    player: chooses the actions
    episodes: how many episodes to play
    seed: seeds the environment and players that draw their actions
    gif: where to write an animation of all frames; players other than `keys` then print nothing
    """
    choose, help = _player(env, player, np.random.default_rng(seed))
    if player in ("oracle", "memoryless"):  # a task may have none, which is said before anything is shown
        env.reset(seed=seed)
        _asked(env, player, np.random.default_rng(seed))
    per_second, terminal = float(env.metadata.get("render_fps", 5)), sys.stdout.isatty()
    pause = 1 / per_second if terminal and player != "keys" else 0.0
    frames: list[Frame] = []

    def show(obs: Any, said: Sequence[str]) -> None:
        """Show the environment as it is now, by its own text or else by `obs`, and below it what is `said`."""
        if gif is not None:
            frames.append(Frame(picture(env), said))
            if player != "keys":
                return
        task: Any = env.unwrapped
        text = task.text(0) if hasattr(task, "text") else str(each_leaf(lambda leaf: leaf[0], obs))
        lines = [f"{CLEAR if terminal else ''}{text}", ", ".join(said), help]
        print("\n".join(line for line in lines if line), flush=True)
        time.sleep(pause)

    returns = _returns(Watched(env, show), choose, episodes, seed)
    if gif is not None:
        write_gif(frames, gif, per_second)
    return returns


def _returns(env: Watched, choose: Choose, episodes: int, seed: int | None) -> list[float]:
    """The returns of the episodes that were finished until `choose` gave None."""
    returns: list[float] = []
    while len(returns) < episodes:
        obs, _ = env.reset(seed=None if returns else seed)
        while not env.over:
            action = choose(obs)
            if action is None:
                return returns
            try:
                obs, *_ = env.step(np.asarray(action)[None])
            except gym.error.InvalidAction as error:
                print(error)
        returns.append(env.total)
    return returns


def _player(env: VectorEnv, player: PlayerName, rng: np.random.Generator) -> tuple[Choose, str]:
    """A function that returns the next action, and a line that explains it."""
    space, task = env.single_action_space, env.unwrapped
    if player == "random":
        space.seed(int(rng.integers(2**31)))
        return lambda obs: space.sample(_mask(space, obs)), ""
    if player == "keys":
        return _by_hand(dict(getattr(task, "keys", {})), space)
    return lambda obs: _asked(env, player, rng)[0], ""


def _asked(env: VectorEnv, player: PlayerName, rng: np.random.Generator) -> Any:
    """The actions [1, ...] of the oracle or the memoryless player. Raises UserError if the task knows none."""
    ask = getattr(env.unwrapped, player, lambda *rng: None)
    actions = ask() if player == "oracle" else ask(rng)
    if actions is None:
        raise UserError(f"--player {player}: {type(env.unwrapped).__name__} has no such player; accepted: keys, random")
    return actions


def _mask(space: gym.Space, obs: Any) -> Any:
    """The mask that `space.sample` takes, of the first environment; None where there is none or it allows nothing."""
    if not isinstance(obs, dict) or ACTION_MASK not in obs:
        return None
    sizes = component_sizes(space)
    parts = np.split(np.ravel(obs[ACTION_MASK][0]).astype(np.int8), np.cumsum(sizes)[:-1])
    if not all(part.any() for part in parts):
        return None
    return parts[0] if isinstance(space, spaces.Discrete) else tuple(parts)


def _by_hand(keys: dict[str, int], space: gym.Space) -> tuple[Choose, str]:
    if not keys and isinstance(space, spaces.Discrete) and space.n <= 10:
        keys = {str(k): int(space.start) + k for k in range(int(space.n))}
    if keys:
        named = ", ".join(f"{'space' if key == ' ' else key}: {action}" for key, action in keys.items())
        return lambda obs: _pressed(keys), f"keys {named}; q quits"
    return lambda obs: _typed(space), f"type an action of {space}, numbers separated by spaces; q quits"


def _pressed(keys: dict[str, int]) -> int | None:
    """The action of the next key that has one; None for q, an interrupt or the end of the input."""
    while (key := _next_key()) not in ("", "q", "\x03", "\x04"):
        if key in keys:
            return keys[key]
    return None


def _typed(space: gym.Space) -> Any:
    """The action on the next line that holds one; None for q, an empty line or the end of the input."""
    number = float if isinstance(space, spaces.Box) else int
    while (line := sys.stdin.readline().strip()) not in ("", "q"):
        with contextlib.suppress(ValueError):
            numbers = [number(part) for part in line.replace(",", " ").split()]
            if space.shape == () and len(numbers) == 1:
                return np.asarray(numbers[0]).astype(space.dtype)
            if space.shape == (len(numbers),):
                return np.asarray(numbers).astype(space.dtype)
        print(f"expected an action of {space}, e.g. {space.sample()}")
    return None


def _next_key() -> str:
    """One key, without Enter on a terminal that can."""
    with contextlib.ExitStack() as stack:
        if sys.stdin.isatty():
            with contextlib.suppress(ImportError):  # not on Windows
                import termios
                import tty

                before = termios.tcgetattr(sys.stdin)
                stack.callback(termios.tcsetattr, sys.stdin, termios.TCSADRAIN, before)
                tty.setcbreak(sys.stdin)
        return sys.stdin.read(1)
