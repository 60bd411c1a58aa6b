"""Wind and Point Robot: their tables of tasks, trials and splits, and the oracle's way."""

import numpy as np
import pytest
from rlmem_envs.navigation.point_robot import PointRobot
from rlmem_envs.navigation.wind import Wind

FLOAT32 = {"rtol": 0, "atol": 1e-6}
"""Observations are rounded to float32; positions are not."""


@pytest.mark.parametrize("cls", [Wind, PointRobot])
def test_training_and_test_tasks_have_none_in_common(cls):
    played = {}
    for split in ("train", "test", "all"):
        env = cls(500, num_tasks=7, num_train=3, split=split)
        env.reset(seed=0)
        played[split] = set(env.task_index)
        np.testing.assert_array_equal(getattr(env, env.varies), env._tasks[env.task_index])
    assert played == {"train": {0, 1, 2}, "test": {3, 4, 5, 6}, "all": set(range(7))}


@pytest.mark.parametrize("cls", [Wind, PointRobot])
def test_another_seed_draws_another_table(cls):
    assert (cls(1)._tasks == cls(1, task_seed=1337)._tasks).all()
    assert not (cls(1)._tasks == cls(1, task_seed=0)._tasks).any()


def test_a_task_can_be_chosen_by_its_number():
    env = Wind(3)
    env.reset(seed=0, options={"hidden": {"task_index": [5, 59, 0]}})
    np.testing.assert_array_equal(env.wind, env._tasks[[5, 59, 0]])
    with pytest.raises(ValueError, match=r"task_index=\[ 0 60  0\]: expected 0 .. 59"):
        env.reset(options={"hidden": {"task_index": [0, 60, 0]}})


def test_a_new_trial_is_seen_from_its_first_step_on():
    env = Wind(1, goal_radius=0.05, episode_steps=2, episodes_per_task=3)
    obs, _ = env.reset(seed=0, options={"hidden": {"wind": [[0.0, 0.05]]}})
    seen, flags, ends = [obs[0, 1]], [obs[0, 2]], []
    for _ in range(6):
        obs, _, terminated, *_ = env.step([[0.0, 0.5]])
        seen.append(obs[0, 1])
        flags.append(obs[0, 2])
        ends.append(terminated[0])
    np.testing.assert_allclose(seen, [0, 0.1, 0.2, 0.1, 0.2, 0.1, 0.2], **FLOAT32)
    assert flags == [0, 0, 1, 0, 1, 0, 1] and ends == [False] * 5 + [True]


def test_success_is_to_have_been_in_the_goal_in_any_trial():
    env = PointRobot(3, episode_steps=3, goal_radius=0.2)
    start = np.array([[[0, 0.75], [0, 0]], [[0, 0], [0, 0.75]], [[0, 0], [0, 0]]])
    env.reset(seed=0, options={"hidden": {"goal": [[0, 1]] * 3, "start_pos": start}})
    for _ in range(6):
        *_, info = env.step([[0, 1]] * 3)
    np.testing.assert_array_equal(info["success"], [True, True, False])


def test_the_oracle_takes_the_fastest_way_and_stays():
    """The first step in the goal is the first at which a square of reachable points meets the goal."""
    env = Wind(60)
    env.reset(seed=0, options={"hidden": {"task_index": range(60)}})
    n = np.arange(1, 76)[:, None, None]
    away = np.maximum(np.abs(n * env.wind - (0, 1)) - 0.1 * n, 0)  # [75, 60, 2]
    first = (np.linalg.norm(away, axis=-1) <= 0.03 - 1e-5).argmax(0)
    rewards = np.array([env.step(env.oracle())[1] for _ in range(75)])
    np.testing.assert_array_equal(rewards, np.arange(75)[:, None] >= first)
