"""Inputs of which there are few, encoded once for all slots that have them, beside the encoding of every slot."""

from functools import partial

import pytest
import torch
from gymnasium import spaces
from helpers import make_memory

from rlmem.agents.encoder import Embeddings, Encoder, FewInputs
from rlmem.agents.trunk import Trunk
from rlmem.core.types import Batch, Inputs
from rlmem.memory.ffm import FFM
from rlmem.memory.gru import GRU
from rlmem.scan import native
from rlmem.scan.ffm import ffm_unroll
from rlmem.scan.native import constant_weights

CARDS, PAIRS = spaces.Discrete(4, start=2), spaces.MultiDiscrete([3, 2], start=[5, 1])
SUITS, MOVES = spaces.Discrete(3), spaces.MultiDiscrete([2, 2])


def some(observations, actions, B=6, T=40, seed=0):
    """Rows of slots with random inputs."""
    draw = torch.Generator().manual_seed(seed)

    def of(space, first):
        sizes = torch.as_tensor(space.n if isinstance(space, spaces.Discrete) else space.nvec)
        shape = (B, T, *sizes.shape)
        return (torch.rand(shape, generator=draw) * sizes).long() + torch.as_tensor(first)

    start = torch.rand(B, T, generator=draw) < 0.1
    return Inputs(of(observations, observations.start), of(actions, 0), torch.zeros(B, T), start)


@pytest.mark.parametrize("observations", [CARDS, PAIRS])
@pytest.mark.parametrize("actions", [SUITS, MOVES, None])
def test_inputs_have_their_numbers(observations, actions):
    few = FewInputs.of(observations, actions)
    everything = few.all()
    assert few.number(everything).tolist() == list(range(few.count))
    inputs = some(observations, actions or SUITS)
    found = everything.map(lambda field: field[few.number(inputs)])
    assert torch.equal(found.obs, inputs.obs) and torch.equal(found.start, inputs.start)
    if actions is not None:
        assert torch.equal(found.prev_action[~inputs.start], inputs.prev_action[~inputs.start])


def test_what_has_too_many_inputs_is_encoded_slot_by_slot():
    box = spaces.Box(-1, 1, (3,))
    for observations, actions in (
        (box, SUITS),
        (CARDS, box),
        (spaces.Discrete(5000), None),
        (CARDS, spaces.Discrete(2000)),
    ):
        assert FewInputs.of(observations, actions) is None
    assert Encoder(CARDS, SUITS, prev_reward=True).few_inputs() is None
    assert Encoder(CARDS, box, prev_action=False).few_inputs().count == 8
    assert Embeddings(CARDS, SUITS).few_inputs() is None  # reads rewards
    assert Embeddings(CARDS, SUITS, reward_size=0).few_inputs().count == 16


def rows(inputs, **more):
    """A batch of which the inputs alone are read."""
    nothing = torch.zeros_like(inputs.start)
    return Batch(*inputs, nothing, inputs.prev_reward, nothing, ~nothing, None, **more)


ENCODERS = {
    "mlp": lambda: Encoder(PAIRS, MOVES, 16, shortcut_size=3),
    "embeddings": lambda: Embeddings(PAIRS, MOVES, 9, 7, reward_size=0, start_flag=True),
    "no action": lambda: Encoder(PAIRS, MOVES, 16, prev_action=False),
}


def with_and_without(trunk, read):
    """What is read with the table of few inputs, and what is read slot by slot."""
    few, found = trunk.few_inputs, []
    assert few is not None
    for trunk.few_inputs in (few, None):
        found.append(read())
    trunk.few_inputs = few
    return found


@pytest.mark.parametrize("memory", ["ffm", "gru", "lstm", "elman", "lru"])
@pytest.mark.parametrize(
    ("encoder", "dtype"), [("mlp", torch.float32), ("embeddings", torch.float64), ("no action", torch.float32)]
)
def test_few_inputs_are_read_as_every_slot_is(memory, dtype, encoder):
    torch.manual_seed(0)
    built = ENCODERS[encoder]()
    trunk = Trunk(built, make_memory(memory, built.output_size, dtype, hidden_size=12)).to(dtype)
    inputs, prefix = some(PAIRS, MOVES), some(PAIRS, MOVES, T=25, seed=1)
    weights = [p for p in trunk.parameters() if p.requires_grad]

    def read(batch):
        y = trunk.read(batch, None)
        return [y, *torch.autograd.grad(y.square().sum(), weights, allow_unused=True)]

    for change in ({}, {"detach_every": 7}, {"prefix": prefix}):
        (y, *gradients), (truth, *true) = with_and_without(trunk, partial(read, rows(inputs, **change)))
        assert torch.equal(y, truth) or dtype == torch.float64 or memory == "elman"
        bound = 1e-4 if dtype == torch.float32 else 1e-11
        for ours, other in zip([y, *gradients], [truth, *true], strict=True):
            if other is not None:
                assert (ours - other).abs().max() <= bound * max(1, other.abs().max())


@pytest.mark.parametrize("memory", ["ffm", "gru"])
def test_a_step_has_gradients_with_any_number_of_rows(memory):
    trunk = Trunk(Encoder(CARDS, SUITS, 16), make_memory(memory, 16, hidden_size=12))
    inputs, weights = some(CARDS, SUITS).map(lambda field: field[:, :20].flatten(0, 1)), [*trunk.encoder.parameters()]

    def gradients():
        y, _ = trunk.step(inputs, trunk.initial_state(120))
        return torch.autograd.grad(y.square().sum(), weights)

    for ours, truth in zip(*with_and_without(trunk, gradients), strict=True):
        torch.testing.assert_close(ours, truth, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.float32])
def test_numbers_of_any_type_are_read(dtype):
    trunk = Trunk(Encoder(CARDS, SUITS, 16), make_memory("gru", 16, hidden_size=12))
    inputs = some(CARDS, SUITS)
    others = inputs._replace(obs=inputs.obs.to(dtype), prev_action=inputs.prev_action.to(dtype))
    assert torch.equal(trunk.read(rows(others), None), trunk.read(rows(inputs), None))


def test_hooks_see_every_slot():
    encoder, seen = Encoder(CARDS, SUITS, 16), []
    trunk = Trunk(encoder, make_memory("gru", 16, hidden_size=12))
    assert trunk.few_inputs is not None
    with encoder.register_forward_hook(lambda module, args, x: seen.append(x.shape)):
        trunk.read(rows(some(CARDS, SUITS)), None)
    assert seen == [(6, 40, 16)]


class Doubled(GRU):
    """A user's memory, which reads otherwise than the class that it comes from."""

    def forward(self, x, state, start):
        return super().forward(2 * x, state, start)

    def step(self, x, state, start):
        return super().step(2 * x, state, start)


class Dropped(Encoder):
    """A user's encoder, which draws for every slot."""

    def forward(self, *inputs):
        return torch.nn.functional.dropout(super().forward(*inputs), 0.5)


def test_subclasses_read_every_slot_unless_they_say_otherwise():
    assert Trunk(Dropped(CARDS, SUITS, 16), GRU(16, 12)).few_inputs is None
    inputs, encoder, memory = some(CARDS, SUITS), Encoder(CARDS, SUITS, 16), Doubled(16, 12)
    trunk = Trunk(encoder, memory)
    y = memory(encoder(*inputs), memory.initial_state(6), inputs.start)[0]
    with torch.no_grad(), constant_weights(trunk):
        stepped, _ = trunk.step(inputs.map(lambda field: field[:, 0]), memory.initial_state(6))
    torch.testing.assert_close(trunk.read(rows(inputs), None), y)
    torch.testing.assert_close(stepped, y[:, 0])


@pytest.mark.parametrize("memory", ["ffm", "gru", "lstm", "elman", "lru"])
def test_acting_reads_from_the_table_what_it_reads_without(memory):
    torch.manual_seed(0)
    encoder = ENCODERS["mlp"]()
    trunk, inputs = Trunk(encoder, make_memory(memory, 16, hidden_size=12)), some(PAIRS, MOVES)

    @torch.no_grad()
    def act():
        with constant_weights(trunk):
            state, outputs = trunk.initial_state(6), []
            for t in range(20):
                y, state = trunk.step(inputs.map(lambda field, t=t: field[:, t]), state)
                outputs.append(y)
        return torch.stack(outputs)

    found = with_and_without(trunk, act)
    torch.testing.assert_close(*found, rtol=1e-5, atol=1e-6)
    assert torch.equal(*found) or memory == "elman"


@pytest.mark.skipif(bool(native.missing()), reason="there is no native engine")
def test_slots_that_share_projections_get_the_gradients_of_all(monkeypatch):
    """Sums over slots that share a row are the same to the bit with any number of threads."""
    torch.manual_seed(0)
    memory = FFM(5, 24, trace_size=8).double()
    p, which = torch.randn(9, 64, dtype=torch.double, requires_grad=True), torch.randint(9, (4, 700))
    start, state = torch.rand(4, 700) < 0.02, memory.initial_state(4).to(torch.cdouble)

    def read(p, which, threads=1):
        monkeypatch.setattr(native, "threads_for", lambda work: threads)
        weights = memory.gamma(), memory.mix.weight, memory.mix.bias
        y, last = ffm_unroll(p, *weights, state, start, which=which)
        return y, torch.autograd.grad(y.square().sum() + last.abs().sum(), p)[0]

    y, grad = read(p, which)
    for found, truth in zip((y, grad), read(p, which, 3), strict=True):
        assert torch.equal(found, truth)
    alone = p[which].detach().requires_grad_()
    expected, slotwise = read(alone, None)
    assert torch.equal(y, expected)
    torch.testing.assert_close(grad, torch.zeros_like(p).index_add(0, which.flatten(), slotwise.flatten(0, 1)))
    for wrong in (which[:, :-1], which.int()):
        with pytest.raises(ValueError, match="expected 2800 integers"):
            read(p, wrong)
    for beyond in (which - 1, which + 1):
        with pytest.raises(ValueError, match="expected numbers of 9 rows"):
            read(p, beyond)
    with pytest.raises(ValueError, match=r"p: expected \[9, 64\]"):
        read(p[:, 1:], which)
