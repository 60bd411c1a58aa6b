"""Every recorded episode of the papers' own environments is played again: frames, hidden state, rewards and ends."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from golden_env import Episode, episodes, recordings
from rlmem_envs.core.batched import BatchedEnv
from rlmem_envs.lprnn.lights import HORIZON
from rlmem_envs.lprnn.teleporter_world import MARGIN, STRIDE, draw_world
from rlmem_envs.navigation.tasks import displacement
from rlmem_envs.pixels import board as on
from rlmem_envs.registration import make


def same(*names: str) -> Callable[[Episode], dict[str, np.ndarray]]:
    """Hidden facts that the file names as the rule card does."""
    return lambda episode: {name: episode[name] for name in names if episode[name].size}


@dataclass
class Game:
    """A task, and how a recorded episode of it is played.

    params, hidden: of an episode;  action: of a recorded one;  frames: recorded arrays of every frame, by name, and
    what shows them;  steps: the same, after every step
    """

    task: str
    params: Callable[[Episode], dict[str, Any]]
    hidden: Callable[[Episode], dict[str, np.ndarray]]
    frames: dict[str, Callable[[BatchedEnv], np.ndarray]] = field(default_factory=dict)
    steps: dict[str, Callable[[BatchedEnv], np.ndarray]] = field(default_factory=dict)
    action: Callable[[np.ndarray], np.ndarray] = lambda action: action


def board_game(task: str, *hidden: str, **frames: Callable[[BatchedEnv], np.ndarray]) -> Game:
    """A game of the LP-RNN paper. Its recorded actions count from 1, as 0 and the last one mean "quit" there."""
    shown = {
        "board": lambda env: env.boards(),
        "board_repainted": lambda env: env.painted(env.boards()),
        "planes": lambda env: np.moveaxis(env._observe().reshape(2, len(env.characters), *env.size), 1, -1),
    }
    return Game(task, lambda e: e.params, same(*hidden), shown | frames, action=lambda action: action - 1)


def position_of(env: BatchedEnv) -> np.ndarray:
    return np.stack([env.at // STRIDE, env.at % STRIDE - MARGIN], 1)


NAVIGATION = ("goal_radius", "episode_steps", "episodes_per_task")


def navigation(task: str) -> Game:
    def params(episode: Episode) -> dict[str, Any]:
        given = {name: episode.params[name] for name in NAVIGATION}
        given |= {"num_tasks": episode.params["n_tasks"], "num_train": 1}
        return given | ({"wind_range": episode.params["wind_range"][1]} if "wind_range" in episode.params else {})

    def within(env: BatchedEnv) -> np.ndarray:
        return np.linalg.norm(env.position - env.goal, axis=1) <= env.params["goal_radius"]

    frames = {"observations": lambda env: env._observe(), "state": lambda env: env.position}
    steps = {"in_goal_arrived": lambda env: env.in_goal, "in_goal_after_step": within}
    return Game(task, params, same("goal", "wind", "start_pos", "task_index"), frames, steps)


APPLES = ("apple_layout", "apple_reward_value", "explore_player_pos")


def pixels(task: str, rules: str, *facts: str) -> Game:
    kept = ("num_apples", "fix_apple_reward_in_episode", "final_reward", "respawn_every", rules)

    def params(episode: Episode) -> dict[str, Any]:
        given = {name: episode.params[name] for name in kept if name in episode.params}
        given |= {f"{phase}_frames": number for phase, number in episode.params["max_frames"].items()}
        worth = episode.params["apple_reward"]
        return given | {"apple_reward": tuple(worth) if isinstance(worth, list) else worth}

    def hidden(episode: Episode) -> dict[str, np.ndarray]:
        found = {name: episode[name] for name in (*APPLES, *facts)}
        if not episode.params["fix_apple_reward_in_episode"]:  # a reward for each picture of the second phase
            frames = episode.params["max_frames"]
            found["apple_reward_value"] = episode["rewards"][frames["explore"] :][: frames["distractor"]]
        if "target_symbol" in found:
            rows = [list(episode["colour_chars"]).index(symbol) for symbol in b"bce"]
            found["colours"] = episode["colour_rgb"][rows].argmax(1)
        return found

    frames = {
        "board": lambda env: env.characters,
        "observations": lambda env: env._observe().reshape(2, -1),
        "player_pos": lambda env: env.player_pos,
        "chapter": lambda env: env.chapter,
        "chapter_frame": lambda env: env.chapter_frame,
        "has_key": lambda env: env.has_key,
    }
    return Game(task, params, hidden, frames)


MAZE = ("corridor_length", "oracle_length", "goal_reward", "penalty", "distract_reward")
GAMES = {
    "cued_catch": board_game("CuedCatch", "cue_to_ball", "trial_cue", "reward_noise"),
    "sequence_recall": board_game(
        "SequenceRecall", "sequence", player_pos=lambda env: np.stack(np.divmod(env.at, 21), 1)
    ),
    "lp_tmaze": board_game("TeleporterTMaze", "goal_side", "speckle", world_pos=position_of),
    "wind": navigation("Wind"),
    "point_robot": navigation("PointRobot"),
    "tmaze": Game(
        "TMaze",
        lambda episode: {name: episode.params[name] for name in MAZE},
        lambda episode: {"goal_y": episode["goal_y"]},
        {"observations": lambda env: env._observe(), "position": lambda env: env.position},
    ),
    "visual_match": pixels("VisualMatch", "passive", "target_symbol", "explore_target_pos"),
    "key_to_door": pixels("KeyToDoor", "reward_grid", "explore_key_pos", "door_pos", "reward_player_pos"),
}


def game_of(episode: Episode) -> Game:
    return next(game for stem, game in GAMES.items() if episode.name.startswith(stem))


def begun(episode: Episode) -> tuple[Game, BatchedEnv]:
    """Two copies of the recorded episode, in its first frame."""
    game = game_of(episode)
    env = make(game.task, 2, **game.params(episode))
    env.reset(seed=0, options={"hidden": {name: np.stack([fact] * 2) for name, fact in game.hidden(episode).items()}})
    return game, env


def is_short_play_of_an_oracle(episode: Episode) -> bool:
    """True if our oracle, which looks so many lights ahead, can earn as much."""
    is_short = len(episode.arrays.get("sequence", ())) <= HORIZON
    in_time = len(episode) < episode.params.get("timeout_frames", np.inf)
    return episode.name.endswith("-oracle") and "board_repainted" in episode.arrays and is_short and in_time


CHOSEN: dict[str, Callable[[Episode], bool]] = {
    "test_an_oracle_earns_no_less_than_the_recorded_one": is_short_play_of_an_oracle,
    "test_tables_of_tasks_and_colours_are_the_recorded_ones": lambda e: {"task_table", "colour_chars"} & {*e.arrays},
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "played" in metafunc.fixturenames:
        files = [path for path in recordings(metafunc.config) if path.stem.startswith(tuple(GAMES))]
        chosen = CHOSEN.get(metafunc.function.__name__, lambda episode: True)
        found = [episode for path in files for episode in episodes(path) if chosen(episode)]
        is_fast = lambda episode: re.search("-ep00|-(no_key|apples_then_other)$", episode.name)  # noqa: E731
        marks = [() if is_fast(episode) else pytest.mark.slow for episode in found]
        cases = [pytest.param(episode, marks=mark) for episode, mark in zip(found, marks, strict=True)]
        metafunc.parametrize("played", cases, ids=[episode.name for episode in found])


def test_a_recorded_episode_is_played_again(played: Episode):
    episode = played
    game, env = begun(episode)

    def compare(shown: dict[str, Callable[[BatchedEnv], np.ndarray]], at: int) -> None:
        for name, look in shown.items():
            if name in episode.arrays:
                expected = np.stack([episode[name][at]] * 2)
                tolerance = 1e-6 if expected.dtype.kind == "f" else 0  # observations are rounded to float32
                np.testing.assert_allclose(look(env), expected, rtol=0, atol=tolerance, err_msg=f"{name}, frame {at}")

    compare(game.frames, 0)
    success = False
    for t, action in enumerate(game.action(episode["actions"])):
        _, reward, terminated, truncated, infos = env.step(np.stack([action] * 2))
        np.testing.assert_allclose(reward, episode["rewards"][t], atol=1e-9)
        assert (terminated == episode["terminated"][t]).all()
        assert (truncated == (episode["truncated"][t] if "truncated" in episode.arrays else False)).all()
        compare(game.frames, t + 1)
        compare(game.steps, t)
        success |= bool(infos.get("success", [False])[0])
    assert success == bool(episode.arrays.get("success", success))


def test_an_oracle_earns_no_less_than_the_recorded_one(played: Episode):
    _, env = begun(played)
    total = np.zeros(2)
    while not env.over.any():
        total += env.step(env.oracle())[1]
    assert (total > played["rewards"].sum() - 1e-9).all()


@pytest.mark.recorded_env("lp_tmaze_d0_limbo20")
def test_the_world_of_the_teleporter_tmaze_is_the_published_one(path):
    with np.load(path) as file:
        world = file["world_chars"]
    world[np.isin(world, list(b"P+"))] = ord(" ")
    np.testing.assert_array_equal(draw_world(), world)


def test_tables_of_tasks_and_colours_are_the_recorded_ones(played: Episode):
    if "task_table" in played.arrays and played.params.get("variant", "SHM") == "SHM":  # others have unknown seeds
        np.testing.assert_array_equal(begun(played)[1]._tasks, played["task_table"])
        np.testing.assert_array_equal(displacement(played["actions"]), played["env_actions"])
    if "colour_chars" in played.arrays:
        for code in {*range(on.SIGN)} - {*range(on.OBJECT, on.SIGN)}:
            at = played["colour_chars"] == on.CHARACTERS[code]
            assert (played["colour_rgb"][at] == on.COLOURS[code]).all()


def test_every_recording_is_replayed(request):
    """Languages are replayed by whole files, in their own test."""
    files = recordings(request.config)
    assert len(files) >= 21
    assert not [path.name for path in files if not path.stem.startswith((*GAMES, "regular"))]
