"""What lies below the memory contract (tests/test_conformance.py): packing, fast kernels, weights by symbol."""

import pytest
import torch
from helpers import make_memory
from torch.utils._pytree import tree_flatten, tree_map

from rlmem.memory import FFM, GRU, LPRNN, LSTM
from rlmem.memory.base import RecurrentCell
from rlmem.memory.packed import Packing

B, T, D = 4, 60, 6


@pytest.mark.parametrize("cell", [GRU, LSTM])
@pytest.mark.parametrize("start_rate", [0.0, 0.1, 0.6])
def test_fast_sequences_equal_the_loop_over_their_own_cell(cell, start_rate):
    """Values, final states and gradients (weights, inputs, first states) of the fast path and of its plain twin."""
    fast = cell(D, 8).double()
    plain = type("Plain", (cell,), {"sequence": RecurrentCell.sequence})(D, 8).double()
    plain.load_state_dict(fast.state_dict())
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(B, T, D, dtype=torch.float64, generator=rng)
    start = torch.rand(B, T, generator=rng) < start_rate
    used = tree_map(torch.detach, fast(x, fast.initial_state(B), start)[1])
    leaves, spec = tree_flatten(used)
    results = []
    for memory in (fast, plain):
        inputs = [leaf.clone().requires_grad_() for leaf in (x, *leaves)]
        y, final = memory(inputs[0], spec.unflatten(inputs[1:]), start)
        loss = y.square().sum() + sum((s * (k + 1)).sum() for k, s in enumerate(tree_flatten(final)[0]))
        results.append([y, *tree_flatten(final)[0], *torch.autograd.grad(loss, [*inputs, *memory.parameters()])])
    for ours, truth in zip(*results, strict=True):
        torch.testing.assert_close(ours, truth, rtol=0, atol=1e-10)


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


@pytest.mark.parametrize("name", ["gru", "ffm", "gpt", "dnc", "shm", "stack", "linear_attention"])
def test_flags_and_states_of_other_rows_are_refused(name):
    memory = make_memory(name, 6)
    x, start = torch.zeros(2, 5, 6), torch.zeros(2, 5, dtype=torch.bool)
    for rows in (1, 3):
        with pytest.raises(ValueError, match="expected 2 rows"):
            memory(x, memory.initial_state(rows), start)
    with pytest.raises(ValueError, match=r"start: expected bool \[2, 5\]"):
        memory(x, memory.initial_state(2), start.float())


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
