"""LRU, S5, S4D, S6 and the minimal GRU: options, initialisation, and what recordings do not hold."""

import re

import pytest
import torch
from helpers import make_memory
from torch.nn import functional as F
from torch.utils._pytree import tree_flatten

from rlmem.memory.lru import LRU, S5
from rlmem.memory.s4d import S4D
from rlmem.memory.s6 import S6
from rlmem.scan import selective

B, T, D = 3, 40, 6


def stream(seed=0):
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(B, T, D, dtype=torch.float64, generator=rng), torch.rand(B, T, generator=rng) < 0.1


def assert_near(ours, truth, tolerance=1e-11):
    assert (ours - truth).abs().max() <= tolerance


def gradients(memory):
    x, start = stream()
    x.requires_grad_()
    y, final = memory(x, memory.initial_state(B), start)
    loss = y.square().sum() + sum(s.abs().square().sum() for s in tree_flatten(final)[0])
    return y.detach(), torch.autograd.grad(loss, [x, *memory.parameters()])


def test_the_lru_begins_in_its_ring_with_inputs_scaled_to_its_decay():
    torch.manual_seed(0)
    for memory, (r_min, r_max) in ((LRU(D, 64, "ffn"), (0.8, 0.99)), (LRU(D, 64, r_min=0.5, r_max=0.6), (0.5, 0.6))):
        radius = torch.exp(-memory.nu_log.exp())
        assert r_min <= radius.min()
        assert radius.max() <= r_max
        assert_near(memory.gamma_log.exp(), torch.sqrt(1 - radius**2), 1e-5)
    assert LRU(D, 64).state_shape == (128,)
    assert LRU(D, 64, "ffn").state_shape == (128,)
    assert LRU(D, 64, "linear").state_shape == (64,)


def test_residual_blocks_map_their_input_only_where_widths_differ():
    for memory in (LRU, S5):
        assert not {"W_in", "b_in"} & memory(16, 16).symbols().keys()
        assert memory(D, 16).symbols()["W_in"].shape == (16, D)


def test_the_linear_block_of_the_lru_is_its_equations():
    memory = LRU(D, 5, "linear", state_size=4).double()
    w = memory.symbols()
    x, start = stream()
    lam = torch.exp(torch.complex(-w["nu_log"].exp(), w["theta_log"].exp()))
    B_, C = torch.complex(w["B_re"], w["B_im"]), torch.complex(w["C_re"], w["C_im"])
    for row in range(B):
        h, ys = torch.zeros(4, dtype=torch.complex128), []
        for x_t, start_t in zip(x[row] @ w["W_in"].T + w["b_in"], start[row], strict=True):
            h = lam * (0 if start_t else h) + w["gamma_log"].exp() * (B_ @ x_t.to(B_.dtype))
            o = (C @ h).real + w["D"] * x_t
            ys.append(F.layer_norm(w["W_out2"] @ o + w["b_out2"] + x_t, (5,), w["ln_scale"], w["ln_bias"]))
        assert_near(memory(x, memory.initial_state(B), start)[0][row], torch.stack(ys))


@pytest.mark.recorded("init_tables", has="s5.")
def test_state_space_models_begin_at_the_published_eigenvalues(recording):
    for key, truth in recording.arrays.items():
        if found := re.fullmatch(r"s5\.ssm(\d+)\.Lambda", key):
            memory = S5(D, 16, state_size=int(found[1]) // 2)
            assert_near(torch.complex(memory.Lambda_re, memory.Lambda_im), truth, 1e-5)
        elif found := re.fullmatch(r"s4d\.dstate(\d+)\.A", key):
            memory = S4D(D, 16, state_size=int(found[1]) // 2)
            A = torch.complex(-memory.log_neg_A_re.exp(), memory.A_im)
            assert_near(A, truth.expand(16, -1), 1e-5)


@pytest.mark.recorded("s4d", has="pub.stale")
def test_cached_step_matrices_are_those_of_the_first_step(recording):
    """The published agent acts with stale matrices while D and W_out move on, also after a resume."""
    record, meta = recording, recording.meta
    memory = S4D(meta["d"], meta["H"], meta["n"], step_matrices="cached").double()
    x, start = record.arrays["x"], record.arrays["start"]
    memory.load_symbols(record.group("w") | record.group("pub.stale"))
    memory.step(x[:, 0], memory.initial_state(len(x)), start[:, 0])
    memory.load_symbols(record.group("w"))
    resumed = S4D(meta["d"], meta["H"], meta["n"], step_matrices="cached").double()
    resumed.load_state_dict(memory.state_dict())
    for acting in (memory, resumed):
        state, ys = acting.initial_state(len(x)), []
        for x_t, start_t in zip(x.unbind(1), start.unbind(1), strict=True):
            y_t, state = acting.step(x_t, state, start_t)
            ys.append(y_t)
        assert_near(torch.stack(ys, 1), record.arrays["pub.y_step_stale"])
        assert_near(acting(x, acting.initial_state(len(x)), start)[0], record.arrays["y"])


@pytest.mark.parametrize("conv_size", [0, 1, 3])
@pytest.mark.parametrize("discretisation", ["zoh", "euler"])
def test_the_mamba_block_is_its_equations(conv_size, discretisation):
    memory = S6(D, 5, state_size=3, conv_size=conv_size, discretisation=discretisation).double()
    w = memory.symbols()
    x, start = stream()
    A = -w["A_log"].exp()
    for row in range(B):
        h, past, ys = torch.zeros(10, 3).double(), [], []
        for x_t, start_t in zip(x[row], start[row], strict=True):
            if start_t:
                h, past = torch.zeros_like(h), []
            past.append(w["W_x"] @ x_t)
            v = past[-1]
            if conv_size:
                taps = zip(reversed(past[-conv_size:]), w["w_conv"].flip(1).unbind(1), strict=False)
                v = w["b_conv"] + sum(tap * v_t for v_t, tap in taps)
            u = F.silu(v)
            dt = F.softplus(w["W_dt"] @ w["W_r"] @ u + w["b_dt"])[:, None]
            step = (torch.exp(dt * A) - 1) / A if discretisation == "zoh" else dt
            h = torch.exp(dt * A) * h + step * torch.outer(u, w["W_B"] @ u)
            ys.append(w["W_out"] @ ((h @ (w["W_C"] @ u) + w["D"] * u) * F.silu(w["W_z"] @ x_t)))
        assert_near(memory(x, memory.initial_state(B), start)[0][row], torch.stack(ys))


def test_mamba_read_piece_by_piece_is_mamba_read_at_once(monkeypatch):
    memory = make_memory("s6", D, torch.float64, engine="chunked")
    whole = gradients(memory)
    monkeypatch.setitem(selective.STATES_AT_ONCE, "cpu", 7 * B * 32 * 16)  # 7 slots of 32 channels, 16 states each
    pieces = gradients(memory)
    assert_near(pieces[0], whole[0])
    for ours, truth in zip(pieces[1], whole[1], strict=True):
        assert_near(ours, truth, 1e-10)


@pytest.mark.parametrize(
    ("engine", "slots", "most", "least"), [("chunked", 8, 1, 0), ("chunked", T, 6, 4), ("auto", 8, 1, 0)]
)
def test_mamba_keeps_no_states_for_the_backward_pass_but_one_per_piece(monkeypatch, engine, slots, most, least):
    """Numbers that the graph keeps alive, in units of the states of all slots; at once, it is several times those."""
    memory = make_memory("s6", D, state_size=64, engine=engine)
    monkeypatch.setitem(selective.STATES_AT_ONCE, "cpu", slots * B * 32 * 64)
    x, start = stream()
    kept = {}

    def keep(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes() / (4 * B * T * 32 * 64)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        memory(x.float(), memory.initial_state(B), start)
    assert least < sum(kept.values()) < most


def test_mamba_begins_as_published():
    torch.manual_seed(0)
    memory = S6(D, 64, state_size=4)
    step = F.softplus(memory.W_dt.bias)
    assert step.min() >= 0.001 / 1.001
    assert step.max() <= 0.1 * 1.001
    assert_near(memory.A_log.exp(), torch.tensor([1.0, 2, 3, 4]).expand(128, 4), 1e-6)
