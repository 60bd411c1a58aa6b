"""Vectors of others with any autoreset mode: the same numbers in every mode, an exact state, refusals by name."""

import re
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import ClassVar

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import batch_space
from gymnasium.wrappers import TimeLimit
from helpers import assert_resumes_exactly
from leafy import Leafy
from rlmem_envs.vector import vectorise

from rlmem.acting.autoreset import CannotTurn, Slotted, slot_layout
from rlmem.config.compose import load
from rlmem.run.nodes import make_env
from rlmem.run.train import train

N, STEPS = 3, 120
MODES = list(AutoresetMode)


class Walk(gym.Env):
    """A random walk from a random place, with a wind in every step; it falls at 4, and is cut after 9 steps."""

    observation_space, action_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32), gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x, self.drift = self.np_random.normal(size=2)
        return self._obs(), {"drift": self.drift}

    def step(self, action):
        self.x += 2 * action - 0.5 + self.drift + self.np_random.normal()
        return self._obs(), float(-abs(self.x)), bool(abs(self.x) > 4), False, {"success": bool(self.x > 4)}

    def _obs(self):
        return np.array([self.x, self.drift], np.float32)


def walk():
    return TimeLimit(Walk(), 9)


def vector(kind, mode, **kwargs):
    made = {"sync": SyncVectorEnv, "async": AsyncVectorEnv}[kind]([walk] * N, autoreset_mode=mode, **kwargs)
    return slot_layout(made)


def played(env, steps=STEPS, begin=True, rng=None):
    """Observations, rewards, flags and successes of so many steps."""
    rng = rng or np.random.default_rng(0)
    rows = [env.reset(seed=7)[0]] if begin else []
    for _ in range(steps):
        obs, reward, terminated, truncated, infos = env.step(rng.integers(2, size=N))
        ended = terminated | truncated
        success = infos.get("success", np.zeros(N, bool)) & ended & infos.get("_success", ended)
        rows += [obs, reward, terminated, truncated, success]
    return rows


def alike(one, other):
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.fixture(scope="module")
def truth():
    """What `env=gym` plays: single environments, each reset by itself."""
    rows = played(vectorise(walk, N))
    assert sum(row.any() for row in rows[3::5]) > 5 and sum(row.any() for row in rows[4::5]) > 5, "falls and cuts"
    assert any(row.any() for row in rows[5::5]), "successes"
    return rows


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_every_mode_plays_the_same_numbers_and_goes_on_from_its_state(mode, truth, recwarn):
    env = vector("sync", mode)
    assert env.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    alike(played(env), truth)
    rng = np.random.default_rng(1)
    played(env, 50, rng=rng)
    for _ in range(12):  # with episodes of all lengths, some of which have just ended
        saved, before = env.state(), rng.bit_generator.state
        other = vector("sync", mode)
        other.restore(saved)
        assert len(recwarn) == 0, "it was brought back exactly"
        after = played(env, 20, begin=False, rng=rng)
        again = np.random.default_rng()
        again.bit_generator.state = before
        alike(played(other, 20, begin=False, rng=again), after)


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_worker_processes_play_the_same_numbers(mode, truth):
    with closing(vector("async", mode)) as env, closing(vector("async", mode)) as other:
        alike(played(env, 60), truth[: 1 + 5 * 60])
        other.restore(env.state())
        rng = np.random.default_rng(2), np.random.default_rng(2)
        alike(*(played(one, 20, begin=False, rng=own) for one, own in zip((env, other), rng, strict=True)))


def test_what_does_not_follow_from_its_seeds_says_so_when_it_is_brought_back():
    class Unseeded(Walk):
        def reset(self, *, seed=None, options=None):
            return super().reset(options=options)

    env, other = (slot_layout(SyncVectorEnv([Unseeded] * 2, autoreset_mode="SameStep")) for _ in range(2))
    env.reset(seed=0)
    env.step(np.zeros(2, int))
    with pytest.warns(UserWarning, match="SyncVectorEnv: the running episodes, played again, show other observations"):
        other.restore(env.state())


@pytest.mark.parametrize(
    ("mask", "actions"), [("leaf", "multi"), ("info", "discrete"), ("method", "discrete"), ("tuple", "multi")]
)
@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_steps_for_nothing_take_allowed_actions(mode, mask, actions):
    """Leafy fails where an action is forbidden: in the step that begins an episode, and while others are replayed."""

    def make():
        made = SyncVectorEnv([partial(Leafy, "box", actions, mask)] * N, autoreset_mode=mode)
        made.masks_in_info = mask == "info"
        return slot_layout(made)

    def act(env):
        """Allowed actions, and some that are forbidden where they are ignored."""
        rows = [np.split(np.concatenate(one.unwrapped.masks), cuts) for one in env.envs]
        picked = np.array([[(part ^ over).argmax() for part in row] for row, over in zip(rows, env.over, strict=True)])
        return env.step(picked[:, 0] if actions == "discrete" else picked)

    env, cuts = make(), {"discrete": [], "multi": [2]}[actions]
    env.reset(seed=3)
    for _ in range(12):
        for _ in range(5):
            act(env)
        other = make()
        other.restore(env.state())


class Lockstep(VectorEnv):
    """A vector that takes no reset mask; its environments end together after `lengths` steps if these are equal."""

    metadata: ClassVar = {"autoreset_mode": AutoresetMode.SAME_STEP}

    def __init__(self, lengths=(3, 3), tells=True, num_envs=2):
        self.lengths, self.tells, self.num_envs = np.array(lengths), tells, len(lengths)
        self.single_observation_space, self.single_action_space = Walk.observation_space, Walk.action_space
        self.observation_space = batch_space(Walk.observation_space, self.num_envs)
        self.action_space = batch_space(Walk.action_space, self.num_envs)

    def reset(self, *, seed=None, options=None):
        self.at = np.zeros(self.num_envs)
        return self._obs(), {}

    def step(self, actions):
        self.at = self.at + 1
        ended, infos = self.at == self.lengths, {}
        if ended.any() and self.tells:
            infos = {"final_obs": self._obs(), "_final_obs": ended}
        self.at[ended] = 0
        return self._obs(), np.ones(self.num_envs), ended, np.zeros_like(ended), infos

    def _obs(self):
        return np.stack([self.at, self.at], 1).astype(np.float32)


def test_episodes_that_end_together_need_no_reset_mask():
    env = slot_layout(Lockstep())
    env.reset(seed=0)
    seen = [env.step(np.zeros(2, int))[0][0, 0] for _ in range(8)]
    assert seen == [1, 2, 3, 0, 1, 2, 3, 0]


@pytest.mark.parametrize(
    ("env", "said"),
    [
        (partial(Lockstep, (3, 5)), "Lockstep (SAME_STEP) is reset as a whole: it takes no options['reset_mask']"),
        (
            partial(Lockstep, tells=False),
            "Lockstep (SAME_STEP) resets in the same step, and its infos have no `final_obs`",
        ),
    ],
)
def test_what_cannot_be_turned_is_refused_by_name_while_it_runs(env, said):
    env = slot_layout(env())
    env.reset(seed=0)
    with pytest.raises(CannotTurn, match=re.escape(said)):
        [env.step(np.zeros(2, int)) for _ in range(8)]


def test_a_mode_that_nobody_knows_is_refused_by_name():
    class Silent(Lockstep):
        metadata: ClassVar = {}

    with pytest.raises(
        ValueError, match="Silent has the autoreset mode None in its metadata; expected one of NEXT_STEP"
    ):
        slot_layout(Silent())
    with (
        closing(AsyncVectorEnv([walk] * 2, shared_memory=False)) as env,
        pytest.raises(ValueError, match="AsyncVectorEnv"),
    ):
        slot_layout(env)


def same_step(num_envs: int = 2) -> VectorEnv:
    return SyncVectorEnv([walk] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)


SMALL = [
    "evaluation.episodes=2", "evaluation.max_steps=9", "algo.rollout_slots=16", "algo.num_minibatches=1",
    "checkpoint.every=40",
]  # fmt: skip


def test_a_run_turns(in_tmp):
    small = [*SMALL, "memory=mlp", "total_steps=64"]
    config = own_env(small)
    with closing(make_env(config, 2)) as env:
        assert isinstance(env, Slotted)
    train(config)


@pytest.mark.slow
def test_a_run_in_a_turned_vector_that_was_killed_ends_like_one_that_was_not(in_tmp):
    lines = [*SMALL, "total_steps=300", "memory=gru", "memory.hidden_size=4"]
    assert_resumes_exactly(lambda run_dir: train(own_env([*lines, f"run_dir={run_dir}"])), 6)


def own_env(lines):
    file = Path("conf/env/same_step.yaml")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"# A vector of one's own\n_target_: {__name__}.same_step\nnum_envs: 2\n")
    return load(["env=same_step", *lines])
