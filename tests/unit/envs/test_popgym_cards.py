"""Card games and bandits of POPGym: against the package, and what they promise beside that."""

from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import flatdim, flatten
from gymnasium.wrappers import FlattenObservation
from popgym_parity import Scripted, assert_parity, every_game
from rlmem_envs import popgym
from rlmem_envs.popgym import package
from rlmem_envs.registration import TASKS, task_class
from rlmem_envs.vector import vectorise


def deal_from(deck: Any, cards: np.ndarray) -> None:
    """Put `cards` into a deck of the package, which deals from the end."""
    deck.reset(shuffle=False)
    deck.idx = cards[::-1].copy()


def autoencode(game: Any, facts: Any) -> Any:
    deal_from(game.deck, facts["deck"])
    game.deck.deal("system", 1)
    return game.make_obs(game.deck["system"][-1])


def repeat_first(game: Any, facts: Any) -> Any:
    deal_from(game.deck, facts["deck"])
    game.deck.deal("player", 1)
    game.card = game.deck.show("player", ["suits_idx"])[0, -1]
    return game.card


def repeat_previous(game: Any, facts: Any) -> Any:
    deal_from(game.deck, facts["deck"])
    game.deck.deal("player", 1)
    return game.deck.show("player", ["suits_idx"])[0, -1]


def count_recall(game: Any, facts: Any) -> Any:
    deal_from(game.value_deck, facts["values"])
    deal_from(game.query_deck, facts["queries"])
    game.counts[:] = 0
    game.value, game.query = game.deal()
    game.counts[game.value] += 1
    return game.value, game.query


def higher_lower(game: Any, facts: Any) -> Any:
    deal_from(game.deck, facts["deck"])
    game.deck.deal("player", 1)
    return game.deck.show("player", ["ranks_idx"]).item()


def multiarmed_bandit(game: Any, facts: Any) -> Any:
    game.bandits = facts["bandits"]
    game.np_random = Scripted(facts["luck"])
    return 0


def concentration(game: Any, facts: Any) -> Any:
    deal_from(game.deck, facts["deck"][::-1])
    return game.get_obs()


INJECT = {
    "Autoencode": autoencode,
    "RepeatFirst": repeat_first,
    "RepeatPrevious": repeat_previous,
    "CountRecall": count_recall,
    "HigherLower": higher_lower,
    "MultiarmedBandit": multiarmed_bandit,
    "Concentration": concentration,
}


@every_game(*INJECT)
def test_games_are_those_of_the_package(task, level, player, episodes):
    assert_parity(task, level, player, episodes, INJECT[task])


def make_game(name: str, **kwargs: Any) -> Any:
    return popgym.make(name, num_envs=3, **kwargs)


def moves(env: Any, steps: int):
    """Actions [N, ...] of `steps` random steps."""
    env.action_space.seed(0)
    return [env.action_space.sample() for _ in range(steps)]


def one_hot(space: Any, observations: np.ndarray) -> np.ndarray:
    return np.stack([flatten(space, observation) for observation in observations])


@pytest.mark.parametrize(
    "name",
    ["RepeatPrevious", "Autoencode", "CountRecall", "Battleship", "PositionOnlyCartPole", "PositionOnlyPendulum"],
)
def test_wrappers_append_what_those_of_the_package_do(name):
    from popgym.wrappers import Antialias, PreviousAction

    ours = make_game(name, backend="popgym", previous_action=True, start_flag=True)
    game = package.game_class(name, "easy")
    theirs = vectorise(lambda: FlattenObservation(Antialias(PreviousAction(game()))), 3)
    assert flatdim(ours.single_observation_space) == flatdim(theirs.single_observation_space)
    pairs = [(ours.reset(seed=1)[0], theirs.reset(seed=1)[0])]
    pairs += [(ours.step(action)[0], theirs.step(action)[0]) for action in moves(ours, 230)]
    for a, b in pairs:
        a, b = (one_hot(env.single_observation_space, obs) for env, obs in ((ours, a), (theirs, b)))
        np.testing.assert_allclose(a, b, atol=1e-6)


@pytest.mark.parametrize("name", ["RepeatPrevious", "Concentration", "MultiarmedBandit"])
def test_wrappers_append_to_native_games(name):
    env, bare = make_game(name, previous_action=True, start_flag=True), make_game(name)
    assert env.unwrapped.scores() == bare.scores()
    obs, plain = env.reset(seed=1)[0], bare.reset(seed=1)[0]
    over, previous = np.ones(3, bool), np.zeros(3, int)
    for action in moves(env, 230):
        expected = [*plain.reshape(3, -1).T, np.where(over, 0, previous), over]
        np.testing.assert_array_equal(obs, np.stack(expected, axis=-1))
        assert env.observation_space.contains(obs)
        over, previous = bare.over.copy(), action
        obs, plain = env.step(action)[0], bare.step(action)[0]
    np.testing.assert_array_equal(env.oracle(), bare.oracle())


def test_a_masked_reset_leaves_what_is_appended_elsewhere():
    env = make_game("RepeatFirst", previous_action=True, start_flag=True)
    env.reset(seed=1)
    env.step(np.array([1, 2, 3]))
    obs = env.reset(options={"reset_mask": np.array([True, False, False])})[0]
    np.testing.assert_array_equal(obs[:, 1:], [[0, 1], [2, 0], [3, 0]])


POPGYM = [task for task, module in TASKS.items() if module.startswith("popgym.") and find_spec(f"rlmem_envs.{module}")]


OURS = ("rules", "first_observation")
"""Parameters that the package does not have."""


@pytest.mark.parametrize("level", ["easy", "medium", "hard"])
@pytest.mark.parametrize("task", POPGYM)
def test_both_backends_have_the_same_parameters_and_spaces(task, level):
    params = {name: value for name, value in task_class(task).levels[level].items() if name not in OURS}
    ours = make_game(task, params=params)
    theirs = make_game(task, backend="popgym", params=params)
    assert ours.single_observation_space == theirs.single_observation_space
    assert ours.single_action_space == theirs.single_action_space


@pytest.mark.parametrize(
    ("level", "actions", "oracle"), [("easy", 26, 0.9622), ("medium", 26, 0.9439), ("hard", 16, 0.8909)]
)
def test_count_recall_of_1_0_2_lacks_the_highest_count(level, actions, oracle):
    env = popgym.make("CountRecall", level, 1, rules="1.0.2")
    assert env.single_action_space.n == actions
    assert env.scores().oracle == pytest.approx(oracle, abs=5e-5)


def test_rules_are_known_to_the_games_that_have_them():
    assert popgym.make("RepeatFirst", rules="1.0.2").single_action_space.n == 4
    with pytest.raises(ValueError, match="backend=native"):
        popgym.make("CountRecall", backend="popgym", rules="1.0.2")
    with pytest.raises(ValueError, match="has no VelocityOnlyCartPole"):
        popgym.make("VelocityOnlyCartPole", rules="1.0.2")
