"""Native POPGym games against those of the `popgym` package, step for step on the same hidden facts.

A test file says for each of its families how hidden facts are put into a game of the package:

    def inject(game, facts):  # `game` was just reset; `facts` are those of one episode, by the names of the rule card
        game.board[:] = facts["board"]
        return game.get_obs()  # the first observation, now that the facts are these

    @every_game("Battleship", "MineSweeper")
    def test_games_are_those_of_the_package(task, level, player, episodes):
        assert_parity(task, level, player, episodes, INJECT[task])
"""

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, MultiDiscrete
from rlmem_envs.core.batched import BatchedEnv, Facts
from rlmem_envs.popgym import package
from rlmem_envs.registration import make, task_class

EPISODES = {"few": 4, "all": 1000}
"""Episodes of each player at each level: in the fast tests and in the slow ones."""

Inject = Callable[[Any, Facts], Any]


class Scripted:
    """A generator whose draws are given: `random()`, `uniform()`, `normal()` return the next row of `values`."""

    def __init__(self, values: Any):
        self.rows = iter(values)

    def random(self, *args: Any, **kwargs: Any) -> Any:
        return next(self.rows)

    uniform = normal = standard_normal = random


def every_game(*tasks: str) -> Callable[[Any], Any]:
    """Parametrise a test by task, level, player and episodes."""
    cases = [
        pytest.param(task, level, player, EPISODES[count], id=f"{task}-{level}-{player}-{count}", marks=marks)
        for count, marks in (("few", ()), ("all", pytest.mark.slow))
        for task in tasks
        for level in task_class(task).levels
        for player in ("random", "oracle")
    ]
    return pytest.mark.parametrize(("task", "level", "player", "episodes"), cases)


def assert_parity(
    task: str,
    level: str,
    player: str,
    episodes: int,
    inject: Inject,
    per_step: Callable[[BatchedEnv, np.random.Generator], Facts] | None = None,
    params: dict[str, Any] | None = None,
    atol: float = 1e-6,
) -> None:
    """Play `episodes` episodes of one game at once, then each of them in the package, and compare every step.

    Hidden facts are drawn by the native game. `player`: random (uniform actions) or oracle.

    per_step: given the native game and a generator, facts that are drawn at every step, each [episodes, T, ...]
    params: parameters that replace the level's own, in both
    """
    env = make(task, episodes, level, **(params or {}))
    rng = np.random.default_rng(0)
    env.reset(seed=0)
    facts = env._draw(env._all) | (per_step(env, rng) if per_step else {})
    recorded = record(env, facts, player, rng)
    base = package.game_class(task, level)
    game = (package.with_parameters(base, params) if params else base)()
    for i in range(episodes):
        game.reset(seed=0)
        first = inject(game, {name: values[i] for name, values in facts.items()})
        compare(game, first, [part[:, i] for part in recorded], atol, f"{task} {level}, episode {i}")


def record(env: BatchedEnv, facts: Facts, player: str, rng: np.random.Generator) -> list[np.ndarray]:
    """Observations [T + 1, N, ...], actions, rewards, terminated and truncated [T, N] until every episode has ended."""
    observation = env.reset(options={"hidden": facts})[0]
    observations: list[np.ndarray] = [observation]
    steps: list[tuple[np.ndarray, ...]] = []
    ended = np.zeros(env.num_envs, bool)
    while not ended.all():
        actions = env.oracle() if player == "oracle" else random_actions(env, rng)
        observation, reward, terminated, truncated, _ = env.step(actions)
        observations.append(observation)
        steps.append((np.array(actions, env.single_action_space.dtype), reward, terminated, truncated))
        ended |= terminated | truncated
    return [np.stack(observations), *(np.stack(part) for part in zip(*steps, strict=True))]


def random_actions(env: BatchedEnv, rng: np.random.Generator) -> np.ndarray:
    space = env.single_action_space
    if isinstance(space, Box):
        return rng.uniform(space.low, space.high, (env.num_envs, *space.shape)).astype(space.dtype)
    size = space.nvec if isinstance(space, MultiDiscrete) else space.n
    return rng.integers(0, size, (env.num_envs, *space.shape))


def compare(game: gym.Env, first: Any, recorded: list[np.ndarray], atol: float, where: str) -> None:
    """Play one recorded episode in the package up to the end that either of the two sees first."""
    observations, actions, rewards, terminated, truncated = recorded
    plain = game.action_space.shape == ()
    steps = []
    for t, action in enumerate(actions):
        steps.append(game.step(int(action) if plain else action)[:4])
        if terminated[t] or truncated[t] or steps[-1][2] or steps[-1][3]:
            break
    played, paid, *flags = zip(*steps, strict=True)
    n = len(steps)
    shown = np.array([first, *played], float).reshape(n + 1, -1)
    message = f"{where}: differs at step %s"
    for name, ours, theirs in (
        ("observation", observations[: n + 1].reshape(n + 1, -1), shown),
        ("reward", rewards[:n, None], np.array(paid, float)[:, None]),
        ("terminated", terminated[:n, None], np.array(flags[0], float)[:, None]),
        ("truncated", truncated[:n, None], np.array(flags[1], float)[:, None]),
    ):
        assert ours.shape == theirs.shape, f"{where}: {name} {ours.shape}, in the package {theirs.shape}"
        wrong = np.flatnonzero(~(np.abs(ours - theirs) <= atol).all(-1))
        if len(wrong):
            t = wrong[0]
            pytest.fail(message % t + f" in {name}: {ours[t]}, in the package {theirs[t]}")
