"""The memory contract, for every yaml in conf/memory."""

import pytest
import torch
from conftest import make_memory
from torch.utils._pytree import tree_flatten, tree_map

from rlmem.memory import GRU, LSTM
from rlmem.memory.base import Episodes, RecurrentCell

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}
"""What issue-free rounding leaves; the design's law."""
B, T, D = 4, 60, 6


def stream(dtype, seed=0, start_rate=0.1):
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(B, T, D, dtype=dtype, generator=rng)
    return x, torch.rand(B, T, generator=rng) < start_rate


def used_state(memory, seed=5):
    """A state that has read something."""
    x, start = stream(next(memory.parameters()).dtype, seed)
    return tree_map(torch.detach, memory(x, memory.initial_state(B), start)[1])


def assert_same(ours, truth, tolerance, message):
    for a, b in zip(tree_flatten(ours)[0], tree_flatten(truth)[0], strict=True):
        difference = (a - b).abs()
        assert difference.max() <= tolerance, f"{message}: max |diff| {difference.max():.1e}"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_forward_equals_step_by_step_across_starts(memory_name, dtype):
    memory = make_memory(memory_name, D, dtype)
    x, start = stream(dtype)
    state0 = state = used_state(memory)
    steps = []
    for t in range(T):
        y_t, state = memory.step(x[:, t], state, start[:, t])
        steps.append(y_t)
    y, final = memory(x, state0, start)
    assert y.shape == (B, T, memory.output_size)
    assert_same(y, torch.stack(steps, 1), TOLERANCE[dtype], f"{memory_name}: outputs")
    assert_same(final, state, TOLERANCE[dtype], f"{memory_name}: final state")


def test_a_start_separates_episodes_in_values_and_gradients(memory_name):
    memory = make_memory(memory_name, D, torch.float64)
    x, _ = stream(torch.float64)
    cut = 23
    start = torch.zeros(B, T, dtype=torch.bool)
    start[:, cut] = True
    x.requires_grad_()
    y, _ = memory(x, used_state(memory), start)
    alone, _ = memory(x[:, cut:], memory.initial_state(B), start[:, cut:])
    assert_same(y[:, cut:], alone, 1e-10, f"{memory_name}: state carried over a start")
    (gradient,) = torch.autograd.grad(y[:, cut:].square().sum(), x)
    assert (gradient[:, :cut] == 0).all(), f"{memory_name}: gradient crosses a start"
    assert (gradient[:, cut:] != 0).any()


def test_no_output_sees_the_future(memory_name):
    memory = make_memory(memory_name, D, torch.float64)
    x, start = stream(torch.float64)
    x.requires_grad_()
    y, _ = memory(x, used_state(memory), start)
    (gradient,) = torch.autograd.grad(y[:, :30].square().sum(), x)
    assert (gradient[:, 30:] == 0).all()


def test_rows_are_independent_and_order_does_not_matter(memory_name):
    memory = make_memory(memory_name, D, torch.float64)
    x, start = stream(torch.float64)
    state = used_state(memory)
    order = torch.tensor([2, 0, 3, 1])
    y, final = memory(x, state, start)
    y2, final2 = memory(x[order], tree_map(lambda s: s[order], state), start[order])
    assert_same(y2, y[order], 1e-12, memory_name)
    assert_same(final2, tree_map(lambda s: s[order], final), 1e-12, memory_name)


def test_an_infinite_state_is_cleared_by_a_start(memory_name):
    memory = make_memory(memory_name, D)
    x, start = stream(torch.float32)
    start[:, 0] = True
    spoilt = tree_map(lambda s: torch.full_like(s, torch.inf), memory.initial_state(B))
    y, _ = memory(x, spoilt, start)
    clean, _ = memory(x, memory.initial_state(B), start)
    assert torch.equal(y, clean)
    step, _ = memory.step(x[:, 0], spoilt, start[:, 0])
    assert torch.isfinite(step).all()


def test_gradients_through_a_thousand_slots_are_finite(memory_name):
    memory = make_memory(memory_name, D)
    x = torch.randn(1, 1000, D, generator=torch.Generator().manual_seed(0))
    y, _ = memory(x, memory.initial_state(1), torch.zeros(1, 1000, dtype=torch.bool))
    y.square().mean().backward()
    assert all(torch.isfinite(p.grad).all() for p in memory.parameters() if p.grad is not None)


def test_ffm_engines_agree():
    x, start = stream(torch.float64)
    results = []
    for engine in ("loop", "chunked"):
        memory = make_memory("ffm", D, torch.float64, engine=engine)
        memory(x, memory.initial_state(B), start)[0].square().sum().backward()
        results.append([p.grad for p in memory.parameters()])
    assert_same(results[0], results[1], 1e-9, "ffm")


@pytest.mark.parametrize("cell", [GRU, LSTM])
@pytest.mark.parametrize("start_rate", [0.0, 0.1, 0.6])
def test_fast_sequences_equal_the_loop_over_their_own_cell(cell, start_rate):
    """Values, final states and gradients (weights, inputs, first states) of the fast path and of its plain twin."""
    fast = cell(D, 8).double()
    plain = type("Plain", (cell,), {"sequence": RecurrentCell.sequence})(D, 8).double()
    plain.load_state_dict(fast.state_dict())
    x, start = stream(torch.float64, start_rate=start_rate)
    results = []
    for memory in (fast, plain):
        inputs = [x.clone().requires_grad_(), *(s.requires_grad_() for s in tree_flatten(used_state(fast))[0])]
        state = tuple(inputs[1:]) if len(inputs) > 2 else inputs[1]
        y, final = memory(inputs[0], state, start)
        loss = y.square().sum() + sum((s * (k + 1)).sum() for k, s in enumerate(tree_flatten(final)[0]))
        results.append([y, final, *torch.autograd.grad(loss, [*inputs, *memory.parameters()])])
    for ours, truth in zip(*results, strict=True):
        assert_same(ours, truth, 1e-10, cell.__name__)


def test_episodes_are_packed_longest_first():
    start = torch.tensor([[False, False, True, False, False], [True, False, False, False, True]])
    episodes = Episodes(start)
    assert episodes.batch_sizes.tolist() == [4, 3, 2, 1]
    assert episodes.row.tolist() == [1, 0, 0, 1]
    assert episodes.fresh.tolist() == [True, True, False, True]
    assert episodes.order.tolist()[:4] == [5, 2, 0, 9]
    assert episodes.last.tolist() == [1, 3]
    assert episodes.order[episodes.last_slot].tolist() == [8, 4, 1, 9]
