"""The three games of the LP-RNN paper: what players see, noise and speckle."""

import numpy as np
import pytest
from rlmem_envs.lprnn.cued_catch import CuedCatch
from rlmem_envs.lprnn.teleporter_tmaze import TeleporterTMaze
from rlmem_envs.registration import make

SMALL = {
    "CuedCatch": {"initial_cue_duration": 2, "num_trials": 8, "reward_free_trials": 1},
    "SequenceRecall": {"sequence_length": 3, "demo_light_on_frames": 2, "demo_light_off_frames": 2},
    "TeleporterTMaze": {"difficulty": 0, "teleport_delay": 3, "limbo_time": 3, "timeout_frames": 80},
}


class Constant:
    """Instead of a generator: the same numbers for all."""

    def random(self, shape):
        return np.broadcast_to([0.3, 0.9, 0.6, 0.8], shape)


@pytest.mark.parametrize("task", [*SMALL, "VisualMatch", "KeyToDoor"])
def test_the_memoryless_player_looks_at_the_board_alone(task):
    env = make(task, 16, **SMALL.get(task, {}))
    rng = np.random.default_rng(0)
    obs, _ = env.reset(seed=0)
    chosen = {}
    for _ in range(400):
        actions = env.memoryless(Constant())
        for row, action in zip(obs[~env.over], actions[~env.over], strict=True):
            assert chosen.setdefault(row.tobytes(), action) == action
        wander = rng.random(16) < 0.3
        obs = env.step(np.where(wander, rng.integers(0, env.single_action_space.n, 16), actions))[0]


def test_noise_on_the_rewards_of_cued_catch_has_mean_zero_and_the_given_deviation():
    env = CuedCatch(512, initial_cue_duration=1, num_trials=6, reward_free_trials=2, reward_sigma=0.5)
    env.reset(seed=0)
    rewards = np.stack([env.step(env.oracle())[1] for _ in range(env.episode_steps()[1])])
    paid = rewards[rewards != 0]
    assert len(paid) == 4 * 512
    assert paid.mean() == pytest.approx(1, abs=0.04) and paid.std() == pytest.approx(0.5, abs=0.03)


def test_three_fifths_of_the_ground_look_like_wall_and_only_where_it_can_be_seen():
    env = TeleporterTMaze(64, difficulty=4)
    env.reset(seed=0)
    speckle = env._draw(env._all)["speckle"]
    assert speckle[:, 54:68].mean() == pytest.approx(0.6, abs=0.01)
    assert not speckle[:, :54].any() and not speckle[:, 68:].any()
    assert (speckle[0] != speckle[1]).any()
