"""detach_every: the same values, and a gradient that stays within its chunk of the state's path."""

import pytest
import torch
from helpers import fast_only, make_memory, options
from torch.utils._pytree import tree_map

from rlmem.batching import Segment, Tape, unroll
from rlmem.batching.base import Rollout
from rlmem.core.types import Batch

B, T, D = 3, 23, 5


def make(name):
    return make_memory(name, D, torch.float64)


def inputs(seed=0):
    """Rows with starts at different slots; row 0 begins with one, the others inside an episode; and a used state."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(B, T, D, dtype=torch.float64, generator=generator)
    start = torch.zeros(B, T, dtype=torch.bool)
    start[0, [0, 8, 9]] = start[1, [5]] = True
    return x, start


def used_state(memory, rows=B):
    x = torch.randn(rows, 4, D, dtype=torch.float64, generator=torch.Generator().manual_seed(9))
    with torch.no_grad():
        return memory(x, memory.initial_state(rows), torch.zeros(rows, 4, dtype=torch.bool))[1]


def chunks(start, k):
    """The number of the chunk that each slot is in; slots of different chunks have different numbers."""
    number, numbers = -1, torch.zeros(start.shape, dtype=torch.long)
    for b in range(start.shape[0]):
        age = 0
        for t in range(start.shape[1]):
            age = 0 if start[b, t] or t == 0 else age + 1
            number += age % k == 0
            numbers[b, t] = number
    return numbers


@pytest.mark.parametrize("k", fast_only([3], [1, 3, 8, 100]))
@pytest.mark.parametrize("name", fast_only(("gru", "ffm", "gpt"), options("memory")))
def test_values_do_not_depend_on_the_cuts(name, k):
    memory, (x, start) = make(name), inputs()
    state = used_state(memory)
    expected, _ = memory(x, state, start)
    torch.testing.assert_close(unroll(memory, x, state, start, k), expected, rtol=1e-8, atol=1e-10)
    assert torch.equal(unroll(memory, x, state, start), expected)


@pytest.mark.parametrize(("name", "k"), [("gru", 1), ("gru", 5), ("ffm", 3), ("gpt", 3), ("lstm", 4), ("lru", 1)])
def test_gradients_are_those_of_chunks_read_one_after_another(name, k):
    """The oracle reads every chunk of every row by itself, from the detached state that the one before left."""
    memory, (x, start) = make(name), inputs()
    state = used_state(memory)
    probe = torch.randn(B, T, memory.output_size, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    number, loss = chunks(start, k), 0.0
    for b in range(B):
        s = tree_map(lambda leaf, b=b: leaf[b : b + 1], state)
        for chunk in number[b].unique():
            part = (number[b] == chunk).nonzero().flatten()
            y, s = memory(x[b : b + 1, part], tree_map(torch.Tensor.detach, s), start[b : b + 1, part])
            loss = loss + (y * probe[b, part]).sum()
    expected = torch.autograd.grad(loss, list(memory.parameters()), allow_unused=True)
    loss = (unroll(memory, x, state, start, k) * probe).sum()
    gradients = torch.autograd.grad(loss, list(memory.parameters()), allow_unused=True)
    for a, b in zip(gradients, expected, strict=True):
        if b is not None:
            torch.testing.assert_close(a, b)


def test_the_state_before_a_row_gets_the_gradient_of_the_first_chunk_only():
    memory, (x, start) = make("gru"), inputs()
    state = used_state(memory).requires_grad_()
    y = unroll(memory, x, state, start, 4)
    (gradient,) = torch.autograd.grad(y[:, :4].sum(), state, retain_graph=True)
    assert (gradient[1:] != 0).any(1).all()
    assert not gradient[0].any(), "row 0 begins with a start"
    assert not torch.autograd.grad(y[:, 4:].sum(), state)[0].any()


@pytest.mark.parametrize("batching", [Tape(detach_every=3), Segment(4, detach_every=3)])
def test_on_policy_rows_carry_it_too(batching):
    zeros = torch.zeros(2, 6)
    start = zeros.bool()
    start[:, 0] = True
    mask = ~start & (torch.arange(6) < 5) | start
    streams = Batch(zeros, zeros, zeros, start, zeros, zeros, zeros.bool(), mask, state0=zeros[:, :1])
    batch = batching.rows(streams).batch(Rollout(streams))
    assert batch.detach_every == 3
    assert batch.rows(torch.tensor([0])).detach_every == 3
