"""`rlmem play`: one environment in the terminal, by hand or by one of the players of its rule card."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv

from rlmem.errors import UserError
from rlmem.pictures import picture, write_gif

Player = Literal["keys", "random", "memoryless", "oracle"]
CLEAR = "\x1b[2J\x1b[H"


def play(
    env: VectorEnv, player: Player = "keys", episodes: int = 1, seed: int | None = None, gif: Path | None = None
) -> float:
    """Play `episodes` of a vector of one environment, showing every frame; returns the mean return.

    By hand, actions are read from the keyboard: single keys on a terminal, lines of a pipe otherwise, and the end of
    the input ends the game. gif: write an animation there instead of printing. Raises UserError for a player that the
    environment does not have.
    """
    choose = _player(env, player, np.random.default_rng(seed))
    frames: list[np.ndarray] = []
    returns: list[float] = []
    with _raw_keys(player == "keys") as read:
        for episode in range(episodes):
            env.reset(seed=seed if episode == 0 else None)
            total, steps, over = 0.0, 0, False
            _show(env, frames, gif, "")
            while not over:
                action = choose(read)
                if action is None:
                    return float(np.mean([*returns, total]))
                try:
                    _, reward, terminated, truncated, _ = env.step(np.asarray(action)[None])
                except gym.error.InvalidAction as error:
                    print(error)
                    continue
                total, steps = total + float(reward[0]), steps + 1
                over = bool(terminated[0] or truncated[0])
                end = f", over ({'terminated' if terminated[0] else 'truncated'})" if over else ""
                _show(env, frames, gif, f"step {steps}, reward {reward[0]:g}, return {total:g}{end}")
            returns.append(total)
    if gif is not None:
        write_gif(frames, gif, env.metadata.get("render_fps", 5))
    return float(np.mean(returns))


def _player(env: VectorEnv, player: Player, rng: np.random.Generator) -> Callable[[Any], Any]:
    """A function from the reader of keys to the next action; None ends the game."""
    space, task = env.single_action_space, env.unwrapped
    if player == "random":
        space.seed(int(rng.integers(2**31)))
        return lambda read: space.sample()
    if player != "keys":
        if not hasattr(task, player):
            raise UserError(f"--player {player}: {type(task).__name__} has no such player; accepted: keys, random")
        chosen: Any = getattr(task, player)

        def act(read: Any) -> Any:
            try:
                return (chosen() if player == "oracle" else chosen(rng))[0]
            except NotImplementedError as error:
                name = type(task).__name__
                raise UserError(f"--player {player}: nobody knows how for {name}; accepted: keys, random") from error

        return act
    keys: dict[str, int] = dict(getattr(task, "keys", {}))
    if not keys and isinstance(space, spaces.Discrete) and space.n <= 10:
        keys = {str(k): int(space.start) + k for k in range(int(space.n))}
    named = ", ".join(f"{'space' if key == ' ' else key}: {action}" for key, action in keys.items())
    print(f"keys {named}; q quits" if keys else f"type an action of {space}, numbers apart from each other; q quits")
    return lambda read: _typed(read, keys, space)


def _typed(read: Callable[[bool], str], keys: dict[str, int], space: gym.Space) -> Any:
    """The next action from the keyboard; None at the end of the input."""
    while True:
        text = read(bool(keys))
        if text in ("", "q", "\x03", "\x04"):
            return None
        if keys:
            if text in keys:
                return keys[text]
            continue
        with contextlib.suppress(ValueError):
            number = float if isinstance(space, spaces.Box) else int
            numbers = [number(part) for part in text.replace(",", " ").split()]
            if space.shape == () and len(numbers) == 1:
                return np.asarray(numbers[0]).astype(space.dtype)
            if space.shape == (len(numbers),):
                return np.asarray(numbers).astype(space.dtype)
        print(f"expected an action of {space}, e.g. {space.sample()}")


def _show(env: VectorEnv, frames: list[np.ndarray], gif: Path | None, caption: str) -> None:
    if gif is not None:
        frames.append(picture(env))
        return
    task: Any = env.unwrapped
    text = task._text(0) if hasattr(task, "_text") else "(no picture)"
    print(f"{CLEAR if sys.stdout.isatty() else ''}{text}\n{caption}", flush=True)


@contextlib.contextmanager
def _raw_keys(wanted: bool) -> Iterator[Callable[[bool], str]]:
    """How to read one key (True) or one line (False): without Enter where the input is a terminal that can."""
    line = lambda single: sys.stdin.readline().rstrip("\n") if not single else _next_character()  # noqa: E731
    try:
        import termios
        import tty
    except ImportError:  # not on Windows
        yield line
        return
    if not (wanted and sys.stdin.isatty()):
        yield line
        return
    before = termios.tcgetattr(sys.stdin)

    def key(single: bool) -> str:
        if not single:
            return line(False)
        tty.setcbreak(sys.stdin)
        try:
            return sys.stdin.read(1)
        finally:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)

    yield key


def _next_character() -> str:
    """The next key of a pipe; line ends only part them."""
    character = sys.stdin.read(1)
    while character == "\n":
        character = sys.stdin.read(1)
    return character
