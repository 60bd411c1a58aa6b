"""MiniGrid and BabyAI: what is seen in every view, success, and a run."""

import sys

import numpy as np
import pytest
import torch
from helpers import fast_only
from rlmem_envs.minigrid import make

from rlmem.agents.encoder import Features
from rlmem.config.compose import load
from rlmem.core.errors import UserError
from rlmem.run.train import train


@pytest.fixture
def minigrid():
    return pytest.importorskip("minigrid", reason="minigrid is not installed: pip install '.[minigrid]'")


def test_what_is_missing_is_said(monkeypatch, in_tmp):
    monkeypatch.setitem(sys.modules, "minigrid", None)  # importing it fails
    with pytest.raises(UserError, match=r"^env=minigrid: MiniGrid and BabyAI need minigrid, .* '\.\[minigrid\]' in a"):
        train(load(["env=minigrid", "total_steps=100"]))


def test_every_view_shows_the_packages_cells(minigrid):
    seen = {view: make(view=view, num_envs=2).reset(seed=3)[0] for view in ("onehot", "symbols", "pixels", "flat")}
    assert {view: obs.shape[1:] for view, obs in seen.items()} == {
        "onehot": (980,), "symbols": (7, 7, 3), "pixels": (56, 56, 3), "flat": (2835,),
    }  # fmt: skip
    symbols = seen["symbols"]
    assert (seen["flat"][:, :147] == symbols.reshape(2, 147)).all()
    objects = seen["onehot"].reshape(2, 7, 7, 20)[..., :11].argmax(-1)
    assert (objects == symbols[..., 0]).all() and (seen["onehot"].sum(1) == 3 * 49).all()


def test_encoders_scale_every_view_to_at_most_one(minigrid):
    """By bounds that are true: what is one-hot stays 0 and 1."""
    for view in ("onehot", "symbols", "flat"):
        env = make("MiniGrid-DoorKey-5x5-v0", view, num_envs=4)
        features, (obs, _) = Features(env.single_observation_space), env.reset(seed=0)
        rng, greatest = np.random.default_rng(0), 0.0
        for _ in range(60):
            assert env.observation_space.contains(obs)
            found = features(torch.as_tensor(obs))
            assert found.max() <= 1
            greatest = max(greatest, float(found.max()))
            obs = env.step(rng.integers(0, 6, 4))[0]
        assert greatest == 1
        if view == "onehot":
            assert set(found.unique().tolist()) == {0, 1}


def test_success_is_being_rewarded(minigrid):
    env, rng = make(num_envs=8, max_episode_steps=60), np.random.default_rng(0)
    env.reset(seed=0)
    won = lost = 0
    for _ in range(400):
        _, reward, terminated, truncated, infos = env.step(rng.choice([0, 1, 2, 2], 8))
        ended = terminated | truncated
        if ended.any():
            assert (infos["success"][ended] == (reward[ended] > 0)).all()
            won, lost = won + infos["success"][ended].sum(), lost + (~infos["success"][ended]).sum()
    assert won > 3 and lost > 3


RUN = [
    "env.num_envs=2", "env.max_episode_steps=20", "memory=gru", "memory.hidden_size=4", "total_steps=64",
    "algo.rollout_slots=16", "algo.num_minibatches=1", "algo.epochs=1", "evaluation.episodes=2",
    "evaluation.max_steps=20", "run_dir=run",
]  # fmt: skip


LINES = ("env=minigrid env.view=symbols encoder=cnn", "env=minigrid", "env=babyai")


@pytest.mark.parametrize("line", fast_only(LINES[:1], LINES))
def test_a_run(minigrid, line, in_tmp):
    train(load([*line.split(), *RUN]))
