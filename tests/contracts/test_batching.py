"""Cutting time: every acted slot once, no row joins episodes, padding is nothing."""

from dataclasses import replace

import pytest
import torch
from gymnasium.vector import SyncVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import Counter, Scripted

from rlmem.acting.collector import Collector
from rlmem.batching import Segment, Tape

CPU = torch.device("cpu")
SCHEMES = [Tape(), Segment(None), Segment(1), Segment(2), Segment(5)]


def rollout_for(batching, slots=17, budget=10**9, warm_up=3):
    env = SyncVectorEnv([lambda: Scripted((3, -2)), lambda: Scripted((40,)), lambda: Scripted((1, -6, 4))])
    collector = Collector(env, Counter(), 0, None, CPU)
    collector.collect(warm_up, 10**9)  # streams that begin in mid-episode
    return collector.collect(slots, budget, state_slots=batching.state_slots(replay=False))[0]


@pytest.mark.parametrize("batching", SCHEMES, ids=lambda b: f"{type(b).__name__}{getattr(b, 'length', '')}")
@settings(max_examples=15, deadline=None)
@given(slots=st.integers(1, 20), budget=st.integers(1, 60), warm_up=st.integers(1, 9))
def test_every_acted_slot_counts_in_exactly_one_row(batching, slots, budget, warm_up):
    rollout = rollout_for(batching, slots, budget, warm_up)
    streams = rollout.streams
    rows = batching.rows(streams)
    batch = rows.batch(rollout)
    seen = torch.zeros(streams.shape, dtype=torch.long)
    env, slot, _ = rows.shown
    acted = env.expand_as(slot)[batch.mask], slot[batch.mask]
    seen.index_put_(acted, torch.tensor(1), accumulate=True)
    assert torch.equal(seen, streams.mask.long())
    assert batch.mask.any(1).all(), "a row in which nothing acted"


@pytest.mark.parametrize("length", [None, 1, 2, 5])
def test_segments_stay_inside_an_episode_and_end_with_a_bootstrap_slot(length):
    batching = Segment(length)
    rollout = rollout_for(batching)
    rows = batching.rows(rollout.streams)
    batch = rows.batch(rollout)
    for r in range(len(rows.env)):
        n = int(rows.length[r])
        assert len(set(batch.obs[r, :n, 0].tolist())) == 1, "a row joins two episodes"
        assert batch.obs[r, :n, 1].diff().eq(1).all(), "slots are not consecutive"
        assert batch.mask[r].tolist() == [True] * (n - 1) + [False] * (batch.shape[1] - n + 1)
        assert not batch.start[r, 1:].any()
        assert (batch.obs[r, n:] == 0).all()
        if length:
            assert n <= length + 1


@pytest.mark.parametrize("batching", SCHEMES, ids=lambda b: f"{type(b).__name__}{getattr(b, 'length', '')}")
def test_rows_begin_with_the_state_that_acting_had(batching):
    """Counter's state is the number of slots read, so a row's state0 must match its first observation's step."""
    rollout = rollout_for(batching)
    rows = batching.rows(rollout.streams)
    batch = rows.batch(rollout)
    for r in range(len(rows.env)):
        if not batch.start[r, 0]:
            assert batch.state0[r].item() == batch.obs[r, 0, 1].item()


def test_rows_have_states_that_are_any_tree():
    batch, state = Tape().rows(rollout_for(Tape()).streams).batch(rollout_for(Tape())), torch.arange(3)
    rows = replace(batch, state0={"cell": {"h": state}, "age": (state, None)}).rows(torch.tensor([2, 0]))
    assert rows.state0["cell"]["h"].tolist() == rows.state0["age"][0].tolist() == [2, 0]


@pytest.mark.parametrize("batching", SCHEMES, ids=lambda b: f"{type(b).__name__}{getattr(b, 'length', '')}")
def test_scatter_undoes_gather(batching):
    rollout = rollout_for(batching)
    rows = batching.rows(rollout.streams)
    reward = rollout.streams.reward
    back = rows.scatter(rows.gather(reward), reward.shape)
    assert torch.equal(back[rollout.streams.mask], reward[rollout.streams.mask])


def test_a_tape_pads_nothing_and_a_segment_says_how_much():
    tape, segment = Tape(), Segment(4)
    assert tape.rows(rollout_for(tape).streams).pad_fraction == 0
    rollout = rollout_for(segment)
    rows = segment.rows(rollout.streams)
    assert rows.pad_fraction == pytest.approx(1 - float(rows.length.sum()) / rows.valid.size)
    assert rows.pad_fraction > 0
