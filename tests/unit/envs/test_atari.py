"""Atari: what an episode is, and the screens."""

import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from rlmem_envs.atari import covering, make

from rlmem.config.compose import load
from rlmem.core.errors import UserError
from rlmem.record.recorder import read_jsonl
from rlmem.run.train import train


@pytest.fixture
def game():
    pytest.importorskip("ale_py", reason="ale-py is not installed: pip install '.[atari]'")
    env = make("Breakout", 2)
    yield env
    env.close()


def test_small_pixels_are_means_of_areas():
    line = covering(5, 2)  # each half covers two pixels and a half
    np.testing.assert_allclose(line, [[0.4, 0.4, 0.2, 0, 0], [0, 0, 0.2, 0.4, 0.4]], rtol=1e-6)
    np.testing.assert_allclose(covering(210, 84).sum(1), 1, rtol=1e-6)


def test_what_is_missing_is_said(monkeypatch, in_tmp):
    monkeypatch.setitem(sys.modules, "ale_py", None)  # importing it fails
    with pytest.raises(ImportError, match=r"pip install '\.\[atari\]' in a clone of rlmem"):
        make("Breakout", 1)
    with pytest.raises(
        UserError, match=r"^env=atari: Atari games need ale-py, .* pip install '\.\[atari\]' in a clone of rlmem$"
    ):
        train(load(["env=atari", "total_steps=100"]))


def test_screens_are_grey_and_small_and_points_are_rewards(game):
    obs, _ = game.reset(seed=0)
    assert obs.dtype == np.uint8 and obs.shape == (2, 84, 84) and len(np.unique(obs)) > 3
    fire, points = np.ones(2, int), 0.0
    for t in range(300):
        _, reward, _, _, _ = game.step(fire if t % 20 == 0 else np.array([2, 3]))
        points += reward.sum()
    assert points > 0 and points == int(points)


def test_an_unknown_game_is_named(game):
    with pytest.raises(gym.error.Error, match="Breakuot"):
        make("Breakuot", 1)


@pytest.mark.slow
def test_a_run_reads_the_screens(game, in_tmp):
    small = ["env.num_envs=2", "memory=gru", "memory.hidden_size=8", "algo.head_sizes=[8]", "encoder.hidden_size=8"]
    more = ["algo.rollout_slots=16", "algo.epochs=1", "algo.num_minibatches=2", "total_steps=64", "threads=1"]
    rare = ["evaluation.every=null", "evaluation.episodes=1", "env.max_episode_steps=10"]
    train(load(["env=atari", "encoder=cnn_atari", "run_dir=run", *small, *more, *rare]))
    assert read_jsonl(Path("run/metrics.jsonl"))[-1]["step"] == 64
