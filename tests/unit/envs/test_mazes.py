"""T-Maze against recordings of the original, its options, and its scores; the two-step cue."""

from itertools import product

import numpy as np
import pytest
from rlmem_envs.diagnostics.two_step_cue import TwoStepCue
from rlmem_envs.mazes.tmaze import DOWN, LEFT, RIGHT, UP, TMaze

OPTIONS = ("corridor_length", "oracle_length", "goal_reward", "penalty", "distract_reward")


@pytest.mark.recorded_env("tmaze")
def test_the_maze_is_the_recorded_one(episode):
    env = TMaze(2, **{name: episode.params[name] for name in OPTIONS})
    assert env.episode_steps() == (len(episode), len(episode)) == (episode.params["episode_length"],) * 2
    goal = int(episode["goal_y"])
    obs, _ = env.reset(seed=0, options={"hidden": {"goal_y": [goal, goal]}})
    for t, action in enumerate(episode["actions"]):
        np.testing.assert_array_equal(obs, [episode["observations"][t]] * 2)
        np.testing.assert_array_equal(env.position, [episode["position"][t]] * 2)
        obs, reward, terminated, truncated, info = env.step([action] * 2)
        np.testing.assert_allclose(reward, episode["rewards"][t], atol=1e-9)
        assert (terminated == episode["terminated"][t]).all() and (truncated == episode["truncated"][t]).all()
    np.testing.assert_array_equal(obs, [episode["observations"][-1]] * 2)
    np.testing.assert_array_equal(env.position, [episode["position"][-1]] * 2)
    assert (info["success"] == (episode["position"][-1, 1] == goal)).all()


def walk(env: TMaze, actions, goal: int = 1) -> tuple[np.ndarray, float]:
    """Observations and return of one episode."""
    seen = [env.reset(options={"hidden": {"goal_y": [goal]}})[0][0]]
    total = 0.0
    for action in actions:
        obs, reward, *_ = env.step([action])
        seen.append(obs[0])
        total += reward[0]
    return np.array(seen), total


def test_the_goal_shows_once_however_far_one_goes_back_for_it():
    env = TMaze(1, corridor_length=2, oracle_length=3)
    seen, total = walk(env, [LEFT, LEFT, LEFT, LEFT, RIGHT, LEFT, RIGHT, RIGHT, RIGHT], goal=-1)
    np.testing.assert_array_equal(seen[:, 1], [0, 0, 0, -1, 0, 0, 0, 0, 0, 0])
    assert (seen[:, 0] == 0).all()
    assert total == pytest.approx(-0.5 * 5)  # behind time from step 4 on, the last costs nothing
    seen, total = walk(env, [LEFT] * 3 + [RIGHT] * 5 + [DOWN], goal=-1)
    np.testing.assert_array_equal(seen[-2:], [[1, 0], [1, -1]])
    assert total == 1


def test_positions_goal_and_time_can_be_observed():
    env = TMaze(1, 3, 1, ambiguous_position=False, add_timestep=True)
    seen, _ = walk(env, [LEFT, LEFT, RIGHT, RIGHT, RIGHT, UP], goal=1)
    x, goal = [1, 0, 0, 1, 2, 3, 3], [0, 1, 0, 0, 0, 0, 0]
    np.testing.assert_array_equal(seen.T, [x, [0] * 7, goal, range(7)])
    env = TMaze(1, 2, 1, ambiguous_position=False, expose_goal=True)
    seen, _ = walk(env, [LEFT, RIGHT, RIGHT, RIGHT, DOWN], goal=-1)
    np.testing.assert_array_equal(seen, [[1, 0, 0], [0, 0, -1], [1, 0, -1], [2, 0, -1], [3, 0, -1], [3, -1, -1]])


@pytest.mark.parametrize(
    "options",
    [
        {"corridor_length": 4, "oracle_length": 2},
        {"corridor_length": 3, "oracle_length": 1, "distract_reward": 0.25, "goal_reward": 2.0, "penalty": -0.1},
        {"corridor_length": 3, "distract_reward": 0.5, "penalty": 0.0},
        {"corridor_length": 2, "oracle_length": 1, "ambiguous_position": False, "expose_goal": True},
    ],
)
def test_scores_follow_from_the_parameters(options):
    env = TMaze(20_000, **options)
    rng = np.random.default_rng(0)
    for player in ("random", "memoryless", "oracle"):
        env.reset(seed=1)
        total = np.zeros(env.num_envs)
        for _ in range(env.episode_steps()[0]):
            total += env.step(
                rng.integers(0, 4, env.num_envs)
                if player == "random"
                else getattr(env, player)(*[rng] * (player == "memoryless"))
            )[1]
        error = total.std() / len(total) ** 0.5
        assert abs(total.mean() - getattr(env.scores(), player)) <= 4 * error + 1e-9


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"corridor_length": 0}, "corridor_length=0: expected at least 1"),
        ({"oracle_length": -1}, "oracle_length=-1: expected at least 0"),
        ({"penalty": 0.5}, "penalty=0.5: expected at most 0"),
        ({"expose_goal": True}, "expose_goal=True: expected together with ambiguous_position=False"),
    ],
)
def test_impossible_mazes_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        TMaze(1, **options)


@pytest.mark.parametrize(("cues", "delay"), [(2, 1), (5, 3)])
def test_a_cue_is_shown_once_and_asked_for_at_the_end(cues, delay):
    env = TwoStepCue(3, cues, delay)
    cue = np.array([0, cues - 1, 1])
    obs, _ = env.reset(seed=0, options={"hidden": {"cue": cue}})
    np.testing.assert_array_equal(obs, cue)
    for _ in range(delay):
        obs, reward, terminated, *_ = env.step(cue)
        assert (obs == cues).all() and not terminated.any()
        np.testing.assert_array_equal(reward, -1.0 * (cue != 0))
    _, reward, terminated, *_ = env.step([0, 0, 1])
    np.testing.assert_array_equal(reward, cue == [0, 0, 1])
    assert terminated.all()


def test_no_player_without_memory_beats_chance():
    """All 27 x 27 that act on the cue somehow, and answer the blank as that action says."""
    maps = np.array(list(product(range(3), repeat=3)))
    first, answer, cue = (part.ravel() for part in np.meshgrid(range(27), range(27), range(3), indexing="ij"))
    env = TwoStepCue(len(cue), num_cues=3)
    env.reset(seed=0, options={"hidden": {"cue": cue}})
    signal = maps[first, cue]
    total = env.step(signal)[1] + env.step(maps[answer, signal])[1]
    assert total.reshape(27, 27, 3).mean(-1).max() == pytest.approx(1 / 3) == env.scores().memoryless


@pytest.mark.parametrize("options", [{"num_cues": 1}, {"delay": 0}])
def test_impossible_cues_are_refused(options):
    ((name, value),) = options.items()
    with pytest.raises(ValueError, match=f"{name}={value}: expected at least"):
        TwoStepCue(1, **options)
