"""`rlmem play`: one environment in the terminal, by hand or by one of the players of its rule card."""

import contextlib
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv

from rlmem.acting.film import Frame, caption, picture, write_gif
from rlmem.core.errors import UserError
from rlmem.core.spaces import ACTION_MASK, component_sizes
from rlmem.core.types import each_leaf

PlayerName = Literal["keys", "random", "memoryless", "oracle"]
Choose = Callable[[Any], Any]
"""The next action, or None to end the game, of what is observed."""
Show = Callable[[Any, Sequence[str]], None]
"""Shows an observation with its caption."""
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

    returns = _returns(env, choose, show, episodes, seed)
    if gif is not None:
        write_gif(frames, gif, per_second)
    return returns


def _returns(env: VectorEnv, choose: Choose, show: Show, episodes: int, seed: int | None) -> list[float]:
    """The returns of the episodes that were finished until `choose` gave None."""
    returns: list[float] = []
    while len(returns) < episodes:
        obs, _ = env.reset(seed=None if returns else seed)
        total, steps, over = 0.0, 0, False
        show(obs, caption(0))
        while not over:
            action = choose(obs)
            if action is None:
                return returns
            try:
                obs, reward, terminated, truncated, _ = env.step(np.asarray(action)[None])
            except gym.error.InvalidAction as error:
                print(error)
                continue
            total, steps = total + float(reward[0]), steps + 1
            over = bool(terminated[0] or truncated[0])
            end = "terminated" if terminated[0] else "truncated" if truncated[0] else ""
            show(obs, caption(steps, action, float(reward[0]), total, end))
        returns.append(total)
    return returns


def _player(env: VectorEnv, player: PlayerName, rng: np.random.Generator) -> tuple[Choose, str]:
    """A function that returns the next action, and a line that explains it."""
    space, task = env.single_action_space, env.unwrapped
    if player == "random":
        space.seed(int(rng.integers(2**31)))
        return lambda obs: space.sample(_mask(space, obs)), ""
    if player == "keys":
        return _by_hand(dict(getattr(task, "keys", {})), space)
    name = type(task).__name__
    if not hasattr(task, player):
        raise UserError(f"--player {player}: {name} has no such player; accepted: keys, random")
    return lambda obs: _asked(env, player, rng)[0], ""


def _asked(env: VectorEnv, player: PlayerName, rng: np.random.Generator) -> Any:
    """The actions [1, ...] of the oracle or the memoryless player. Raises UserError if the task knows none."""
    task: Any = env.unwrapped
    actions = task.oracle() if player == "oracle" else task.memoryless(rng)
    if actions is None:
        raise UserError(f"--player {player}: {type(task).__name__} has none; accepted: keys, random")
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
