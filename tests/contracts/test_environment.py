"""What every native environment promises: seeding, exact state, bad input, and the scores on its rule card."""

from importlib.util import find_spec
from typing import Annotated, Any, Literal

import gymnasium as gym
import numpy as np
import pytest
import rlmem_envs
from annotated_types import Ge, Gt
from gymnasium.error import InvalidAction
from gymnasium.spaces import Box, Discrete
from gymnasium.utils.env_checker import check_env
from played import actions, assert_same, play
from rlmem_envs.core.parameters import problem_with
from rlmem_envs.registration import TASKS, make, task_class

CASES = [(task, level) for task in TASKS if find_spec(f"rlmem_envs.{TASKS[task]}") for level in task_class(task).levels]
"""Every task at every level."""

FIRST_LEVELS = [(task, next(iter(task_class(task).levels))) for task in dict(CASES)]

every_case = pytest.mark.parametrize(("task", "level"), CASES, ids=["-".join(case) for case in CASES])
every_task = pytest.mark.parametrize(("task", "level"), FIRST_LEVELS, ids=[task for task, _ in FIRST_LEVELS])


@every_case
def test_observations_are_in_their_space(task, level):
    env = make(task, 3, level)
    obs, _ = env.reset(seed=0)
    assert env.observation_space.contains(obs)
    for obs, reward, terminated, truncated, _ in play(env, 60):
        assert env.observation_space.contains(obs)
        assert reward.dtype == np.float64 and reward.shape == (3,)
        assert terminated.dtype == truncated.dtype == bool and terminated.shape == truncated.shape == (3,)


@every_task
def test_episodes_do_not_depend_on_the_number_of_environments(task, level):
    one, many = make(task, 2, level), make(task, 7, level)
    a, b = one.reset(seed=5)[0], many.reset(seed=5)[0]
    np.testing.assert_array_equal(a, b[:2])
    for x, y in zip(play(one, 150), play(many, 150), strict=True):
        assert_same(x, [part[:2] for part in y[:4]])


@every_task
def test_state_is_exact(task, level):
    env, twin = make(task, 4, level), make(task, 4, level)
    env.reset(seed=1)
    for _ in play(env, 30):
        pass
    env.reset(options={"reset_mask": np.array([True, False, True, False])})
    for _ in play(env, 7):
        pass
    saved = env.state()
    twin.restore(saved)
    expected = list(play(env, 150, seed=1))
    for x, y in zip(play(twin, 150, seed=1), expected, strict=True):
        assert_same(x, y)
    twin.restore(saved)  # what was saved does not change with the environment that it came from
    for x, y in zip(play(twin, 150, seed=1), expected, strict=True):
        assert_same(x, y)


@every_task
def test_reset_mask_begins_new_episodes_there_alone(task, level):
    env, twin = make(task, 4, level), make(task, 4, level)
    for e in (env, twin):
        e.reset(seed=2)
        for _ in play(e, 5):
            pass
    mask = np.array([False, True, False, True])
    env.reset(options={"reset_mask": mask})
    assert (env.t == np.where(mask, 0, twin.t)).all()
    for x, y in zip(play(env, 20, 3), play(twin, 20, 3), strict=True):
        assert_same(x, y, ~mask & ~(env.over | twin.over))


@every_task
def test_gymnasium_accepts_it(task, level, recwarn):
    env = gym.make(f"rlmem/{task}-v0", level=level)
    check_env(env.unwrapped, skip_render_check=True)
    vector = gym.make_vec(f"rlmem/{task}-v0", num_envs=5, level=level)
    assert vector.num_envs == 5 and vector.observation_space.contains(vector.reset(seed=0)[0])
    assert not [w for w in recwarn if "rlmem" in str(w.filename)]


@every_task
def test_it_can_be_looked_at(task, level):
    text = gym.make(f"rlmem/{task}-v0", level=level, render_mode="ansi")
    text.reset(seed=0)
    assert isinstance(text.render(), str) and text.render()
    picture = gym.make(f"rlmem/{task}-v0", level=level, render_mode="rgb_array")
    picture.reset(seed=0)
    frame = picture.render()
    assert frame.dtype == np.uint8 and frame.ndim == 3 and frame.shape[2] == 3 and frame.std() > 0


@every_task
def test_a_bad_action_is_named_and_changes_nothing(task, level):
    env, twin = make(task, 4, level), make(task, 4, level)
    for e in (env, twin):
        e.reset(seed=3)
    good = actions(env, np.random.default_rng(0))
    space = env.single_action_space
    bad = good.copy()
    bad[2] = np.nan if isinstance(space, Box) else (space.n if isinstance(space, Discrete) else space.nvec)
    with pytest.raises(InvalidAction, match="environment 2"):
        env.step(bad)
    with pytest.raises(InvalidAction, match="environment 3"):
        env.step(good[:3])
    with pytest.raises(InvalidAction, match="environment 0"):
        env.step(good.astype(str) if isinstance(space, Box) else good.astype(float))
    for odd in (None, "up", [[0], [1, 2]]):
        with pytest.raises(InvalidAction, match="environment 1"):
            env.step([good[0], odd, *good[2:]])
    assert_same(env.step(good if isinstance(space, Box) else good.astype(np.uint8)), twin.step(good))


@every_task
def test_unknown_hidden_facts_levels_and_parameters_are_refused(task, level):
    env = make(task, 2, level)
    with pytest.raises(ValueError, match="no hidden fact"):
        env.reset(options={"hidden": {"nonsense": np.zeros(2)}})
    with pytest.raises(ValueError, match="no level `nonsense`"):
        make(task, 2, "nonsense")
    with pytest.raises(
        TypeError, match=f"{task} has no parameter `max_episode_step` .did you mean `max_episode_steps`"
    ):
        make(task, 2, level, max_episode_step=1)
    with pytest.raises(TypeError, match="unexpected keyword argument 'frameskip'"):  # as TorchRL looks for it
        make(task, 2, level, frameskip=1)
    with pytest.raises(ValueError, match="max_episode_steps='x': expected an integer or none"):
        make(task, 2, level, max_episode_steps="x")


@every_task
def test_given_facts_are_played(task, level):
    """What an episode hides, given to others under the names of the rule card, plays the same episode."""
    env, twin = make(task, 3, level), make(task, 3, level)
    env.reset(seed=4)
    env.draws.next_episode(env._all)
    facts = env._draw(env._all)
    if env.per_step or not facts:
        pytest.skip("draws at every step are given in the tests of the task itself")
    first, second = (e.reset(seed=seed, options={"hidden": facts})[0] for e, seed in ((env, 9), (twin, 10)))
    np.testing.assert_array_equal(first, second)
    for x, y in zip(play(env, 20), play(twin, 20), strict=True):
        assert_same(x, y, ~(env.over | twin.over) & (env.draws.episode == 0) & (twin.draws.episode == 0))


@every_task
def test_refused_facts_change_nothing(task, level):
    env, twin = make(task, 3, level), make(task, 3, level)
    for e in (env, twin):
        e.reset(seed=5)
        for _ in play(e, 3):
            pass
    env.draws.next_episode(env._all)
    name, fact = next(iter(env._draw(env._all).items()))
    env.restore(twin.state())
    for wrong in (fact[:2], np.full(fact.shape, np.nan)):
        with pytest.raises(ValueError, match=name):
            env.reset(options={"hidden": {name: wrong}})
    for x, y in zip(play(env, 20), play(twin, 20), strict=True):
        assert_same(x, y)
    assert_same([env.reset()[0]], [twin.reset()[0]])


@every_task
def test_what_was_returned_does_not_change_later(task, level):
    env = make(task, 3, level)
    kept, copies = [], []

    def keep(*values):
        kept.extend(values)
        copies.extend(np.array(value) for value in values)

    keep(env.reset(seed=6)[0])
    for *arrays, infos in play(env, 60):
        keep(*arrays, *infos.values())
    env.reset()
    for value, copy in zip(kept, copies, strict=True):
        np.testing.assert_array_equal(value, copy)


@every_task
def test_misuse_of_the_interface_is_refused(task, level):
    with pytest.raises(ValueError, match="num_envs=0"):
        make(task, 0, level)
    env = make(task, 3, level)
    with pytest.raises(gym.error.ResetNeeded):
        env.step(actions(env, np.random.default_rng(0)))
    with pytest.raises(ValueError, match="2 seeds"):
        env.reset(seed=[1, 2])
    with pytest.raises(ValueError, match="reset_mask"):
        env.reset(options={"reset_mask": np.ones(2, bool)})
    np.testing.assert_array_equal(env.reset(seed=np.array([1, 2, 3]))[0], env.reset(seed=[1, 2, 3])[0])
    np.testing.assert_array_equal(env.reset(options={"reset_mask": np.zeros(3, bool)})[0], env._observe())
    with pytest.raises(ValueError, match="does not fit 2"):
        make(task, 2, level).restore(env.state())


def returns(env, act, episodes: int) -> np.ndarray:
    """Returns of the first episodes of every environment, `episodes` in all."""
    env.reset(seed=0)
    each = -(-episodes // env.num_envs)
    total, counts, found = np.zeros(env.num_envs), np.zeros(env.num_envs, int), []
    while (counts < each).any():
        begins = env.over.copy()
        _, reward, terminated, truncated, _ = env.step(act())
        total += np.where(begins, 0, reward)
        ended = (terminated | truncated) & ~begins
        found.append(total[ended & (counts < each)])
        counts += ended
        total[ended] = 0
    return np.concatenate(found)


PLAYED = [
    pytest.param(*case, id="-".join(case), marks=[] if case in FIRST_LEVELS else [pytest.mark.slow]) for case in CASES
]
"""The other levels of a task differ in the values of its parameters."""


@pytest.mark.parametrize(("task", "level"), PLAYED)
@pytest.mark.parametrize("player", ["random", "memoryless", "oracle"])
def test_scores_on_the_rule_card(task, level, player):
    """The returns on the card are those of its players, within four standard errors."""
    env = make(task, 256, level)
    rng = np.random.default_rng(0)
    act = {"random": lambda: actions(env, rng, 256), "memoryless": lambda: env.memoryless(rng), "oracle": env.oracle}
    found = returns(env, act[player], 512 if env.episode_steps()[1] <= 250 else 256)
    expected = getattr(env.scores(), player)
    n = len(found)
    error = found.std(ddof=1) / n**0.5 or (abs(expected) / n) ** 0.5  # a rare reward may not have come at all
    slack = 1e-3 * abs(expected) + 1e-9  # of the digits on the card
    assert abs(found.mean() - expected) <= 4 * error + slack, f"{found.mean():.4f} +- {error:.4f}"


@pytest.mark.parametrize("integers", [[1, -1], [0, 1]])
def test_integers_are_numbers_too(integers):
    env, twin = make("Wind", 2), make("Wind", 2)
    for e in (env, twin):
        e.reset(seed=0)
    dtype = np.uint8 if min(integers) >= 0 else np.int64
    assert_same(env.step(np.array([integers] * 2, dtype)), twin.step(np.array([integers] * 2, float)))


@pytest.mark.parametrize(
    ("value", "hint", "problem"),
    [
        (0, Annotated[int, Gt(0)], "at least 1"),
        (1, Annotated[int, Gt(0)], None),
        (2.0, int, None),
        (1.5, int, "an integer"),
        (True, int, "an integer"),
        (float("nan"), Annotated[float, Ge(0)], "a number"),
        (-0.5, Annotated[float, Ge(0)] | None, "at least 0 or none"),
        (None, Annotated[float, Ge(0)] | None, None),
        ("1", float, "a number"),
        (1, bool, "true or false"),
        ("b", Literal["a", "b"], None),
        ("c", Literal["a", "b"], "one of a, b"),
        (object(), Any, None),
    ],
)
def test_parameters_are_held_to_their_annotations(value, hint, problem):
    assert problem_with(value, hint) == problem


def test_a_plain_import_registers_the_tasks():
    assert rlmem_envs.make("RepeatPrevious", 2, "easy").num_envs == 2
    assert "rlmem/RepeatPrevious-v0" in gym.registry
