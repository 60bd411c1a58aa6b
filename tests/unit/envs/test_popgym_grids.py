"""Battleship, MineSweeper and the labyrinths of POPGym: against the package, step for step and in distribution."""

import importlib.util
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from popgym_parity import assert_parity, every_game
from rlmem_envs.popgym import maze
from rlmem_envs.popgym.package import game_class
from rlmem_envs.registration import make

needs_mazelib = pytest.mark.skipif(importlib.util.find_spec("mazelib") is None, reason="popgym's mazes need mazelib")

SIGMAS = 4.5
"""How many standard errors two means of the same distribution may be apart."""


class Choose:
    """A generator whose only choice is given."""

    def __init__(self, chosen: np.ndarray):
        self.chosen = chosen

    def choice(self, *args: Any, **kwargs: Any) -> np.ndarray:
        return self.chosen


def battleship(game: Any, facts: Any) -> int:
    game.board[:] = facts["board"]
    return 0


def minesweeper(game: Any, facts: Any) -> int:
    game.np_random = Choose(np.flatnonzero(facts["mines"]))
    return game.reset()[0]


def labyrinth(game: Any, facts: Any) -> np.ndarray:
    """What POPGym's reset does once mazelib has made a maze."""
    game.maze.grid[:] = facts["maze"]
    game.position = tuple(facts["start"])
    game.maze.grid[game.position] = maze.START
    game.explored[:] = 0
    game.explored[game.position] = 1
    if "goal" in facts:
        game.maze.grid[tuple(facts["goal"])] = maze.GOAL
    else:
        game.pos_reward_scale = 1 / (game.maze.grid == maze.FREE).sum()
    return game.get_obs(maze.NONE)


@every_game("Battleship")
def test_battles_are_those_of_the_package(task, level, player, episodes):
    assert_parity(task, level, player, episodes, battleship)


@every_game("MineSweeper")
def test_minefields_are_those_of_the_package(task, level, player, episodes):
    assert_parity(task, level, player, episodes, minesweeper)


@needs_mazelib
@pytest.mark.timeout(1200)  # a thousand episodes of a thousand steps in the package
@every_game("LabyrinthEscape", "LabyrinthExplore")
def test_labyrinths_are_those_of_the_package(task, level, player, episodes):
    assert_parity(task, level, player, episodes if episodes > 30 else 1, labyrinth)


@needs_mazelib
@pytest.mark.parametrize("player", ["random", "oracle"])
@pytest.mark.parametrize("task", ["LabyrinthEscape", "LabyrinthExplore"])
@pytest.mark.parametrize("params", [{"maze_dims": (6, 12)}, {"maze_dims": (14, 8), "episode_length": 60}], ids=str)
def test_labyrinths_of_other_sizes_are_those_of_the_package(task, params, player):
    assert_parity(task, "easy", player, 1, labyrinth, params=params)


@pytest.mark.parametrize("params", [{"board_size": 4, "ship_sizes": [1, 4]}, {"board_size": 3, "ship_sizes": [3, 2]}])
def test_other_battles_are_those_of_the_package(params):
    assert_parity("Battleship", "easy", "random", 30, battleship, params=params)


# ---- what is hidden has the distribution of the package


def assert_same_mean(ours: np.ndarray, theirs: np.ndarray, what: str) -> None:
    error = np.sqrt(ours.var(0) / len(ours) + theirs.var(0) / len(theirs))
    distance = np.abs(ours.mean(0) - theirs.mean(0)) / np.maximum(error, 1e-9)
    assert (distance < SIGMAS).all(), f"{what}: {ours.mean(0)}, in the package {theirs.mean(0)}"


def facts_of(task: str, level: str, num_envs: int) -> dict[str, np.ndarray]:
    env = make(task, num_envs, level)
    env.reset(seed=0)
    return env._draw(env._all)


@pytest.mark.parametrize("level", ["easy", "hard"])
def test_ships_lie_as_in_the_package(level):
    ours = facts_of("Battleship", level, 20_000)["board"].astype(float)
    game = game_class("Battleship", level)()
    game.reset(seed=0)
    theirs = np.array([game.reset() and game.board for _ in range(800)], float)
    assert_same_mean(ours, theirs, "ships in each cell")
    touching = [(b[:, 1:] * b[:, :-1]).sum((1, 2)) + (b[:, :, 1:] * b[:, :, :-1]).sum((1, 2)) for b in (ours, theirs)]
    assert_same_mean(*touching, "neighbouring cells of ships")


@pytest.mark.parametrize(("level", "number"), [("easy", 2), ("medium", 6), ("hard", 10)])
def test_mines_lie_anywhere(level, number):
    mines = facts_of("MineSweeper", level, 20_000)["mines"].reshape(20_000, -1).astype(float)
    cells = mines.shape[1]
    assert (mines.sum(1) == number).all()
    share = number / cells
    error = np.sqrt(share * (1 - share) / len(mines))
    assert (np.abs(mines.mean(0) - share) < SIGMAS * error).all()
    pair = share * (number - 1) / (cells - 1)
    found = mines.T @ mines / len(mines)
    assert (np.abs(found - pair) < SIGMAS * np.sqrt(pair / len(mines)))[~np.eye(cells, dtype=bool)].all()


# ---- players, and what else is promised


@pytest.mark.parametrize(("rules", "steps", "both"), [("1.0.7", 14, False), ("1.0.2", 15, True)])
def test_minesweeper_has_the_time_limits_of_both_versions(rules, steps, both):
    """One cell twice and then all others: the last one comes with the time limit of 1.0.2, and too late for 1.0.7."""
    env = make("MineSweeper", 2, "easy", rules=rules)
    mines = np.zeros((2, 4, 4), int)
    mines[:, 3, 2:] = 1
    env.reset(options={"hidden": {"mines": mines}})
    for t, cell in enumerate([0, *range(14)][:steps]):
        _, _, terminated, truncated, _ = env.step(np.array([divmod(cell, 4)] * 2))
        assert truncated.all() == truncated.any() == (t == steps - 1)
    assert (terminated == both).all()


def test_the_best_tour_is_as_short_as_can_be():
    """It goes through every passage twice, but for those on the way to the deepest cell."""
    env = make("LabyrinthExplore", 32, "easy")
    env.reset(seed=0)
    depth = maze.flood(env.cells, (env.cells == maze.START).argmax(1), env._row).max(1)
    shortest = 2 * env.left - depth
    ends = np.zeros(32, int)
    for t in range(1, 100):
        ends = np.where(env.step(env.oracle())[2] & (ends == 0), t, ends)
    np.testing.assert_array_equal(ends, shortest)


def test_mazes_made_ahead_are_those_made_in_time():
    """Whatever the order in which environments begin new episodes, episode e of environment i has the same maze."""
    together, apart = make("LabyrinthEscape", 3, "easy"), make("LabyrinthEscape", 3, "easy")
    first, rng = together.reset(seed=3)[0], np.random.default_rng(0)
    apart.reset(seed=3)
    expected = [together.cells.copy(), *(together.reset() and together.cells.copy() for _ in range(40))]
    assert not any((a == b).all() for a, b in pairwise(expected))
    while apart.draws.episode.max() < 40:
        mask = rng.random(3) < 0.5
        apart.reset(options={"reset_mask": mask})
        for i, episode in enumerate(apart.draws.episode):
            np.testing.assert_array_equal(apart.cells[i], expected[episode][i])
    np.testing.assert_array_equal(apart.reset(seed=3)[0], first)


def test_pictures_show_boards():
    hidden = {"board": np.array([[[1, 1, 0], [0, 0, 0], [0, 0, 0]]])}
    env = make("Battleship", board_size=3, ship_sizes=[2])
    env.reset(options={"hidden": hidden})
    env.step(np.array([[0, 1]]))
    env.step(np.array([[2, 0]]))
    assert env.text(0) == ". X .\n. . .\no . ."
    mines = np.zeros((1, 4, 4), int)
    mines[0, 0, :2] = 1
    env = make("MineSweeper")
    env.reset(options={"hidden": {"mines": mines}})
    env.step(np.array([[1, 1]]))
    assert env.text(0) == ". . . .\n. 2 . .\n. . . .\n. . . ."
    env.step(np.array([[0, 0]]))
    assert env.text(0) == "* * . .\n. 2 . .\n. . . .\n. . . ."


def test_ships_without_a_place_are_an_error():
    env = make("Battleship", 64, board_size=4, ship_sizes=[2] * 7)
    with pytest.raises(ValueError, match="no place left"):
        env.reset(seed=0)
