"""What lies below the memory contract (tests/contracts/test_memory.py): packing, fast kernels, weights by symbol."""

import pytest
import torch
from helpers import fast_only, make_memory, options
from torch.utils._pytree import tree_leaves

from rlmem.memory import FFM, LPRNN
from rlmem.memory.base import Packing
from rlmem.scan.native import constant_weights, of_weights

B, T, D = 4, 60, 6
DERIVED = ("ffm", "gru", "lstm", "slstm", "lru", "s4d", "s5", "gtrxl")
"""Memories that compute values of their weights alone."""


def acted(memory):
    """Outputs and final state of five steps of four rows, with a start in the middle of some."""
    rng = torch.Generator().manual_seed(0)
    state, outputs = memory.initial_state(B), []
    for t in range(5):
        start = torch.tensor([t == 0, t in (0, 3), t == 0, t in (0, 1)])
        y, state = memory.step(torch.randn(B, D, generator=rng), state, start)
        outputs.append(y)
    return [torch.stack(outputs), *tree_leaves(state)]


@pytest.mark.parametrize("name", fast_only(DERIVED, options("memory")))
def test_steps_are_the_same_where_weights_are_constant(name):
    """What is computed once there, and products with packed weights, change rounding alone."""
    memory = make_memory(name, D)
    with torch.no_grad():
        truth = acted(memory)
        with constant_weights(memory):
            found = acted(memory)
    for ours, plain in zip(found, truth, strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-4, atol=1e-5)


def test_a_fused_step_is_the_plain_one():
    for dtype, bound in ((torch.float64, 1e-12), (torch.float32, 1e-5)):
        memory = FFM(D, 8).to(dtype)
        x, state = torch.randn(B, D, dtype=dtype), memory.initial_state(B)
        state = torch.complex(*torch.randn(2, *state.shape, dtype=dtype))
        start = torch.tensor([True, False, False, True])
        state[0, 0, 0] = torch.nan  # behind a start
        plain = memory.step(x, state, start)  # with a gradient
        with torch.no_grad():
            fused = memory.step(x, state, start)
        for ours, truth in zip(fused, plain, strict=True):
            torch.testing.assert_close(ours, truth.detach(), rtol=bound, atol=bound)


@pytest.mark.parametrize("bad", ["rows", "type", "flags", "layout"])
def test_a_fused_step_reads_no_state_that_does_not_fit(bad):
    memory, x, start = FFM(D, 8), torch.randn(B, D), torch.zeros(B, dtype=torch.bool)
    state = torch.randn(B, *memory.state_shape, dtype=torch.complex64)
    with torch.no_grad():
        memory.engine = "loop"
        truth = memory.step(x, state, start)
        memory.engine = "auto"
        if bad == "layout":  # the same numbers, in another order in memory
            permuted = state.transpose(0, 1).contiguous().transpose(0, 1)
            for ours, plain in zip(memory.step(x, permuted, start), truth, strict=True):
                torch.testing.assert_close(ours, plain)
            return
        changes = {
            "rows": (state[:2], start),
            "type": (state.to(torch.complex128), start),
            "flags": (state, 1.0 * start),
        }
        with pytest.raises(ValueError, match="expected"):
            memory.step(x, *changes[bad])


class Doubling(torch.nn.Linear):
    """Counts how often its weight was doubled."""

    count = 0

    @of_weights
    def doubled(self):
        self.count += 1
        return 2 * self.weight


def test_what_is_made_of_weights_is_made_once_while_they_are_constant():
    layer, other = Doubling(3, 2), Doubling(3, 2)
    layer.doubled(), layer.doubled()
    assert layer.count == 2, "weights may change"
    with constant_weights(layer):
        layer.doubled(), layer.doubled()
        assert layer.count == 4, "a gradient may be recorded"
        with torch.no_grad():
            first = layer.doubled()
            assert layer.doubled() is first
            other.doubled(), other.doubled()
            with constant_weights(torch.nn.Sequential(other)):
                assert other.doubled() is other.doubled()
                layer.doubled()
            assert layer.doubled() is first
    assert (layer.count, other.count) == (6, 3), "another network's weights may change"
    with torch.no_grad():
        layer.weight.add_(1)
        assert torch.equal(layer.doubled(), 2 * layer.weight)


def test_values_of_weights_are_carried_from_one_scope_to_the_next():
    layer, constants = Doubling(3, 2), {}
    for _ in range(2):
        with torch.no_grad(), constant_weights(layer, constants):
            layer.doubled()
    assert layer.count == 1


def test_spans_are_packed_longest_first():
    start = torch.tensor([[False, False, True, False, False], [True, False, False, False, True]])
    packing = Packing(start)
    assert packing.batch_sizes.tolist() == [4, 3, 2, 1]
    assert packing.row.tolist() == [1, 0, 0, 1]
    assert packing.fresh.tolist() == [True, True, False, True]
    assert packing.order.tolist()[:4] == [5, 2, 0, 9]
    assert packing.last.tolist() == [1, 3]
    assert packing.order[packing.last_slot].tolist() == [8, 4, 1, 9]


def test_symbols_are_views_of_the_parameters():
    memory = FFM(D, 8)
    memory.symbols()["W_gate_out"].data.fill_(3.0)
    assert (memory.project_in.weight[-8:] == 3).all()


def test_weights_that_do_not_fit_are_named():
    memory = FFM(D, 8)
    weights = dict(memory.symbols())
    with pytest.raises(ValueError, match="FFM: no weight given for W_mix"):
        memory.load_symbols({symbol: w for symbol, w in weights.items() if symbol != "W_mix"})
    with pytest.raises(ValueError, match=r"FFM has no W_mixx; it has W_value, .*W_mix"):
        memory.load_symbols(weights | {"W_mixx": weights["W_mix"]})
    with pytest.raises(ValueError, match=r"FFM: a is torch\.float32 \[32\], got torch\.float32 \[3\]"):
        memory.load_symbols(weights | {"a": torch.zeros(3)})


@pytest.mark.parametrize("name", ["gru", "ffm", "gpt", "dnc", "shm", "s6", "stack", "linear_attention", "fwp"])
def test_flags_and_states_of_other_rows_are_refused(name):
    memory = make_memory(name, 6)
    x, start = torch.zeros(2, 5, 6), torch.zeros(2, 5, dtype=torch.bool)
    for rows in (1, 3):
        with pytest.raises(ValueError, match="expected 2 rows"):
            memory(x, memory.initial_state(rows), start)
    for wrong in (start.float(), start[:1], start[:, :4]):
        with pytest.raises(ValueError, match=r"start: expected bool \[2, 5\]"):
            memory(x, memory.initial_state(2), wrong)


def test_a_mistyped_option_builds_no_other_model():
    with pytest.raises(ValueError, match=r"FFM: ablation='nix' is no option; accepted: none, ni"):
        FFM(6, ablation="nix")
    with pytest.raises(ValueError, match=r"LPRNN: filters='par' is no option; accepted: chain, parallel"):
        LPRNN(6, filters="par")


def test_weights_are_loaded_all_or_none():
    memory = FFM(6, 8, 4, 2)
    before = {name: weight.clone() for name, weight in memory.symbols().items()}
    wrong = {name: torch.zeros_like(weight) for name, weight in before.items()} | {"b_mix": torch.zeros(3)}
    for bad in (wrong, before | {"a": torch.zeros(4, dtype=torch.complex64)}):
        with pytest.raises(ValueError, match="FFM: "):
            memory.load_symbols(bad)
    assert all(torch.equal(weight, before[name]) for name, weight in memory.symbols().items())
