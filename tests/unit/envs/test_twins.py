"""Fully observed twins (`observe=full`): the same episodes, and an observation from which the oracle's play follows."""

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete
from rlmem_envs.core.batched import BatchedEnv
from rlmem_envs.core.cartpole import GAINS
from rlmem_envs.core.columns import sizes
from rlmem_envs.core.pendulum import best_torque
from rlmem_envs.registration import TASKS, make, task_class

import rlmem

GAMES = {task: next(iter(task_class(task).levels)) for task in TASKS}
"""Every game, with its first level."""
every_game = pytest.mark.parametrize("task", GAMES)


def decoded(space, shown: np.ndarray) -> np.ndarray:
    """What a game shows [N, ...], from the columns of its twin that say it."""
    if isinstance(space, Box):
        scale = space.high.ravel() if space.dtype == np.uint8 else 1
        return np.rint(shown * scale).astype(np.uint8).reshape(-1, *space.shape) if space.dtype == np.uint8 else shown
    ends = np.cumsum(sizes(space))
    values = np.stack([part.argmax(-1) for part in np.split(shown, ends[:-1], axis=1)], 1)
    return values[:, 0] if isinstance(space, Discrete) else values


def split(game, obs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What the game shows and its full state, both of a twin's observation."""
    space = game._space
    width = int(np.prod(space.shape)) if isinstance(space, Box) else sum(sizes(space))
    return decoded(space, obs[:, :width]), obs[:, width:]


OWN = ("CartPole", "Pendulum")
"""Games with an `observe` of their own, which shows the state without the time."""
SHORT = {
    "TMaze": {"corridor_length": 6, "oracle_length": 2},
    "TeleporterTMaze": {"difficulty": 0, "teleport_delay": 5, "limbo_time": 5},
    "CuedCatch": {"initial_cue_duration": 2, "num_trials": 8, "cue_duration": 2},
    "SequenceRecall": {"demo_light_on_frames": 2, "demo_light_off_frames": 2, "sequence_length": 3},
    "VisualMatch": {"distractor_frames": 50, "passive": False},
    "KeyToDoor": {"distractor_frames": 50},
    "Wind": {"episode_steps": 30, "episodes_per_task": 2},
    "PointRobot": {"episode_steps": 30},
    "RepeatPrevious": {"k": 5},
    "RegularLanguage": {"language": "sym5", "answer": "every"},
    "MemoryChain": {"memory_length": 3, "num_bits": 4},
    "TwoStepCue": {"delay": 3},
    "Concentration": {"deck_type": "ranks"},
    "LabyrinthEscape": {"episode_length": 120},
    "LabyrinthExplore": {"maze_dims": (6, 8)},
}
"""Parameters that show more of a game within the steps of a test."""


def pair(task: str, num_envs: int = 6):
    """A game and its twin."""
    params = {**task_class(task).levels[GAMES[task]], **SHORT.get(task, {})}
    partial = "position" if task in OWN else "partial"
    return tuple(make(task, num_envs, **{**params, "observe": observe}) for observe in (partial, "full"))


@every_game
def test_a_twin_plays_the_same_episodes_and_shows_what_the_game_shows(task):
    """Streams, dynamics, rewards and ends are equal, and what the game shows is a function of what the twin does."""
    game, twin = pair(task)
    obs, full = game.reset(seed=7)[0], twin.reset(seed=7)[0]
    rng = np.random.default_rng(0)
    for _ in range(80):
        assert twin.observation_space.contains(full)
        seen = full[:, game.seen_slots()] if task in OWN else split(game, full)[0]
        np.testing.assert_array_equal(seen, obs)
        actions = game.oracle() if rng.random() < 0.7 else game.action_space.sample()
        ours, theirs = game.step(actions), twin.step(actions)
        for x, y in zip(ours[1:4], theirs[1:4], strict=True):
            np.testing.assert_array_equal(x, y)
        obs, full = ours[0], theirs[0]
    assert game.draws.episode.max() == twin.draws.episode.max()
    for name, value in game.state()["arrays"].items():
        np.testing.assert_array_equal(value, twin.state()["arrays"][name])


BY_EQUATION = {
    "CartPole": lambda state: (state[:, :4].astype(float) @ GAINS > 0).astype(int),
    "Pendulum": lambda state: best_torque(np.arctan2(state[:, 1], state[:, 0]), state[:, 2]),
}
"""The oracle as a function of the state, of games whose states hardly ever come back, by the end of their names."""


@pytest.mark.parametrize("task", [task for task in GAMES if task != "POMDP"])
def test_the_oracle_is_a_function_of_what_a_twin_shows(task):
    """Where it leads itself, and where every fourth action at random leads. That of POMDP acts on beliefs."""
    game, twin = pair(task, 100)
    equation = next((function for name, function in BY_EQUATION.items() if task.endswith(name)), None)
    full, chosen, rng = twin.reset(seed=3)[0], {}, np.random.default_rng(1)
    twin.action_space.seed(0)
    for _ in range(60):
        expected, running = twin.oracle(), ~twin.over
        if equation is not None:
            state = full if task in OWN else split(game, full)[1]
            np.testing.assert_allclose(equation(state)[running], expected[running], atol=1e-4)
        else:
            for row, action in zip(full[running], expected[running], strict=True):
                assert np.abs(chosen.setdefault(row.tobytes(), action) - action).max() <= 1e-4
        stray = rng.random(twin.num_envs) < 0.25
        shape = (-1, *[1] * (expected.ndim - 1))
        full = twin.step(np.where(stray.reshape(shape), twin.action_space.sample(), expected))[0]


def test_a_decision_process_is_played_by_its_state():
    """Of a table the state itself is shown. Its best play earns at least what the oracle does, which keeps a belief."""
    game = make("POMDP", 256, "tiger", observe="full", planner="qmdp")
    plan, total = game._plan, np.zeros((2, 256))
    for row in range(2):
        full = game.reset(seed=5)[0]
        for _ in range(100):
            by_state = plan.act(split(game, full)[1][:, :-1])
            full, reward, *_ = game.step(by_state if row else game.oracle())
            total[row] += reward
    assert (total[1] == 1000).all(), "the door without the tiger, a hundred times"
    assert total[0].mean() < 1000


@every_game
def test_rule_cards_declare_the_full_state(task):
    """With its true size."""
    card = " ".join((task_class(task).__doc__ or "").split())
    if task in OWN:
        return
    assert "| full state | Box [" in card
    said = card.partition("| full state | Box [")[2].partition("]")[0]
    game, twin = pair(task)
    width = split(game, twin.reset(seed=0)[0])[1].shape[1]
    if said.isdecimal():
        assert int(said) == width


def test_the_configuration_chooses_twins_and_refuses_what_has_none():
    full = rlmem.make_env("repeat_first", 3, observe="full")
    assert full.single_observation_space == Box(0, 1, (9,), np.float32)
    both = rlmem.make_env("battleship", 3, observe="full", privileged=True, params={"action_mask": True})
    assert isinstance(both.single_observation_space, Dict)
    assert both.single_observation_space["observation"].shape == (2 + 129,)
    with pytest.raises(ValueError, match="observe=full: BatchedEnv declares no full state; expected partial"):
        BatchedEnv(1, Discrete(2), Discrete(2), {}, observe="full")
