"""T-Maze: its options and its scores; the two-step cue."""

import numpy as np
import pytest
from rlmem_envs.diagnostics.two_step_cue import TwoStepCue
from rlmem_envs.mazes.tmaze import DOWN, LEFT, RIGHT, UP, TMaze


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
