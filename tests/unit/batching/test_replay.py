"""Replay: what is sampled is what was lived, whatever was dropped, wrapped, moved or saved in between."""

import io
from collections import Counter as Tally
from itertools import pairwise

import numpy as np
import pytest
import torch
from gymnasium.vector import SyncVectorEnv
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from scripted import Counter, Scripted

from rlmem.acting.collector import Collector
from rlmem.batching import FIELDS, Batching, Pieces, Replay, Segment, StateSlots, Tape
from rlmem.core.errors import Fault
from rlmem.core.types import Inputs

CPU = torch.device("cpu")
STORED = Segment(4, overlap=1, burn_in=2)
STORED_RUNNING = Segment(4, overlap=1, burn_in=2, running=True)
SCHEMES = {
    "tape": Tape(),
    "tape of 3 rows": Tape(rows=3, detach_every=5),
    "whole episodes": Segment(None),
    "segments": Segment(3, init_state="zero"),
    "five rows": Segment(4, rows=5, init_state="zero", overlap=1),
    "burn-in": Segment(3, init_state="zero", burn_in=2),
    "recompute": Segment(2, init_state="recompute"),
    "running": Segment(3, init_state="zero", running=True),
    "padded": Segment(8, rows=3, init_state="zero", pad=True),
    "recompute running": Segment(2, init_state="recompute", running=True),
}


def collector_of(*scripts):
    """Environment e plays episodes of the lengths of its script; the first is number 1000 e. Counter's state before
    slot t of an episode is t."""
    env = SyncVectorEnv([lambda e=e, s=s: Scripted(tuple(s), 1000 * e) for e, s in enumerate(scripts)])
    return Collector(env, Counter(), 0, None, CPU)


def replay_of(*lengths, batching=None, capacity=10**6, **kwargs):
    """A replay that holds episodes of these lengths, in this order."""
    slots = batching and batching.state_slots(replay=True)
    replay = Replay(capacity, 1, CPU, initial_state=torch.zeros(1, 1) if slots else None, **kwargs)
    collector = collector_of(lengths)
    for n in lengths:
        replay.add(collector.collect(abs(n) + 1, 10**9, state_slots=slots)[0])
    return replay


def saved(state):
    """`state` as a checkpoint gives it back."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


class Lived:
    """Lists of episodes, kept slot by slot: what a replay must agree with. A slot is a dict of its fields."""

    def __init__(self, capacity, num_envs):
        self.capacity, self.running, self.all, self.oldest = capacity, [None] * num_envs, [], 0

    def add(self, streams):
        N, T = streams.shape
        for t in range(T - 1):
            for env in range(N):
                if streams.start[env, t]:
                    self.running[env] = []
                if self.running[env] is None:
                    continue
                names = (*FIELDS, *Inputs._fields)
                self.running[env].append({name: getattr(streams, name)[env, t] for name in names})
            for env in range(N):
                if streams.start[env, t + 1] and self.running[env] is not None:
                    episode, self.running[env] = self.running[env], None
                    if any(slot["mask"] for slot in episode):
                        self.all.append(episode)
                        while sum(len(e) - 1 for e in self.all[self.oldest :]) > self.capacity:
                            self.oldest += 1

    @property
    def lengths(self):
        return [len(episode) - 1 for episode in self.all[self.oldest :]]

    def episode(self, number, batching):
        """The slots of an episode as a replay numbers it; -2 - n is the one that runs in environment n."""
        if number >= 0:
            assert number >= self.oldest, "an episode that was dropped"
            return self.all[number]
        assert batching.running
        return self.running[-2 - number]


def check(sample, lived, batching, stored):
    """Every slot of the batch is one of an episode that is still there, in order, and counts if it should."""
    batch = sample.batch
    for r in range(batch.shape[0]):
        real = int((sample.episode[r] != -1).sum())
        padding = [batch.start, batch.mask, batch.terminated, batch.reward, batch.obs, batch.action, batch.prev_action]
        assert (sample.episode[r, real:] == -1).all(), "padding is on the right"
        assert not any(field[r, real:].any() for field in padding)
        begins = sorted({0, *batch.start[r].nonzero().flatten().tolist()})
        assert len(begins) == 1 or isinstance(batching, Tape), "a row joins two episodes"
        for begin, end in pairwise([*begins, real]):
            number, first = int(sample.episode[r, begin]), int(batch.obs[r, begin, 1])
            for t in range(begin, end):
                check_slot(batch, (r, t), lived.episode(number, batching)[first + t - begin], last=t == end - 1)
            assert (sample.episode[r, begin:end] == number).all()
        if isinstance(batching, Segment):
            check_before(batch, r, lived.episode(number, batching)[:first], batching, stored)
    assert batch.detach_every == batching.detach_every


def check_slot(batch, at, slot, last):
    """`last`: of its piece; it only supplies a value."""
    assert bool(batch.mask[at]) == (bool(slot["mask"]) and not last)
    for name in ("obs", "action", "reward", "terminated", "start"):
        assert torch.equal(getattr(batch, name)[at], slot[name]), name
    if not slot["start"]:
        assert torch.equal(batch.prev_action[at], slot["prev_action"])
    assert torch.equal(batch.prev_reward[at], slot["prev_reward"])


def check_before(batch, r, earlier, batching, stored):
    """The prefix of row r, and the state before it."""
    first = len(earlier)
    ahead = first if batching.init_state == "recompute" else min(batching.burn_in, first)
    if ahead:
        width = batch.prefix.start.shape[1]
        for i, slot in enumerate(earlier[first - ahead :]):
            at = width - ahead + i
            assert torch.equal(batch.prefix.obs[r, at], slot["obs"])
            assert bool(batch.prefix.start[r, at]) == bool(slot["start"])
            if not slot["start"]:
                assert batch.prefix.prev_action[r, at] == slot["prev_action"]
                assert batch.prefix.prev_reward[r, at] == slot["prev_reward"]
        if ahead < width:
            assert batch.prefix.start[r, width - ahead], "left padding would be seen"
            assert not batch.prefix.obs[r, : width - ahead].any()
    elif batch.prefix is not None:
        assert batch.start[r, 0], "left padding would be seen"
    if stored:
        if first > ahead:
            assert batch.state0[r].item() == first - ahead
    else:
        assert batch.state0 is None


class ReplayMachine(RuleBasedStateMachine):
    """A replay beside lists of episodes, through rollouts of any size, holes, resets, dropping, growth and saving."""

    @initialize(
        lengths=st.lists(st.lists(st.integers(-9, 9).filter(bool), min_size=1, max_size=4), min_size=1, max_size=3),
        capacity=st.sampled_from([9, 30, 100, 10**4]),
        stored=st.booleans(),
        warm_up=st.integers(0, 3),
    )
    def begin(self, lengths, capacity, stored, warm_up):
        self.collector, self.stored, self.capacity = collector_of(*lengths), stored, capacity
        if warm_up:
            self.collector.collect(warm_up, 10**9)  # streams that begin in mid-episode
        self.lived = Lived(capacity, len(lengths))
        self.replay = self.empty()

    def empty(self):
        state = torch.zeros(1, 1) if self.stored else None
        return Replay(self.capacity, len(self.lived.running), CPU, initial_state=state)

    @rule(
        slots=st.sampled_from([1, 1, 1, 2, 5, 40]),
        budget=st.sampled_from([1, 2, 10**9, 10**9]),
        complete=st.sampled_from([False, False, False, True]),
    )
    def collect(self, slots, budget, complete):
        kept = STORED.state_slots(replay=True) if self.stored else None
        rollout, _ = self.collector.collect(slots, budget, complete, kept)
        before = len(self.lived.all)
        self.lived.add(rollout.streams)
        assert self.replay.add(rollout) == len(self.lived.all) - before

    @rule(
        scheme=st.sampled_from(sorted(SCHEMES)),
        running=st.booleans(),
        batch_size=st.integers(3, 40),
        seed=st.integers(0, 99),
    )
    def sample(self, scheme, running, batch_size, seed):
        batching = (STORED_RUNNING if running else STORED) if self.stored else SCHEMES[scheme]
        unfinished = batching.running and any(len(episode or []) > 1 for episode in self.lived.running)
        assert self.replay.holds(batching) == bool(self.lived.lengths or unfinished)
        if not self.replay.holds(batching):
            return
        sample = self.replay.sample(batching, batch_size, torch.Generator().manual_seed(seed))
        check(sample, self.lived, batching, self.stored)
        assert sample.metrics["batch/transitions"] == sample.batch.mask.sum()
        assert sample.metrics["batch/episodes"] == len(set(sample.episode.flatten().tolist()) - {-1})
        assert sample.metrics["batch/pad_fraction"] == pytest.approx(float((sample.episode == -1).float().mean()))

    @rule()
    def save_and_load(self):
        state = saved(self.replay.state_dict())
        self.replay = self.empty()
        self.replay.load_state_dict(state)

    @invariant()
    def agrees(self):
        if hasattr(self, "replay"):
            assert self.replay.episodes == len(self.lived.lengths)
            if self.lived.lengths:
                assert self.replay.table.live("length").tolist() == self.lived.lengths
            assert self.replay.transitions == sum(self.lived.lengths) <= self.capacity
            assert self.replay.slots.count == sum(n + 1 for n in self.lived.lengths)
            kept = sum((age + 2) % 3 == 0 for n in self.lived.lengths for age in range(1, n + 1))
            assert self.replay.states.count == kept * self.stored


ReplayMachine.TestCase.settings = settings(max_examples=20, stateful_step_count=25, deadline=None)
TestReplayAgreesWithListsOfEpisodes = ReplayMachine.TestCase


class Everything(Batching):
    """Every episode once, whole, each in a row of its own: to look at what a replay holds."""

    def rows(self, streams):
        raise AssertionError("a replay never cuts streams")

    def draw(self, lengths, weight, batch_size, generator):
        number = torch.arange(len(lengths))
        return Pieces(number, number, torch.zeros_like(number), lengths, torch.zeros_like(number))


def contents(replay):
    """(episode of the environment, length) of what a replay holds, oldest first."""
    batch = replay.sample(Everything(), 1, torch.Generator()).batch
    return [(int(batch.obs[r, 0, 0]), int(batch.mask[r].sum())) for r in range(batch.shape[0])]


def test_there_is_nothing_to_draw_from_an_empty_replay():
    with pytest.raises(ValueError, match="nothing to draw from"):
        Replay(10, 1, CPU).sample(Tape(), 4, torch.Generator())


def test_an_episode_longer_than_the_capacity_is_refused():
    assert contents(replay_of(10, 3, capacity=10)) == [(1, 3)]
    with pytest.raises(Fault, match=r"environment 0 has more transitions .* \(10\)"):
        replay_of(3, 11, capacity=10)


@pytest.mark.parametrize("rows", [1, 3])
def test_rows_of_a_tape_share_exactly_the_transitions_asked_for(rows):
    replay = replay_of(3, -2, 5, 1)
    for seed in range(20):
        batch = replay.sample(Tape(rows=rows), 11, torch.Generator().manual_seed(seed)).batch
        assert batch.mask.sum(1).tolist() == ([11] if rows == 1 else [4, 4, 3])
        assert batch.start[:, 0].all()
        terminated = batch.terminated & batch.mask
        assert not terminated[batch.obs[..., 0] == 1].any(), "a truncation is not a termination"


def test_more_tapes_than_transitions_are_refused():
    assert "rows=9 is more than the 8 transitions" in Tape(rows=9).replay_problem(8)
    assert Tape(rows=8).replay_problem(8) is None


def segments_of(lengths, length, overlap):
    """(episode, first, acted) of every segment, by the rule in words."""
    found = []
    for episode, n in enumerate(lengths):
        first = 0
        while True:
            found.append((episode, first, min(length, n - first)))
            if first + length >= n:
                break
            first += length - overlap
    return found


@pytest.mark.parametrize(("length", "overlap"), [(1, 0), (2, 0), (3, 1), (4, 3), (50, 0), (5, 4)])
def test_segments_are_drawn_uniformly_over_the_replay(length, overlap):
    lengths = [3, 1, 12, 7, 4]
    segments = segments_of(lengths, length, overlap)
    batching = Segment(length, rows=40 * len(segments), init_state="zero", overlap=overlap)
    pieces = batching.draw(torch.tensor(lengths), None, 0, torch.Generator().manual_seed(1))
    drawn = Tally(zip(pieces.episode.tolist(), pieces.first.tolist(), pieces.acted.tolist(), strict=True))
    assert set(drawn) == set(segments)
    assert sum((n - 40) ** 2 / 40 for n in drawn.values()) < len(segments) + 4 * (2 * len(segments)) ** 0.5


def test_padded_segments_have_equal_widths_and_show_the_same_slots():
    replay, seed = replay_of(2, 3), torch.Generator().manual_seed
    schemes = (Segment(5, rows=4, init_state="zero", pad=pad) for pad in (False, True))
    short, padded = (replay.sample(scheme, 1, seed(1)) for scheme in schemes)
    assert short.episode.shape[1] <= 4 and padded.episode.shape == (4, 6)
    width = short.episode.shape[1]
    assert torch.equal(padded.batch.obs[:, :width], short.batch.obs) and not padded.batch.obs[:, width:].any()
    assert (padded.episode[:, width:] == -1).all() and not padded.batch.mask[:, width:].any()


def test_tapes_draw_episodes_uniformly():
    lengths = torch.tensor([3, 1, 12, 7, 4])
    generator = torch.Generator().manual_seed(0)
    drawn = Tally(int(Tape().draw(lengths, None, 1, generator).episode[0]) for _ in range(2000))
    assert sum((drawn[e] - 400) ** 2 / 400 for e in range(5)) < 15


def test_a_state_that_was_not_kept_is_missed():
    kept = Segment(3)
    with pytest.raises(ValueError, match="kept no state before slot"):
        replay_of(10, batching=kept).sample(Segment(4, rows=20), 0, torch.Generator())


def test_states_of_any_structure_are_kept():
    """Nested states, and none at all: a memory without state has an empty tuple."""
    batching = Segment(2, rows=30)
    slots = batching.state_slots(replay=True)
    for wrap in (lambda s: (s, {"age": s.long()}), lambda s: ()):
        replay, collector = Replay(100, 1, CPU, initial_state=wrap(torch.zeros(1, 1))), collector_of([7, 5])
        for _ in range(20):
            rollout = collector.collect(1, 10**9, state_slots=slots)[0]
            rollout.states = wrap(rollout.states) if rollout.states is not None else None
            replay.add(rollout)
        batch = replay.sample(batching, 0, torch.Generator().manual_seed(0)).batch
        if batch.state0:
            first = batch.obs[:, 0, 1]
            assert torch.equal(batch.state0[0][:, 0], first)
            assert torch.equal(batch.state0[1]["age"][:, 0], first.long())
        else:
            assert batch.state0 == ()


def test_mapped_slots_are_the_same_and_leave_no_file(tmp_path):
    batching = Segment(3)
    plain, mapped = (
        replay_of(*[30, -20, 25] * 5, batching=batching, capacity=200, directory=folder)
        for folder in (None, tmp_path / "replay")
    )
    assert isinstance(mapped.slots.arrays["obs"], np.memmap)
    a, b = (replay.sample(batching, 50, torch.Generator().manual_seed(0)).batch for replay in (plain, mapped))
    for x, y in zip((*a.inputs, a.action, a.mask, a.state0), (*b.inputs, b.action, b.mask, b.state0), strict=True):
        assert torch.equal(x, y)
    assert list((tmp_path / "replay").iterdir()) == []


def test_memory_follows_what_is_stored():
    replay = replay_of(*[20] * 40)
    assert replay.slots.size < 1.5 * 40 * 21, "a replay for a million transitions that holds 800"
    replay = replay_of(*[20] * 40, capacity=200)
    assert replay.slots.size < 300


def priorities(replay, *errors):
    """Give the episodes these absolute errors at every slot."""
    sample = replay.sample(Everything(), 1, torch.Generator())
    replay.update_priorities(sample, torch.tensor(errors)[:, None].expand_as(sample.batch.reward)[sample.batch.mask])


@pytest.mark.slow
def test_episodes_are_drawn_by_their_priorities():
    replay = replay_of(3, 3, 3, priority_exponent=0.5)
    priorities(replay, 1.0, 4.0, 16.0)  # to the power 0.5: 1, 2, 4
    generator = torch.Generator().manual_seed(0)
    for batching in (Tape(), Segment(3, init_state="zero"), Segment(None)):
        episodes = [int(replay.sample(batching, 3, generator).episode[0, 0]) for _ in range(1400)]
        drawn = Tally(episodes)
        assert sum((drawn[e] - n) ** 2 / n for e, n in ((0, 200), (1, 400), (2, 800))) < 12, batching


def test_a_priority_multiplies_an_episodes_segments():
    pieces = Segment(2, rows=3000, init_state="zero").draw(
        torch.tensor([2, 8]), torch.tensor([4.0, 1.0]), 0, torch.Generator().manual_seed(0)
    )
    assert (pieces.episode == 0).sum() == pytest.approx(1500, abs=120)
    assert Tally(pieces.first[pieces.episode == 1].tolist()).keys() == {0, 2, 4, 6}


def test_priorities_mix_the_largest_and_the_mean_error_over_what_counts():
    replay = replay_of(3, 2, priority_exponent=1.0)
    sample = replay.sample(Everything(), 1, torch.Generator())
    replay.update_priorities(sample, torch.tensor([1.0, -4.0, 1.0, 2.0, 0.0]))
    assert replay.table.live("weight") == pytest.approx([0.9 * 4 + 0.1 * 2, 0.9 * 2 + 0.1 * 1])


def test_importance_weights_undo_the_priorities():
    replay = replay_of(3, 3, 3, priority_exponent=0.5, importance_exponent=0.4)
    priorities(replay, 1.0, 4.0, 16.0)
    sample = replay.sample(Everything(), 1, torch.Generator())
    expected = torch.tensor([1.0, 2.0**-0.4, 4.0**-0.4])
    torch.testing.assert_close(sample.batch.behaviour["weight"], expected[:, None].expand(3, 4))
    assert "weight" not in replay_of(3).sample(Tape(), 3, torch.Generator()).batch.behaviour


def test_new_episodes_get_the_largest_priority_and_dropped_ones_are_forgotten():
    replay, collector = Replay(4, 1, CPU, priority_exponent=1.0), collector_of([1])
    for _ in range(4):  # the fifth will take the place of the first
        replay.add(collector.collect(2, 10**9)[0])
    old = replay.sample(Everything(), 1, torch.Generator())
    replay.update_priorities(old, torch.full((4, 2), 5.0)[old.batch.mask])
    replay.add(collector.collect(2, 10**9)[0])
    assert replay.table.live("weight") == pytest.approx([5] * 4)
    replay.update_priorities(old, torch.full((4, 2), 2.0)[old.batch.mask])  # the first of these has made room
    assert replay.table.live("weight") == pytest.approx([2] * 3 + [5])
    replay.update_priorities(old, torch.zeros(4, 2)[old.batch.mask])
    assert (replay.table.live("weight") > 0).all(), "an episode without error must still be drawn, now and then"


def test_priorities_wait_where_no_episode_has_ended_yet():
    replay = Replay(100, 1, CPU, priority_exponent=0.5)
    replay.add(collector_of([9]).collect(4, 10**9)[0])
    sample = replay.sample(Segment(1, rows=8, init_state="zero", running=True), 8, torch.Generator())
    replay.update_priorities(sample, torch.full((8, 2), 3.0)[sample.batch.mask])
    assert replay.table.count == 0 and replay.largest_weight == 1


def test_running_episodes_have_the_largest_priority_and_keep_none_of_their_own():
    replay, collector = replay_of(3, 3, priority_exponent=0.5), collector_of([9])
    priorities(replay, 1.0, 4.0)  # to the power 0.5: 1, 2
    rollout, _ = collector.collect(4, 10**9)  # three transitions have a successor
    replay.add(rollout)
    every = Segment(1, rows=1600, init_state="zero", running=True)
    sample = replay.sample(every, 1600, torch.Generator().manual_seed(0))
    drawn = Tally(sample.episode[:, 0].tolist())
    assert sum((drawn[e] - n) ** 2 / n for e, n in ((0, 320), (1, 640), (-2, 640))) < 12
    assert set(sample.batch.obs[sample.episode[:, 0] == -2][:, :, 1].flatten().tolist()) == {0, 1, 2, 3}
    torch.testing.assert_close(
        sample.batch.behaviour["weight"][:, 0],
        torch.where(sample.episode[:, 0] == 0, 1.0, 2.0**-0.4),
    )
    replay.update_priorities(sample, torch.full((1600, 2), 1.0)[sample.batch.mask])
    assert replay.table.live("weight") == pytest.approx([1, 1])
    assert replay.sample(Segment(None), 1, torch.Generator()).episode.max() >= 0, (
        "other schemes see complete ones alone"
    )


def test_rewards_are_those_of_all_that_can_be_drawn():
    replay, collector = Replay(100, 2, CPU), collector_of([2], [9])
    # An episode of two transitions and another that has begun; four of the nine transitions of a third.
    replay.add(collector.collect(5, 10**9)[0])
    every = Segment(1, init_state="zero", running=True)
    lived = replay.running.slots["reward"]
    complete = replay.slots.live("reward")[replay.slots.live("mask")]
    assert replay.rewards(Tape()).tolist() == complete.tolist()
    assert len(complete) == 2
    assert replay.rewards(every).tolist() == [*complete, *lived[0, :1], *lived[1, :4]]
    empty = Replay(100, 1, CPU)
    assert not empty.holds(every)
    empty.add(collector_of([9]).collect(3, 10**9)[0])
    assert empty.holds(every) and not empty.holds(Tape())
    assert len(empty.rewards(every)) == 2


def test_priorities_survive_saving():
    replay = replay_of(3, 3, 3, priority_exponent=0.5)
    priorities(replay, 1.0, 4.0, 16.0)
    again = Replay(10**6, 1, CPU, priority_exponent=0.5)
    again.load_state_dict(saved(replay.state_dict()))
    assert again.table.live("weight").tolist() == replay.table.live("weight").tolist()
    assert again.largest_weight == replay.largest_weight


def test_only_segments_from_stored_states_ask_acting_for_them():
    assert Tape().state_slots(True) is Tape().state_slots(False) is Segment(None).state_slots(True) is None
    assert Segment(8, init_state="zero").state_slots(True) is None
    assert Segment(8, overlap=2, burn_in=3).state_slots(True) == StateSlots(6, 3, "episode")
    assert Segment(8).state_slots(False) == StateSlots(8)
