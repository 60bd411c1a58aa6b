"""Wrappers of environments: what each does, its exact state, Gymnasium's checks, runs that are killed and resumed."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import SyncVectorEnv
from gymnasium.vector.utils import batch_space, iterate
from helpers import options
from leafy import Leafy
from rlmem_envs import wrappers
from rlmem_envs.core.single import SingleEnv
from rlmem_envs.popgym.multiarmed_bandit import MultiarmedBandit
from rlmem_envs.popgym.position_only_cartpole import PositionOnlyCartPole
from rlmem_envs.vector import vectorise
from torch.utils._pytree import tree_leaves

from rlmem.acting.autoreset import slot_layout
from rlmem.acting.observed import observed
from rlmem.config.compose import load
from rlmem.core.spaces import by_path
from rlmem.run.nodes import make_env

N = 3


class Count(gym.Env):
    """The observation is [length, step, action before, 1 / 2]; episodes take 5 to 9 steps, drawn at their reset."""

    action_space = Discrete(3, start=1)
    observation_space = Box(-1.0, 100.0, (4,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = self.action = 0
        self.length = int(self.np_random.integers(5, 10))
        return self._obs(), {"length": self.length}

    def step(self, action):
        assert self.action_space.contains(action) and self.t < self.length
        self.t, self.action = self.t + 1, action
        luck = float(self.np_random.integers(4))
        return self._obs(), 1 + luck / 10, self.t == self.length, False, {"success": luck > 1}

    def _obs(self):
        return np.array([self.length, self.t, self.action, 0.5], np.float32)


def count(num_envs=N):
    return vectorise(Count, num_envs)


CASES = {
    "flicker": {"p": 0.4},
    "dropout": {"p": 0.4},
    "noise": {"std": 0.5},
    "mask": {"indices": [0, 2]},
    "remove_velocity": {"indices": [1]},
    "delay": {"steps": 2},
    "frame_stack": {"size": 3},
    "repeat": {"steps": 2},
    "random_start": {"steps": 3},
    "rl2": {"episodes": 2},
}
CLASSES = {name: getattr(wrappers, name.title().replace("_", "") if name != "rl2" else "RL2") for name in CASES}


def wrapped(name, num_envs=N, **kwargs):
    return CLASSES[name](count(num_envs), **(CASES[name] | kwargs))


def played(env, steps=60, seed=4, begin=True, rng=None):
    rng = rng or np.random.default_rng(0)
    rows = [(env.reset(seed=seed)[0],)] if begin else []
    for _ in range(steps):
        rows.append(env.step(rng.integers(1, 4, 5)[: env.num_envs])[:4])
    return [[part[:N].copy() for part in row] for row in rows]


def alike(one, other):
    for a, b in zip(one, other, strict=True):
        for x, y in zip(a, b, strict=True):
            np.testing.assert_array_equal(x, y)


def pairs(name, **kwargs):
    """What is seen of Count, and what a wrapper shows of the same, [T, N, ...] each, and where episodes begin."""
    plain, seen = played(count()), played(wrapped(name, **kwargs))
    begins = np.array([np.ones(N, bool), *(row[0][:, 1] == 0 for row in plain[1:])])
    return np.array([row[0] for row in plain]), np.array([row[0] for row in seen]), begins


def test_every_option_is_tested():
    assert sorted(CASES) == options("wrapper")


@pytest.mark.parametrize("name", CASES)
def test_the_state_is_exact_and_rows_do_not_depend_on_their_number(name):
    env = wrapped(name)
    first = played(env)
    assert all(env.observation_space.contains(row[0]) for row in first)
    alike(played(wrapped(name, 5)), first)
    alike(played(env), first), "seeds decide everything"
    rng = np.random.default_rng(1)
    played(env, 23, rng=rng)
    for _ in range(3):
        other, saved, before = wrapped(name), env.state(), rng.bit_generator.state
        other.restore(saved)
        after = played(env, 17, begin=False, rng=rng)
        rng.bit_generator.state = before
        alike(played(other, 17, begin=False, rng=rng), after)


@pytest.mark.parametrize("name", CASES)
def test_one_environment_passes_gymnasiums_check(name):
    check_env(SingleEnv(wrapped(name, 1)), skip_render_check=True)


def test_flicker_blanks_whole_observations():
    plain, seen, _ = pairs("flicker", p=0.3)
    blank = (seen == 0).all(-1)
    assert 0.2 < blank.mean() < 0.4 and (seen[~blank] == plain[~blank]).all()


def test_dropout_blanks_single_numbers():
    plain, seen, _ = pairs("dropout", p=0.3)
    missing = seen[..., 3] == 0
    assert 0.2 < missing.mean() < 0.4 and (seen[..., 0][missing] == plain[..., 0][missing]).any()
    assert ((seen == plain) | (seen == 0)).all()


def test_noise_is_normal_with_its_spread():
    plain, seen, _ = pairs("noise", std=0.5)
    error = seen - plain
    assert abs(error.mean()) < 0.06 and 0.45 < error.std() < 0.55
    assert np.abs(np.corrcoef(error.reshape(-1, 4).T) - np.eye(4)).max() < 0.25


def test_masked_numbers_are_zero_and_removed_ones_are_gone():
    plain, seen, _ = pairs("mask", indices=[0, 2])
    assert (seen[..., [0, 2]] == 0).all() and (seen[..., [1, 3]] == plain[..., [1, 3]]).all()
    plain, seen, _ = pairs("remove_velocity", indices=[2, 0])
    assert (seen == plain[..., [1, 3]]).all()


def test_delayed_and_stacked_observations_are_those_of_steps_before_in_the_episode():
    plain, delayed, begins = pairs("delay", steps=2)
    stacked = pairs("frame_stack", size=3)[1]
    for i in range(N):
        for t in range(len(plain)):
            first = t - np.argmax(begins[t::-1, i])
            past = [plain[max(first, t - k), i] for k in (2, 1, 0)]
            assert (delayed[t, i] == past[0]).all() and (stacked[t, i] == np.concatenate(past)).all()


@pytest.mark.parametrize(("shape", "stacked"), [((5, 6), (3, 5, 6)), ((2, 5, 6), (6, 5, 6)), ((5, 6, 2), (5, 6, 6))])
def test_stacked_images_are_images(shape, stacked):
    class Picture(gym.Env):
        observation_space, action_space = Box(0, 255, shape, np.uint8), Discrete(2)
        shade = 0

        def reset(self, *, seed=None, options=None):
            self.shade = 0
            return np.zeros(shape, np.uint8), {}

        def step(self, action):
            self.shade += 1
            return np.full(shape, self.shade, np.uint8), 0.0, False, False, {}

    env = wrappers.FrameStack(vectorise(Picture, 1), 3)
    env.reset(seed=0)
    env.step(np.zeros(1, int))
    obs = env.step(np.zeros(1, int))[0]
    assert env.single_observation_space == Box(0, 255, stacked, np.uint8) and obs.shape == (1, *stacked)
    order = np.moveaxis(obs[0], 2 if shape == (5, 6, 2) else 0, 0)[:, 0, 0]
    assert order.tolist() == ([0, 1, 2] if len(shape) == 2 else [0, 0, 1, 1, 2, 2])


def test_a_repeated_action_is_taken_so_often_or_until_the_end():
    env = wrapped("repeat", steps=4)
    begins, at, lengths = np.ones(N, bool), np.zeros(N, int), set()
    env.reset(seed=0)
    begins[:] = False
    for _ in range(40):
        obs, reward, terminated, truncated, infos = env.step(np.full(N, 2))
        for i in range(N):
            if begins[i]:
                assert obs[i, 1] == 0 and reward[i] == 0
                continue
            taken = int(obs[i, 1]) - at[i]
            assert taken == 4 or (terminated[i] and 1 <= taken <= 4)
            assert taken <= reward[i] < 1.4 * taken and obs[i, 2] == 2
            if terminated[i]:
                lengths.add(int(obs[i, 1]))
                assert infos["_success"][i]
        at = np.where(terminated, 0, obs[:, 1]).astype(int)
        begins = terminated | truncated
    assert lengths == {5, 6, 7, 8, 9}


def test_episodes_begin_after_some_random_actions():
    seen, env = [], wrapped("random_start", steps=8)  # some episodes end in them, and begin anew
    obs, _ = env.reset(seed=0)
    seen.append(obs)
    over = np.zeros(N, bool)
    for _ in range(150):
        begins = over
        obs, reward, terminated, truncated, _ = env.step(np.full(N, 1))
        assert (reward[begins] == 0).all() and not (terminated | truncated)[begins].any()
        seen.append(obs[begins])
        over = terminated | truncated
    steps, actions = np.concatenate(seen)[:, 1], np.concatenate(seen)[:, 2]
    assert set(steps) == set(range(9)) and set(actions[steps > 0]) == {1, 2, 3}


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int64, np.uint8])
def test_random_actions_lie_in_the_widest_box_of_every_type(dtype):
    limits = np.finfo(dtype) if np.dtype(dtype).kind == "f" else np.iinfo(dtype)
    env = count()
    env.single_action_space = Box(limits.min, limits.max, (1,), dtype)
    env.action_space = batch_space(env.single_action_space, N)
    starts = wrappers.RandomStart(env, 0)
    starts.reset(seed=0)
    drawn = [starts._actions(np.arange(N)) for _ in range(20)]
    assert all(map(env.action_space.contains, drawn)) and len(np.unique(drawn)) > 20


def test_time_wrappers_stack_on_single_environments_and_refuse_others():
    env = wrappers.Noise(wrappers.Repeat(wrappers.RandomStart(count(), 3), 2), 0.1)
    alike(played(env, 30), played(env, 30))
    for inner in (PositionOnlyCartPole(2), wrappers.Noise(count(), 0.1), slot_layout(SyncVectorEnv([Count] * 2))):
        for name in ("Repeat", "RandomStart"):
            with pytest.raises(ValueError, match=f"{name} steps some environments while others wait, which"):
                getattr(wrappers, name)(inner)


# --- RL2 --------------------------------------------------------------------------------------------------------------


def test_a_trial_is_so_many_episodes_of_one_task():
    """Of single environments: what `reset` draws (the length) stays, what steps draw (luck) does not."""
    env, lengths, luck = wrapped("rl2", episodes=3), [], []
    obs, _ = env.reset(seed=0)
    assert (obs[:, 4:] == 0).all()
    trial, begins = [[[]] for _ in range(N)], np.zeros(N, bool)
    for t in range(200):
        before = obs
        actions = np.random.default_rng(t).integers(1, 4, N)
        obs, reward, terminated, truncated, _ = env.step(actions)
        assert not truncated.any()
        for i in range(N):
            if begins[i]:
                assert obs[i, 1] == 0 and (obs[i, 4:] == 0).all()
                trial[i] = [[]]
                continue
            trial[i][-1].append(round(10 * (reward[i] - 1)))
            ended = obs[i, 1] == 0 or terminated[i]
            assert (obs[i, 4:7] == np.eye(3)[actions[i] - 1]).all() and obs[i, 7] == np.float32(reward[i])
            assert obs[i, 8] == ended
            assert ended or obs[i, 1] == before[i, 1] + 1
            if ended and not terminated[i]:
                trial[i].append([])
            if terminated[i]:
                assert len(trial[i]) == 3 and len({len(episode) for episode in trial[i]}) == 1
                lengths.append(len(trial[i][0]))
                luck.append(trial[i])
        begins = terminated | truncated
    assert len(set(lengths)) > 2
    assert all(one[0] != one[1] and one[1] != one[2] for one in luck)


def test_a_trial_of_a_bandit_keeps_its_arms_and_draws_its_luck_anew():
    env = wrappers.RL2(MultiarmedBandit(N, num_bandits=4, episode_length=6), 3)
    assert env.single_observation_space.shape == (2 + 4 + 1 + 1,)
    env.reset(seed=0)
    arms, luck = [], []
    for _ in range(2 * 19):  # two trials of 18 steps, and the slots of their final observations
        arms.append(env.bandits.copy())
        luck.append(env.luck[:6].copy())
        env.step(np.zeros(N, int))
    first, second = arms[0], arms[20]
    assert all((now == first).all() for now in arms[:19]) and (first != second).all()
    assert all((now == second).all() for now in arms[19:38])
    assert all((luck[0] != luck[t]).all() for t in (6, 12, 19, 25))


def leafy(mask, num_envs=N, kind="box"):
    env = vectorise(lambda: Leafy(kind, mask=mask), num_envs)
    env.masks_in_info = mask == "info"
    return env


@pytest.mark.parametrize("kind", ["image", "dict", "nested"])
def test_a_trial_without_vectors_tells_the_step_before_in_a_part_of_its_own(kind):
    plain, told = (wrappers.RL2(leafy(None, kind=kind), 3, inputs=inputs) for inputs in ([], ["reward", "done"]))
    (seen, _), (obs, _) = plain.reset(seed=0), told.reset(seed=0)
    ends, row = 0, np.zeros((N, 2), np.float32)
    for _ in range(40):
        np.testing.assert_array_equal(obs["before"], row)
        assert all(told.single_observation_space.contains(one) for one in iterate(told.observation_space, obs))
        rest = {name: part for name, part in obs.items() if name != "before"} if kind == "dict" else obs["observation"]
        alike([tree_leaves(seen)], [tree_leaves(rest)])
        before = told.ended.copy()
        seen, *_ = plain.step(np.arange(N) % 4)
        obs, rewards, *_ = told.step(np.arange(N) % 4)
        row = np.stack([rewards, told.ended > before], 1).astype(np.float32)
        ends += row[:, 1].sum()
    assert ends > 10


@pytest.mark.parametrize("mask", ["leaf", "info", "method"])
def test_the_masks_of_a_trial_are_those_of_the_episodes_that_begin_in_it(mask):
    """Leafy fails where an action is forbidden, and its final observations allow nothing."""
    told = [] if mask != "leaf" else ["action", "done"]  # a mask is found beside them, too
    env = observed(wrappers.RL2(leafy(mask), 3, inputs=told), lambda names: names)
    obs, _ = env.reset(seed=0)
    over, trials = np.zeros(N, bool), 0
    for _ in range(60):
        assert obs["action_mask"][~over].any(1).all()
        obs, _, terminated, truncated, _ = env.step(obs["action_mask"].argmax(1))
        over, trials = terminated | truncated, trials + terminated.sum()
    assert trials > 3


@pytest.mark.parametrize("mask", ["leaf", "info", "method"])
@pytest.mark.parametrize("name", ["Repeat", "RandomStart"])
def test_what_plays_steps_of_its_own_refuses_action_masks(name, mask):
    with pytest.raises(ValueError, match=f"{name} plays steps of its own, which follow no action masks"):
        getattr(wrappers, name)(leafy(mask, 1))


def test_a_trial_keeps_its_task_if_random_actions_end_an_episode():
    """Count's episodes end after their length, which is the task; most of them end in so many random actions."""
    env = wrappers.RL2(wrappers.RandomStart(count(), 30), 4, inputs=[])
    before, _ = env.reset(seed=0)
    begins, begun = np.zeros(N, bool), 0
    for _ in range(150):
        obs, _, terminated, _, _ = env.step(np.full(N, 2))
        same = obs[:, 0] == before[:, 0]
        assert same[~begins].all()
        begun += (~same).sum()
        before, begins = obs, terminated
    assert begun > 3, "other trials have other tasks"


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: wrappers.Flicker(MultiarmedBandit(2)), "Flicker reads observations in a Box, not Discrete"),
        (lambda: wrappers.Flicker(count(), p=1.5), "p=1.5: expected at most 1"),
        (lambda: wrappers.Mask(count(), [4]), "4 is not in 0 .. 3, the places of Box"),
        (lambda: wrappers.Mask(count(), []), "expected one place at least"),
        (lambda: wrappers.RemoveVelocity(count(), [0, 1, 2, 3]), "nothing is left of Box"),
        (lambda: wrappers.Noise(count(), leaf="x"), "leaf='x': expected none, as there are no parts"),
        (lambda: wrappers.Flicker(parts("nested"), leaf="0"), "leaf='0': expected 0/arm, 0/eyes/0, 0/eyes/1, 1, got"),
        (lambda: wrappers.Flicker(parts("nested")), "; e.g. leaf=0/arm"),
        (lambda: wrappers.RL2(count(), inputs=["actions"]), "'actions' is none of action, reward and done"),
    ],
)
def test_what_a_wrapper_cannot_do_is_said(make, said):
    with pytest.raises(ValueError, match=said.replace(".", r"\.").replace("[", r"\[")):
        make()


def parts(kind):
    return vectorise(lambda: Leafy(kind), 2)


@pytest.mark.parametrize(("kind", "leaf"), [("nested", "0/eyes/1"), ("nested", "1"), ("text", "camera")])
def test_a_part_of_parts_is_wrapped_alone(kind, leaf):
    env, bare = wrappers.Flicker(parts(kind), 1.0, leaf), parts(kind)
    for act in (lambda env: env.reset(seed=0)[0], lambda env: env.step(np.ones(2, int))[0]):
        obs, plain = (by_path(act(e), e.single_observation_space) for e in (env, bare))
        assert leaf in plain and [name for name in plain if not np.array_equal(obs[name], plain[name])] == [leaf]
        assert not obs[leaf].any()
    assert env.single_observation_space == bare.single_observation_space


# --- runs -------------------------------------------------------------------------------------------------------------


def test_wrappers_are_options_from_the_inside_out(in_tmp):
    lines = ["env=gym", "env.id=CartPole-v1"]
    env = make_env(load([*lines, "wrapper=[frame_stack,remove_velocity]", "wrapper.remove_velocity.indices=[0]"]), 2)
    assert isinstance(env, wrappers.RemoveVelocity) and env.single_observation_space.shape == (15,)
    assert isinstance(env.env, wrappers.FrameStack) and env.env.single_observation_space.shape == (16,)
