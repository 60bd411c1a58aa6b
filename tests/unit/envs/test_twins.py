"""Fully observed twins (`observe=full`): the same episodes, and an observation from which the oracle's play follows.

Each player below gets what a twin shows, and a vector of the game that plays other episodes, for its sizes.
"""

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete
from rlmem_envs.core.batched import BatchedEnv
from rlmem_envs.core.cartpole import GAINS
from rlmem_envs.core.columns import sizes
from rlmem_envs.core.pendulum import best_torque
from rlmem_envs.registration import TASKS, make, task_class

import rlmem
from rlmem.core.errors import UserError

GAMES = {task: next(iter(task_class(task).levels)) for task in TASKS}
"""Every game, with its first level."""
every_game = pytest.mark.parametrize("task", GAMES)


def first_of(shown: np.ndarray) -> np.ndarray:
    """The first place of a 1 in every row; 0 for zeros."""
    return shown.argmax(-1)


def decoded(space, shown: np.ndarray) -> np.ndarray:
    """What a game shows [N, ...], from the columns of its twin that say it."""
    if isinstance(space, Box):
        scale = space.high.ravel() if space.dtype == np.uint8 else 1
        return np.rint(shown * scale).astype(np.uint8).reshape(-1, *space.shape) if space.dtype == np.uint8 else shown
    ends = np.cumsum(sizes(space))
    values = np.stack([first_of(part) for part in np.split(shown, ends[:-1], axis=1)], 1)
    return values[:, 0] if isinstance(space, Discrete) else values


def split(game, obs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What the game shows and its full state, both of a twin's observation."""
    space = game._space
    width = int(np.prod(space.shape)) if isinstance(space, Box) else sum(sizes(space))
    return decoded(space, obs[:, :width]), obs[:, width:]


def autoencode(game, seen, state):
    return np.where(seen[:, 0] == 1, 0, first_of(state[:, :4]))


def count_recall(game, seen, state):
    counts = first_of(state[:, :-1].reshape(len(state), game._kind.count, -1))
    return np.take_along_axis(counts, seen[:, 1:], 1)[:, 0]


def higher_lower(game, seen, state):
    counts = np.rint(state[:, :13] * 4 * game.params["num_decks"])
    return np.where((counts * np.sign(np.arange(13) - seen[:, None])).sum(1) >= 0, 0, 1)


def minesweeper(game, seen, state):
    n = game._n
    return np.stack(np.divmod(first_of((state[:, : n * n] == 0) & (state[:, n * n : -1] == 0)), n), 1)


def bandit(game, seen, state):
    return first_of(state[:, :-1])


def cartpole(game, seen, state):
    return (state[:, :4].astype(float) @ GAINS > 0).astype(int)


def pendulum(game, seen, state):
    return best_torque(np.arctan2(state[:, 1], state[:, 0]), state[:, 2])


def repeat_first(game, seen, state):
    return first_of(state[:, :4])


def repeat_previous(game, seen, state):
    return first_of(state[:, -5:-1])


def language(game, seen, state):
    dfa = game._dfa
    reached = first_of(state[:, : len(dfa.states)])
    after = np.where(seen == len(dfa.letters), reached, dfa.next[reached, np.minimum(seen, len(dfa.letters) - 1)])
    return dfa.label[after]


def tmaze(game, seen, state):
    x, _, goal, known, _ = state.T
    return np.where(known == 0, 2, np.where(x < 1, 0, np.where(goal > 0, 1, 3)))


def cued_catch(game, seen, state):
    ball = state[:, -3:-1]
    return np.where(ball.any(1), first_of(ball), 2)


def two_step_cue(game, seen, state):
    return np.where(np.rint(state[:, -1] * game._steps) == game._steps - 1, first_of(state[:, :-1]), 0)


def memory_chain(game, seen, state):
    asked = np.take_along_axis(state, seen[:, 1:2].astype(int), 1)[:, 0]
    return np.where(np.rint(state[:, -1] * game._steps) == game._steps - 1, asked > 0, 0)


def due_answer(game, seen, state):
    return first_of(state[:, : game._choices])


def endless_tmaze(game, seen, state):
    return np.where(state[:, 2] > 0, np.where(state[:, 1] > 0, 2, 1), 0)


PLAYERS = {
    "Autoencode": autoencode,
    "CountRecall": count_recall,
    "HigherLower": higher_lower,
    "MineSweeper": minesweeper,
    "MultiarmedBandit": bandit,
    "NoisyPositionOnlyCartPole": cartpole,
    "NoisyPositionOnlyPendulum": pendulum,
    "PositionOnlyCartPole": cartpole,
    "PositionOnlyPendulum": pendulum,
    "RepeatFirst": repeat_first,
    "RepeatPrevious": repeat_previous,
    "VelocityOnlyCartPole": cartpole,
    "CartPole": lambda game, seen, state: cartpole(game, seen, seen),
    "Pendulum": lambda game, seen, state: pendulum(game, seen, seen),
    "RegularLanguage": language,
    "TMaze": tmaze,
    "CuedCatch": cued_catch,
    "TwoStepCue": two_step_cue,
    "MemoryChain": memory_chain,
    "EndlessTMaze": endless_tmaze,
    **dict.fromkeys(("AssociativeRecall", "Copy", "Counting", "MemoryDemand", "NBack"), due_answer),
}
"""The oracle of a game as a function of what the twin shows."""
SEARCHED = (
    *("Battleship", "Concentration", "LabyrinthEscape", "LabyrinthExplore", "TeleporterTMaze", "SequenceRecall"),
    *("VisualMatch", "KeyToDoor", "Wind", "PointRobot", "ColorCubes"),
)
"""Games whose oracle searches. That of POMDP acts on beliefs."""
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


@pytest.mark.parametrize("task", PLAYERS)
def test_the_oracle_is_a_function_of_what_a_twin_shows(task):
    """Where it leads itself, and where every fourth action at random leads."""
    (_, twin), (other, _) = pair(task), pair(task)
    full = twin.reset(seed=3)[0]
    other.reset(seed=11)
    twin.action_space.seed(0)
    rng = np.random.default_rng(1)
    for _ in range(80):
        running = ~twin.over
        found = PLAYERS[task](other, *(split(other, full) if task not in OWN else (full, None)))
        expected = twin.oracle()
        np.testing.assert_allclose(np.asarray(found)[running], expected[running], atol=1e-4)
        stray = rng.random(twin.num_envs) < 0.25
        actions = np.where(stray.reshape(-1, *[1] * (expected.ndim - 1)), twin.action_space.sample(), expected)
        full = twin.step(actions)[0]


@pytest.mark.parametrize("task", SEARCHED)
def test_equal_full_states_have_equal_oracle_actions(task):
    twin = pair(task, 300)[1]
    full, chosen, rng = twin.reset(seed=3)[0], {}, np.random.default_rng(1)
    twin.action_space.seed(0)
    for _ in range(60):
        expected, running = twin.oracle(), ~twin.over
        for row, action in zip(full[running], expected[running], strict=True):
            np.testing.assert_allclose(chosen.setdefault(row.tobytes(), action), action, atol=1e-4)
        stray = rng.random(twin.num_envs) < 0.25
        full = twin.step(np.where(stray.reshape(-1, *[1] * (expected.ndim - 1)), twin.action_space.sample(), expected))[
            0
        ]


def test_every_game_has_such_a_player_or_a_reason():
    assert {*PLAYERS, *SEARCHED, "POMDP"} == {*TASKS}


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


def test_what_a_letter_pays_is_a_function_of_what_a_twin_shows():
    """With answer=every a right answer earns 1 / L, and the episode ends after L letters."""
    twin = make("RegularLanguage", 20, language="parity", n=9, answer="every", observe="full")
    full = twin.reset(seed=0)[0]
    for _ in range(40):
        running, length, taken = ~twin.over, full[:, -1] * 9, full[:, -2] * 9
        full, reward, ended, *_ = twin.step(twin.oracle())
        np.testing.assert_allclose(reward[running], 1 / length[running], rtol=1e-5)
        np.testing.assert_array_equal(ended[running], np.rint(length - taken)[running] == 1)


def test_the_configuration_chooses_twins_and_refuses_what_has_none():
    full = rlmem.make_env("repeat_first", 3, observe="full")
    assert full.single_observation_space == Box(0, 1, (9,), np.float32)
    both = rlmem.make_env("battleship", 3, observe="full", privileged=True, params={"action_mask": True})
    assert isinstance(both.single_observation_space, Dict)
    assert both.single_observation_space["observation"].shape == (2 + 129,)
    with pytest.raises(UserError, match="expected one of partial, full"):
        rlmem.make_env("repeat_first", 3, observe="ful")
    with pytest.raises(UserError, match="observe=full: the package's games do not show their full state"):
        rlmem.make_env("repeat_first", 3, observe="full", backend="popgym")
    with pytest.raises(UserError, match=r"observations are no symbols of them; e\.g\. env\.observe=partial"):
        rlmem.train("algo=classify", "env=parity", "env.observe=full", total_steps=64)
    with pytest.raises(ValueError, match="observe=full: BatchedEnv declares no full state; expected partial"):
        BatchedEnv(1, Discrete(2), Discrete(2), {}, observe="full")
