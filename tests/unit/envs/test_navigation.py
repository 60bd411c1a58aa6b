"""Wind and Point Robot against recordings of the originals, their tables of tasks, trials and splits."""

import numpy as np
import pytest
from rlmem_envs.navigation.point_robot import PointRobot
from rlmem_envs.navigation.tasks import displacement
from rlmem_envs.navigation.wind import Wind

FLOAT32 = {"rtol": 0, "atol": 1e-6}
"""Observations are rounded to float32; positions are not."""


def twice(array) -> np.ndarray:
    return np.stack([array, array])


def recorded(cls, episode):
    """Two copies of the recorded task."""
    names = ("goal_radius", "episode_steps", "episodes_per_task")
    params = {name: episode.params[name] for name in names} | {"num_tasks": episode.params["n_tasks"], "num_train": 1}
    if "wind_range" in episode.params:
        params["wind_range"] = episode.params["wind_range"][1]
    return cls(2, **params)


def replay(env, episode):
    """Every frame, from the recorded hidden facts."""
    hidden = {name: twice(episode[name]) for name in ("goal", "wind", "start_pos", "task_index")}
    obs, _ = env.reset(seed=0, options={"hidden": hidden})
    restarts = dict(zip(episode["mdp_restart_step"], episode["mdp_restart_obs"], strict=True))
    np.testing.assert_array_equal(displacement(episode["actions"]), episode["env_actions"])
    for t in range(len(episode) + 1):
        np.testing.assert_allclose(obs, twice(episode["observations"][t]), **FLOAT32)
        np.testing.assert_array_equal(env.position, twice(episode["state"][t]))
        if t == len(episode):
            break
        obs, reward, terminated, truncated, info = env.step(twice(episode["actions"][t]))
        np.testing.assert_allclose(reward, episode["rewards"][t], atol=1e-9)
        assert (terminated == episode["terminated"][t]).all() and (truncated == episode["truncated"][t]).all()
        assert (env.in_goal == episode["in_goal_arrived"][t]).all()
        if episode.params["episodes_per_task"] > 1:
            assert (env.trial_over == episode["done_mdp"][t]).all()
        if t in restarts:
            np.testing.assert_array_equal(env.position, twice(restarts[t][:2]))
        after = np.linalg.norm(env.position - env.goal, axis=1) <= episode.params["goal_radius"]
        assert (after == episode["in_goal_after_step"][t]).all()
    assert (info["success"] == episode["in_goal_arrived"].any()).all()


@pytest.mark.recorded_env("wind")
def test_wind_is_the_recorded_one(episode):
    env = recorded(Wind, episode)
    np.testing.assert_array_equal(env._tasks, episode["task_table"])
    replay(env, episode)


@pytest.mark.recorded_env("point_robot")
def test_point_robot_is_the_recorded_one(episode):
    env = recorded(PointRobot, episode)
    if episode.params["variant"] == "SHM":  # the other's table follows from a seed that is not recorded
        np.testing.assert_array_equal(env._tasks, episode["task_table"])
    replay(env, episode)


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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_train": 61}, r"num_train=61: expected 1 .. 60, at most num_tasks=60"),
        ({"num_train": 60, "split": "test"}, "num_train=60: expected less than num_tasks=60"),
        ({"split": "validation"}, "split='validation': expected one of all, train, test"),
        ({"goal_radius": 0.0}, "goal_radius=0.0: expected greater than 0"),
        ({"episode_steps": 0}, "episode_steps=0: expected at least 1"),
        ({"wind_range": -1.0}, "wind_range=-1.0: expected at least 0"),
    ],
)
def test_impossible_tasks_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Wind(1, **options)
