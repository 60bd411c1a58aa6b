"""DQN that explores by whole episodes: what it does, and the published schedule."""

from functools import partial
from itertools import pairwise
from math import comb

import numpy as np
import pytest
import torch
from helpers import small_run, without_time
from small_runs import REPLAY

from rlmem.acting.collector import Collector
from rlmem.agents.actor_critic import Exploration
from rlmem.config.compose import load
from rlmem.run.assemble import assemble

PARITY = ["algo=dqn", "env=parity", "env.n=6", "encoder.prev_action=false", "algo.epsilon_per=episode"]
SIZES = ["memory=gru", "memory.hidden_size=8", "encoder.hidden_size=8", "algo.head_sizes=[8]", "env.num_envs=200"]
ACTIONS, EACH = 3, 15
run = partial(small_run, base=REPLAY)

Slots = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Symbols, actions and greedy actions of one episode."""


def played(epsilon: float) -> list[Slots]:
    """The first `EACH` episodes of 200 environments with a fresh agent."""
    parts = assemble(load([*PARITY, *SIZES, f"algo.epsilon_start={epsilon}", "algo.random_steps=0"]))
    exploration = parts.algo.explore(0, 10**9)
    assert exploration == Exploration(noise=epsilon, by_episode=True)
    collector = Collector(parts.env, parts.agent, 0, torch.Generator().manual_seed(0), parts.device)
    streams = collector.collect(7 * EACH + 1, 10**9, exploration=exploration)[0].streams
    with torch.no_grad():
        greedy = parts.agent.q(parts.agent.trunks.read_critic(streams)).argmax(-1)
    found = []
    for row in range(200):
        begins = np.flatnonzero(streams.start[row])[: EACH + 1]
        for a, b in pairwise(begins):  # slot b - 1 holds the final observation
            found.append(tuple(x[row, a : b - 1].numpy() for x in (streams.obs, streams.action, greedy)))
    assert len(found) == 200 * EACH
    return found


def test_an_episode_is_random_or_greedy_as_a_whole():
    """How many of six actions are greedy ones: all of them, or as many as of six random ones."""
    episodes = played(epsilon=0.6)
    counts = [(action == greedy).sum() for _, action, greedy in episodes if len(action) == 6]
    random = np.array([comb(6, k) * (ACTIONS - 1) ** (6 - k) / ACTIONS**6 for k in range(7)])
    expected = 0.6 * random + 0.4 * np.eye(7)[6]
    error = (expected * (1 - expected) / len(counts)) ** 0.5
    assert (abs(np.bincount(counts, minlength=7) / len(counts) - expected) < 4 * error + 1e-9).all()


def test_the_published_schedule_makes_fewer_and_fewer_answers_greedy():
    """From all to one in n + 1, over a tenth of the run."""
    overrides = ["algo.random_steps=0", "algo.epsilon_start=0", "algo.epsilon_end=0.9", "algo.epsilon_fraction=0.1"]
    parts = assemble(load([*PARITY, *SIZES, *overrides]))
    shown = [parts.algo.explore(steps, 1000).noise for steps in (0, 50, 100, 1000)]
    assert shown == pytest.approx([0, 0.45, 0.9, 0.9])


BY_EPISODE = ["algo=dqn", "env=repeat_first", "env.max_episode_steps=30", "algo.epsilon_per=episode"]
BY_EPISODE += ["total_steps=300"]


def test_evaluation_has_episodes_of_its_own(in_tmp):
    training = lambda row: "update" in row  # noqa: E731
    often = without_time(run(*BY_EPISODE, "evaluation.every=100", run_dir="often"), training)
    assert often == without_time(run(*BY_EPISODE, run_dir="never"), training)
