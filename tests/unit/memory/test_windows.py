"""Memories that see a window of slots, against plain loops over the slots of one episode."""

import re
from math import cos, sin

import pytest
import torch
from golden_models import gtrxl
from torch.nn import functional as F

from rlmem.memory.frame_stack import FrameStack
from rlmem.memory.gpt import GPT
from rlmem.memory.positions import rotate, rotation, sinusoid
from rlmem.memory.tcn import TCN
from rlmem.scan import native

D = 6


@pytest.fixture(params=["kernel", "operations"])
def attention_by(request, monkeypatch):
    """Attention by the native kernel, and by the operations of torch that stand for it elsewhere."""
    if request.param == "operations":
        monkeypatch.setattr(native, "takes", lambda *tensors: False)
    elif native.missing():
        pytest.skip(native.missing())


def stream(T, B=2, start_rate=0.02, seed=0):
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(B, T, D, generator=rng, dtype=torch.float64)
    return x, torch.rand(B, T, generator=rng) < start_rate


def in_pieces(memory, x, start, lengths):
    """Read a stream in pieces, the state carried from each to the next."""
    state, y = memory.initial_state(len(x)), []
    for x_piece, start_piece in zip(x.split(lengths, 1), start.split(lengths, 1), strict=True):
        y_piece, state = memory(x_piece, state, start_piece)
        y.append(y_piece)
    return torch.cat(y, 1)


def by_episode(function, x, start):
    """`function` of every episode [T, D] alone, put together again."""
    begins = start.clone()
    begins[:, 0] = True
    rows = []
    for row, flags in zip(x, begins, strict=True):
        first = flags.nonzero().flatten().tolist()
        rows.append(torch.cat([function(row[a:b]) for a, b in zip(first, [*first[1:], len(row)], strict=True)]))
    return torch.stack(rows)


def plain_gpt(gpt, window, x):
    """One episode [T, D], slot by slot and head by head."""
    w = gpt.symbols()
    H, heads = gpt.output_size, gpt.num_heads
    width = H // heads
    z = F.linear(x, w["W_in"], w["b_in"])
    for t in range(len(x)):
        if gpt.positions == "sinusoidal":
            angles = [t / gpt.base ** (i / H) for i in range(0, H, 2)]
            z[t] += torch.tensor([f(a) for a in angles for f in (sin, cos)], dtype=z.dtype)
        elif gpt.positions == "learned":
            z[t] += w["W_p"][min(t, len(w["W_p"]) - 1)]

    def turned(vector, t):
        if gpt.positions != "rotary":
            return vector
        pairs = torch.view_as_complex(vector.view(-1, 2).contiguous())
        angle = torch.tensor([t / gpt.base ** (2 * i / width) for i in range(width // 2)], dtype=torch.float64)
        return torch.view_as_real(pairs * torch.exp(1j * angle)).flatten()

    for layer in range(len(gpt.layers)):
        v = {s.removeprefix(f"L{layer}."): p for s, p in w.items() if s.startswith(f"L{layer}.")}
        qkv = F.linear(F.layer_norm(z, [H], v["ln_1_scale"], v["ln_1_bias"]), v["W_qkv"], v["b_qkv"])
        q, k, values = qkv.view(-1, 3, heads, width).unbind(1)
        read = torch.zeros_like(z)
        for t in range(len(x)):
            seen = range(max(0, t - window + 1), t + 1)
            for h in range(heads):
                products = torch.stack([turned(q[t, h], t) @ turned(k[s, h], s) for s in seen])
                weights = torch.softmax(products / width**0.5, 0)
                read[t, h * width : (h + 1) * width] = weights @ values[seen.start : seen.stop, h]
        z = z + F.linear(read, v["W_o"], v["b_o"])
        u = F.layer_norm(z, [H], v["ln_2_scale"], v["ln_2_bias"])
        u = F.linear(u, v["W_1"], v["b_1"])
        gelu = 0.5 * u * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (u + 0.044715 * u**3)))
        z = z + F.linear(gelu, v["W_2"], v["b_2"])
    return F.layer_norm(z, [H], w["ln_f_scale"], w["ln_f_bias"])


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rotary", "none"])
@pytest.mark.usefixtures("attention_by")
@torch.no_grad()
def test_gpt_is_the_plain_transformer_also_after_its_window_slid(positions):
    torch.manual_seed(0)
    gpt = GPT(D, 8, num_layers=2, num_heads=2, window=5, positions=positions, base=100, max_length=7).double()
    for parameter in gpt.parameters():
        parameter.copy_(torch.randn_like(parameter) / 2)
    x, start = stream(80)
    truth = by_episode(lambda episode: plain_gpt(gpt, 5, episode), x, start)
    for lengths in ([80], [7, 1, 2, 35, 35], [1] * 80):
        torch.testing.assert_close(in_pieces(gpt, x, start, lengths), truth, rtol=0, atol=1e-11)


@pytest.mark.usefixtures("attention_by")
@pytest.mark.parametrize("window", [1, 5, 70])
def test_gpt_in_chunks_is_gpt_in_one_dense_call(window):
    """Values and gradients: 400 slots are read in chunks, pieces of at most 100 are not."""
    torch.manual_seed(0)
    gpt = GPT(D, 8, num_layers=2, num_heads=2, window=window).double()
    x, start = stream(400)
    results = []
    for lengths in ([400], [100, 37, 63, 100, 100]):
        leaf = x.clone().requires_grad_()
        y = in_pieces(gpt, leaf, start, lengths)
        results.append([y, *torch.autograd.grad(y.sin().sum(), [leaf, *gpt.parameters()])])
    for ours, truth in zip(*results, strict=True):
        torch.testing.assert_close(ours, truth, rtol=0, atol=1e-11)


def test_gpt_starts_as_gpt_2_does():
    gpt = GPT(64, 64, num_layers=2, positions="learned", max_length=10)
    w = gpt.symbols()
    assert "W_in" not in w  # nothing to map
    assert sum(p.numel() for p in gpt.parameters()) == 2 * (12 * 64**2 + 13 * 64) + 2 * 64 + 10 * 64
    for name in ("W_p", "L0.W_qkv", "L1.W_o", "L0.W_1", "L1.W_2"):
        assert w[name].std().item() == pytest.approx(0.02, rel=0.1)
    assert all((p == 0).all() for name, p in w.items() if ".b_" in name)


@pytest.mark.recorded("init_tables", has="sine_pe.")
def test_the_sine_encoding_is_the_recorded_one(recording):
    for key, truth in recording.arrays.items():
        if found := re.fullmatch(r"sine_pe\.max(\d+)_d(\d+)", key):
            base, width = int(found[1]), int(found[2])
            ours = sinusoid(torch.arange(base, dtype=torch.float64), width, base)
            torch.testing.assert_close(ours, truth, rtol=0, atol=1e-12)


def test_rotary_products_depend_on_the_distance_alone_even_late():
    q, k = torch.randn(2, 1, 1, 1, 7, generator=torch.Generator().manual_seed(0))

    def product(age_q, age_k):
        turned = [rotate(z, *rotation(torch.tensor([[float(a)]]), 7, 1e4)) for z, a in ((q, age_q), (k, age_k))]
        return (turned[0] * turned[1]).sum()

    near = product(5, 2)
    assert product(1_000_005, 1_000_002) == pytest.approx(near.item(), abs=1e-5)
    assert product(5, 3) != pytest.approx(near.item(), abs=1e-2)
    assert product(0, 0) == pytest.approx((q * k).sum().item(), abs=1e-6)


@torch.no_grad()
def test_the_residual_tcn_is_bai_et_al_s_block_on_every_episode():
    torch.manual_seed(0)
    tcn = TCN(D, 8, kernel_size=3, num_layers=3).double()
    for parameter in tcn.parameters():
        parameter.copy_(torch.randn_like(parameter) / 3)
    w = tcn.symbols()

    def plain(z):
        z = z.T
        for i in range(3):
            o = z
            for j in (1, 2):
                W = torch._weight_norm(w[f"L{i}.W_{j}"], w[f"L{i}.g_{j}"][:, None, None], 0)
                o = F.relu(F.conv1d(F.pad(o, (2 * 2**i, 0)), W, w[f"L{i}.b_{j}"], dilation=2**i))
            skip = F.linear(z.T, w["L0.W_skip"], w["L0.b_skip"]).T if i == 0 else z
            z = F.relu(skip + o)
        return z.T

    x, start = stream(80, start_rate=0.05)
    truth = by_episode(plain, x, start)
    for lengths in ([80], [1] * 80, [3, 30, 47]):
        torch.testing.assert_close(in_pieces(tcn, x, start, lengths), truth, rtol=0, atol=1e-11)


def test_weight_normalisation_changes_nothing_at_first():
    tcn = TCN(D, 8, num_layers=1)
    g, W = tcn.symbols()["L0.g_1"], tcn.symbols()["L0.W_1"]
    torch.testing.assert_close(g, W.flatten(1).norm(dim=1))


def test_a_frame_stack_may_be_narrower_than_its_frames_are_many():
    memory = FrameStack(D, hidden_size=3, window=5)
    y, _ = memory(torch.zeros(1, 2, D), memory.initial_state(1), torch.zeros(1, 2, dtype=torch.bool))
    assert y.shape == (1, 2, 3)


@pytest.mark.recorded("gtrxl_lnq", has="step.y")
def test_a_window_of_gtrxl_is_what_it_sees_step_by_step(recording):
    """The recorded gradients stop at every step; those of a window do not."""
    memory = gtrxl(recording, "masked", "normed", "window").double()
    memory.load_symbols(recording.group("w"))
    x, e = recording.array("x"), recording.array("state0")
    state = {"age": (e[:, 0] != 0).any(-1).sum(-1).double()}
    for i, layer in enumerate(memory.layers):
        state[f"L{i}.k"], state[f"L{i}.v"] = layer.keys_and_values(e[:, i])
    y, _ = memory(x, state, recording.arrays["start"])
    torch.testing.assert_close(y, recording.array("step.y"), rtol=0, atol=1e-11)
