"""The slot rule: what a rollout holds, and what is counted."""

import numpy as np
import pytest
import torch
from gymnasium.vector import SyncVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import Counter, Scripted

from rlmem.acting.collector import Collector
from rlmem.acting.evaluate import Request, evaluate
from rlmem.batching import StateSlots
from rlmem.core.seeding import Streams
from rlmem.scan.native import linear

CPU = torch.device("cpu")


def collector(*scripts, **kwargs):
    env = SyncVectorEnv([lambda s=s: Scripted(*s) for s in scripts])
    return Collector(env, Counter(), 0, None, CPU, **kwargs)


def test_an_episode_of_n_actions_takes_n_plus_one_slots():
    rollout, episodes = collector(((3, -2),)).collect(slots=9, budget=10**9)
    s = rollout.streams
    #        episode 0: 3 acts + final | episode 1: 2 acts + final | episode 2: 2 of 3 acts | bootstrap
    assert s.obs[0, :, 0].tolist() == [0, 0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert s.obs[0, :, 1].tolist() == [0, 1, 2, 3, 0, 1, 2, 0, 1, 2]
    assert s.start[0].tolist() == [True, False, False, False, True, False, False, True, False, False]
    assert s.mask[0].tolist() == [True, True, True, False, True, True, False, True, True, False]
    assert s.terminated[0].tolist() == [False, False, True] + [False] * 7
    assert [(e.length, e.terminated, e.truncated, e.step) for e in episodes] == [
        (3, True, False, 3),
        (2, False, True, 5),
    ]


def test_action_reward_and_previous_action_belong_to_their_slot():
    rollout, episodes = collector(((3, -2),)).collect(slots=9, budget=10**9)
    s = rollout.streams
    acted = s.mask[0]
    # Counter's action in slot t of an episode is t + 1; Scripted pays step + action / 10.
    assert s.action[0][acted].tolist() == [1, 2, 3, 1, 2, 1, 2]
    torch.testing.assert_close(s.reward[0][acted], torch.tensor([1.1, 2.2, 3.3, 1.1, 2.2, 1.1, 2.2]))
    for t in range(1, 10):
        if not s.start[0, t]:
            assert s.prev_action[0, t] == s.action[0, t - 1]
            assert s.prev_reward[0, t] == s.reward[0, t - 1]
    assert (s.prev_reward[0][s.start[0]] == 0).all()
    assert episodes[0].episode_return == pytest.approx(6.6)


def test_rollouts_continue_each_other():
    """Two rollouts of 4 slots see what one of 8 sees; the bootstrap slot of the first opens the second."""
    one, _ = collector(((3, -2),), ((5,), 0)).collect(slots=8, budget=10**9)
    two = collector(((3, -2),), ((5,), 0))
    first, _ = two.collect(slots=4, budget=10**9)
    second, _ = two.collect(slots=4, budget=10**9)
    for name in ("obs", "start", "mask", "action", "reward", "prev_action", "prev_reward"):
        joined = torch.cat([getattr(first.streams, name)[:, :4], getattr(second.streams, name)[:, :4]], 1)
        assert torch.equal(joined, getattr(one.streams, name)[:, :8]), name
    assert torch.equal(first.streams.obs[:, 4], second.streams.obs[:, 0])


@settings(max_examples=30, deadline=None)
@given(budget=st.integers(1, 60), slots=st.integers(1, 9), complete=st.booleans())
def test_exactly_the_budget_is_counted(budget, slots, complete):
    c = collector(((3, -2),), ((4, 1),), ((-6,),))
    counted = 0
    while counted < budget:
        rollout, _ = c.collect(slots, budget - counted, complete)
        counted += int(rollout.streams.mask.sum())
        assert not rollout.streams.mask[:, -1].any(), "the bootstrap slot was acted in"
    assert counted == c.steps == budget


def test_a_rollout_goes_on_until_something_acted():
    c = collector(((1,),), ((1,),))
    for _ in range(6):  # every second slot of these streams holds a final observation
        rollout, _ = c.collect(slots=1, budget=10**9)
        assert rollout.streams.mask.any()


def test_a_reset_leaves_no_reward_behind():
    c = collector(((9,),))
    c.collect(slots=3, budget=10**9)
    rollout, _ = c.collect(slots=2, budget=10**9, complete_episodes=True)
    assert rollout.streams.start[0, 0]
    assert rollout.streams.prev_reward[0, 0] == 0


def test_complete_episodes_start_at_starts_and_end_at_ends():
    c = collector(((3, -2),), ((7,),))
    for _ in range(2):
        rollout, episodes = c.collect(slots=5, budget=10**9, complete_episodes=True)
        s = rollout.streams
        assert s.start[:, 0].all()
        for row in range(2):
            assert s.mask[row].sum() == sum(e.length for e in episodes if e.env == row), "an unfinished episode counts"
        assert s.mask.sum(1).min() >= 4


def test_a_rollout_of_complete_episodes_says_whether_the_budget_cut_it():
    c = collector(((3, -2),), ((7,),))
    for budget, complete, cut in ((10**9, True, False), (5, True, True), (10, True, False), (5, False, False)):
        assert c.collect(1, budget, complete)[0].cut is cut, (budget, complete)


def test_an_episode_whose_last_step_the_budget_leaves_out_is_cut():
    rollout, episodes = collector(((1,),), ((3,),), ((3,),)).collect(1, 6, complete_episodes=True)
    assert [(e.env, e.length) for e in episodes] == [(0, 1), (1, 3)] and rollout.cut


@pytest.mark.parametrize("slots", [StateSlots(2, of="episode"), StateSlots(3, 4, "episode")], ids=str)
def test_states_are_kept_at_the_ages_asked_for(slots):
    """Counter's state before slot a of an episode is a, as Scripted shows; rollouts of five begin inside episodes."""
    c = collector(((3, -2),), ((9,),))
    for _ in range(4):
        rollout, _ = c.collect(slots=5, budget=10**9, state_slots=slots)
        age = rollout.streams.obs[:, :5, 1]
        kept = rollout.state_index[:, :5] >= 2
        assert torch.equal(kept, (age > 0) & ((age + slots.shift) % slots.every == 0))
        assert torch.equal(rollout.states[rollout.state_index[:, :5][kept] - 2][:, 0], age[kept])


def test_evaluation_plays_each_environments_share_of_whole_episodes():
    env = SyncVectorEnv([lambda: Scripted((2,)), lambda: Scripted((-9,))])
    scores = evaluate(Counter(), env, Request(7, Streams(0), CPU), greedy=True)
    assert sorted(scores.lengths.tolist()) == [2, 2, 2, 2, 9, 9, 9]


def test_a_saved_collector_goes_on_exactly():
    from rlmem_envs import popgym

    def fresh():
        # draws from numpy's global generator
        env = popgym.make("CountRecall", "easy", num_envs=3, backend="popgym")
        return Collector(env, Counter(), 7, None, CPU)

    a = fresh()
    a.collect(70, 10**9)
    saved = a.state_dict()
    np.random.random(10)
    b = fresh()
    b.load_state_dict(saved)
    (x, x_episodes), (y, y_episodes) = (c.collect(80, 10**9, state_slots=StateSlots(7, of="episode")) for c in (a, b))
    assert x_episodes == y_episodes
    assert torch.equal(x.streams.obs, y.streams.obs)
    assert torch.equal(x.streams.reward, y.streams.reward)
    assert torch.equal(x.streams.start, y.streams.start)
    assert torch.equal(x.states, y.states)
    assert torch.equal(x.state_index, y.state_index)


class Reusing(SyncVectorEnv):
    """A vector environment that hands out its own buffers and overwrites them at the next step."""

    def __init__(self, env_fns):
        super().__init__(env_fns, copy=False)
        self.ended = np.zeros(self.num_envs, bool)

    def reset(self, **kwargs):
        self.ended[:] = False
        return super().reset(**kwargs)

    def step(self, actions):
        obs, reward, terminated, truncated, info = super().step(actions)
        self.ended[:] = terminated
        return obs, reward, self.ended, truncated, info


def test_a_rollout_keeps_what_environments_overwrite():
    scripts = [((3, 2, -4),), ((1, 5),)]
    streams = []
    for kind in (SyncVectorEnv, Reusing):
        env = kind([lambda s=s: Scripted(*s) for s in scripts])
        streams.append(Collector(env, Counter(), 0, None, CPU).collect(20, 10**9)[0].streams)
    own, reused = streams
    assert own.terminated.any()
    for name in ("obs", "reward", "terminated", "start", "mask"):
        assert torch.equal(getattr(own, name), getattr(reused, name)), name


@pytest.mark.parametrize("slots", [1, 64])
def test_a_rollout_acts_with_the_weights_of_now(slots):
    """What is derived from weights lasts for one rollout."""

    class Linear(Counter):
        layer = torch.nn.Linear(1, 1)

        @torch.no_grad()
        def act(self, inputs, state, generator, exploration):
            value = linear(torch.ones(len(state), 1), self.layer.weight, self.layer.bias)[:, 0]
            return torch.zeros(len(state), dtype=torch.long), value, state

    agent = Linear()
    env = SyncVectorEnv([lambda: Scripted((3, -2))])
    it = Collector(env, agent, 0, None, CPU)
    for number in (1.0, 2.0, 3.0):
        with torch.no_grad():
            agent.layer.weight.fill_(number)
            agent.layer.bias.fill_(0.5)
        rollout, _ = it.collect(slots, budget=10**9)
        assert rollout.streams.behaviour["log_prob"][0, :-1].tolist() == [number + 0.5] * slots
