"""The sequential cells and the low-pass RNN: what the contract and the recordings do not cover."""

import re
from math import exp, log, sqrt, tanh

import pytest
import torch
from golden import assert_gradients, assert_near, prepared, run
from golden_models import lmu, lprnn
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from rlmem.core.errors import UserError
from rlmem.memory.base import RecurrentCell
from rlmem.memory.brc import BRC
from rlmem.memory.dnc import DNC, TIE, allocation
from rlmem.memory.gru import GRU, LSTM, Elman
from rlmem.memory.indrnn import IndRNN
from rlmem.memory.lmu import LMU, legendre_delay
from rlmem.memory.lprnn import LPRNN
from rlmem.memory.rtu import NonlinearRTU
from rlmem.memory.rwkv7 import RWKV7
from rlmem.memory.xlstm import SLSTM
from rlmem.scan import cells

F64 = torch.float64


def random_stream(B: int, T: int, D: int, start_rate: float) -> tuple[Tensor, Tensor]:
    rng = torch.Generator().manual_seed(1)
    return torch.randn(B, T, D, dtype=F64, generator=rng), torch.rand(B, T, generator=rng) < start_rate


CELLS = {
    "gru": (GRU, {"hidden_size": 5}),
    "lstm": (LSTM, {"hidden_size": 5}),
    "slstm": (SLSTM, {"hidden_size": 6, "num_heads": 2}),
    "slstm_heads": (SLSTM, {"hidden_size": 6, "num_heads": 3, "inputs": "heads", "norm": "heads"}),
    "rwkv7": (RWKV7, {"hidden_size": 6, "num_heads": 2, "rank": 3}),
    "nbrc": (BRC, {"hidden_size": 5}),
    "brc": (BRC, {"hidden_size": 5, "recurrent": "vector"}),
    "rtu_nonlinear": (NonlinearRTU, {"hidden_size": 6, "activation": "tanh"}),
    "elman": (Elman, {"hidden_size": 5}),
    "indrnn": (IndRNN, {"hidden_size": 5}),
    "indrnn_tanh": (IndRNN, {"hidden_size": 5, "num_layers": 3, "activation": "tanh"}),
    "lmu": (LMU, {"hidden_size": 5, "memory_size": 4, "theta": 8}),
    "dnc": (DNC, {"hidden_size": 5, "num_cells": 6, "cell_size": 3, "read_heads": 2}),
    "dnc_one_head": (DNC, {"hidden_size": 3, "num_cells": 1, "cell_size": 1, "read_heads": 1}),
}


@pytest.mark.parametrize("name", CELLS)
def test_a_fast_sequence_equals_the_loop_over_its_own_cell(name):
    """Values, final states and gradients (inputs, first states, weights)."""
    cell, sizes = CELLS[name]
    torch.manual_seed(0)
    fast = cell(4, **sizes).double()
    plain = type("Plain", (cell,), {"sequence": RecurrentCell.sequence})(4, **sizes).double()
    with torch.no_grad():
        for parameter in fast.parameters():
            parameter.copy_(2 * torch.randn_like(parameter) / parameter.shape[-1] ** 0.5)
    plain.load_state_dict(fast.state_dict())
    x, start = random_stream(3, 30, 4, 0.2)
    leaves, spec = tree_flatten(tree_map(torch.detach, plain(x, plain.initial_state(3), start)[1]))
    results = []
    for memory in (fast, plain):
        inputs = [v.clone().requires_grad_() for v in (x, *leaves)]
        y, final = memory(inputs[0], tree_unflatten(inputs[1:], spec), start)
        outputs = [y, *tree_flatten(final)[0]]
        loss = sum((o * torch.cos(torch.arange(o.numel(), dtype=F64)).view(o.shape)).sum() for o in outputs)
        results.append([*outputs, *torch.autograd.grad(loss, [*inputs, *memory.parameters()])])
    for ours, truth in zip(*results, strict=True):
        assert (ours - truth).abs().max() <= 1e-11 * max(1, truth.abs().max()), name


def test_gradients_of_a_wide_bistable_cell_do_not_grow_where_it_reads_a_narrow_input():
    """Before it learns. With the first weights of the released code they grow without bound, so that they overflow."""
    torch.manual_seed(0)
    influence = {}
    for init in ("fan_in", "glorot"):
        memory, x = BRC(6, 256, init=init), torch.randn(1, 500, 6, requires_grad=True)
        y, _ = memory(x, memory.initial_state(1), torch.zeros(1, 500, dtype=torch.bool))
        (found,) = torch.autograd.grad(y[:, -1].sum(), x)
        influence[init] = found[0, 0].norm()
    assert influence["fan_in"] < 1e-9
    assert influence["glorot"] > 1e3


@pytest.mark.parametrize("cell", [GRU, LSTM])
def test_states_of_another_type_never_reach_the_kernel(cell):
    memory = cell(4, 5)
    x, start = random_stream(3, 20, 4, 0.0)
    wide = tree_map(lambda s: s.double(), memory.initial_state(3))
    with pytest.raises(RuntimeError, match="dtype"):
        memory(x.float(), wide, start)
    with torch.autocast("cpu"):
        y, _ = memory(x.float(), memory.initial_state(3), start)
    torch.testing.assert_close(y.float(), memory(x.float(), memory.initial_state(3), start)[0], atol=0.02, rtol=0.1)


def test_first_states_of_other_episodes_never_reach_the_kernel():
    U, sizes = torch.zeros(15, 5), torch.tensor([3, 2])
    with pytest.raises(ValueError, match=r"expected inputs \[5, 15\] and first states \[3, 5\], got \[5, 15\] and"):
        cells.gru(torch.zeros(5, 15), torch.zeros(2, 5), U, torch.zeros(15), sizes)
    with pytest.raises(ValueError, match="expected inputs"):
        cells.lstm(torch.zeros(4, 15), torch.zeros(3, 5), torch.zeros(3, 5), U, sizes)


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_small_states_are_as_exact_as_large_ones(dtype):
    """tanh of the kernel, by an LSTM whose output gate is open: relative to torch's."""
    c = torch.cat([torch.logspace(-12, 1, 200, dtype=F64), -torch.logspace(-12, 1, 200, dtype=F64)]).to(dtype)
    n = len(c)
    wx = torch.full((1, 4 * n), 100.0, dtype=dtype)
    wx[:, :n] = -100  # the input gate is shut: c' = c
    h, _ = cells.lstm(
        wx, torch.zeros(1, n, dtype=dtype), c[None], torch.zeros(4 * n, n, dtype=dtype), torch.tensor([1])
    )
    torch.testing.assert_close(h[0], c.tanh(), rtol=5e-6 if dtype == torch.float32 else 1e-13, atol=0)


def test_elman_is_torchs_rnn():
    memory = Elman(4, 5).double()
    x, _ = random_stream(3, 20, 4, 0)
    h0 = torch.randn(3, 5, dtype=F64)
    y, final = memory(x, h0, torch.zeros(3, 20, dtype=torch.bool))
    truth, last = memory.rnn(x.transpose(0, 1), h0[None])
    torch.testing.assert_close(y, truth.transpose(0, 1))
    torch.testing.assert_close(final, last[0])


@pytest.mark.recorded("indrnn", has="pub.u")
def test_indrnn_clamps_its_weights_in_place_and_keeps_their_gradients(recording):
    truth = recording
    memory = IndRNN(truth.meta["d"], truth.meta["H"], max_length=truth.meta["max_len"]).double()
    unclamped = {f"u_{l}": truth.arrays[f"pub.u{l}_before_clamp"] for l in range(2)}
    memory.load_symbols(truth.group("w") | unclamped)
    y, _, gradients = run(memory, truth, F64)
    assert_near(y, truth.arrays["y"], 1e-11, "y")
    assert_gradients(gradients, truth.group("g"), 1e-10, "g")
    at_the_bound = 0
    for l in range(2):
        u = memory.symbols()[f"u_{l}"]
        assert torch.equal(u, truth.arrays[f"w.u_{l}"])
        at_the_bound += int((gradients[f"u_{l}"][u.abs() == memory.u_max] != 0).sum())
    assert at_the_bound > 0


@pytest.mark.recorded("init_tables", has="lmu.")
def test_lmu_matrices_are_the_recorded_ones(recording):
    for key, truth in recording.arrays.items():
        if found := re.fullmatch(r"lmu\.order(\d+)_theta(\d+)\.([AB])", key):
            A, B = legendre_delay(int(found[1]), int(found[2]))
            assert_near(A if found[3] == "A" else B, truth, 1e-13, key)


@pytest.mark.recorded("lmu", has="const")
def test_lmu_constants_are_exact_in_double_and_rounded_as_published_on_request(recording):
    truth = recording
    memory = lmu(truth).float().double()
    published = LMU(truth.meta["d"], truth.meta["H"], truth.meta["m"], truth.meta["theta"], matrices="float32").double()
    for name in "AB":
        assert_near(getattr(memory, name), truth.arrays[f"const.{name}"], 1e-14, name)
        assert torch.equal(getattr(published, name), truth.arrays[f"pub.{name}_f32"].double())
    assert not {"A", "B"} & memory.state_dict().keys()


def test_lmu_starts_without_feedback_from_its_memory():
    memory = LMU(4, 5)
    assert (memory.e_m == 0).all()
    assert memory.e_x.abs().max() <= (3 / 4) ** 0.5


def test_dnc_takes_equally_used_cells_in_order_whatever_rounding_says():
    a = allocation(torch.tensor([[0.3, 0.3 - 1e-9, 0.3 + 1e-9]], dtype=F64))
    torch.testing.assert_close(a, torch.tensor([[0.7, 0.7 * 0.3, 0.7 * 0.09]], dtype=F64))


def test_dnc_is_the_papers_equations_cell_by_cell():
    torch.manual_seed(0)
    H, N, W, R, T = 5, 6, 3, 2, 12
    memory = DNC(4, H, N, W, R).double()
    with torch.no_grad():
        for parameter in memory.parameters():
            parameter.mul_(3)
    x, _ = random_stream(1, T, 4, 0)
    y, final = memory(x, memory.initial_state(1), torch.zeros(1, T, dtype=torch.bool))
    expected, state = slow_dnc(memory, x[0].tolist(), H, N, W, R)
    torch.testing.assert_close(y[0].tolist(), expected, rtol=1e-10, atol=1e-10)
    for name, value in state.items():
        torch.testing.assert_close(final[name][0].tolist(), value, rtol=1e-10, atol=1e-10)


def slow_dnc(memory: DNC, inputs: list[list[float]], H: int, N: int, W: int, R: int):
    """On plain numbers, every index written out; cells and heads in Python lists."""

    def sigmoid(v):
        return 1 / (1 + exp(-v))

    def affine(linear, v):
        bias = [0.0] * len(linear.weight) if linear.bias is None else linear.bias.tolist()
        return [b + sum(w * e for w, e in zip(row, v, strict=True)) for row, b in zip(linear.weight.tolist(), bias)]  # noqa: B905

    def softmax(v):
        return [exp(e) / sum(map(exp, v)) for e in v]

    def content(M, k, beta):
        norm = lambda v: sqrt(sum(e * e for e in v) + 1e-6)  # noqa: E731
        return softmax([beta * sum(a * b for a, b in zip(k, c, strict=True)) / norm(k) / norm(c) for c in M])

    cells, heads = range(N), range(R)
    M = [[0.0] * W for _ in cells]
    L = [[0.0] * N for _ in cells]
    p, u, w_w = ([0.0] * N for _ in range(3))
    w_r = [[0.0] * N for _ in heads]
    h, s, r = [0.0] * H, [0.0] * H, [[0.0] * W for _ in heads]
    outputs = []
    for x in inputs:
        z = h + [e for read in r for e in read]
        pre = [a + b for a, b in zip(affine(memory.W_x, x), affine(memory.U, z), strict=True)]
        i, f, g, o = (pre[n * H : (n + 1) * H] for n in range(4))
        s = [sigmoid(f[n]) * s[n] + sigmoid(i[n]) * tanh(g[n]) for n in range(H)]
        h = [sigmoid(o[n]) * tanh(s[n]) for n in range(H)]
        xi = iter(affine(memory.W_xi, h))
        keys = [[next(xi) for _ in range(W)] for _ in range(1 + R)]
        beta = [1 + log(1 + exp(next(xi))) for _ in range(1 + R)]
        free = [sigmoid(next(xi)) for _ in heads]
        g_a, g_w = sigmoid(next(xi)), sigmoid(next(xi))
        erase = [sigmoid(next(xi)) for _ in range(W)]
        write = [next(xi) for _ in range(W)]
        modes = [[next(xi) for _ in heads] for _ in range(3)]
        modes = [softmax([mode[n] for mode in modes]) for n in heads]

        for c in cells:
            u[c] = u[c] + w_w[c] - u[c] * w_w[c]
            for n in heads:
                u[c] *= 1 - free[n] * w_r[n][c]
        a, left = [0.0] * N, 1.0
        for c in sorted(cells, key=lambda c: u[c] + TIE * c):
            a[c], left = (1 - u[c]) * left, left * u[c]
        lookup = content(M, keys[0], beta[0])
        w_w = [g_w * (g_a * a[c] + (1 - g_a) * lookup[c]) for c in cells]
        M = [[M[c][e] * (1 - w_w[c] * erase[e]) + w_w[c] * write[e] for e in range(W)] for c in cells]
        L = [[0.0 if a == b else (1 - w_w[a] - w_w[b]) * L[a][b] + w_w[a] * p[b] for b in cells] for a in cells]
        p = [(1 - sum(w_w)) * p[c] + w_w[c] for c in cells]
        for n in heads:
            lookup = content(M, keys[1 + n], beta[1 + n])
            forward = [sum(L[c][b] * w_r[n][b] for b in cells) for c in cells]
            backward = [sum(L[b][c] * w_r[n][b] for b in cells) for c in cells]
            w_r[n] = [modes[n][0] * backward[c] + modes[n][1] * lookup[c] + modes[n][2] * forward[c] for c in cells]
        r = [[sum(w_r[n][c] * M[c][e] for c in cells) for e in range(W)] for n in heads]
        outputs.append(affine(memory.W_y, h + [e for read in r for e in read]))
    return outputs, {"s": s, "M": M, "L": L, "p": p, "u": u, "w_w": w_w, "w_r": w_r}


@pytest.mark.recorded("lprnn", has="unblocked")
def test_lprnn_without_blocking_has_the_recorded_gradients(recording):
    truth = recording
    memory = prepared(lambda r: lprnn(r, block_gradients=False), truth, F64)
    y, _, gradients = run(memory, truth, F64)
    assert_near(y, truth.arrays["y"], 1e-11, "y")
    assert_gradients(gradients, truth.group("unblocked.g"), 1e-10, "unblocked.g")


@pytest.mark.parametrize("filters", ["chain", "parallel"])
@pytest.mark.recorded("init_tables", has="lprnn.")
def test_lprnn_impulse_responses_are_the_recorded_ones(filters, recording):
    tables = recording
    expected = tables.arrays[f"lprnn.impulse_{filters}"]
    K, T = expected.shape
    memory = LPRNN(1, 1, K, pool_size=1, base=tables.meta["lprnn_base"], filters=filters).double()
    impulse = torch.zeros(1, T, 1, dtype=F64)
    impulse[0, 0] = 1
    pools = memory.pools(impulse, memory.initial_state(1), torch.zeros(1, T, dtype=torch.bool))
    assert_near(pools[0, :, :, 0].T.detach(), expected, 1e-14, filters)
    assert_near(memory.alpha, tables.arrays["lprnn.alpha"], 1e-15, "alpha")


@pytest.mark.parametrize(
    ("D", "expected"), [(2, [[1, 0, 0], [0, 1, 0]]), (4, [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0]])]
)
def test_lprnn_projects_by_a_padded_identity_at_first(D, expected):
    assert LPRNN(3, pool_size=D).I_prime.tolist() == expected


def test_lprnn_refuses_what_it_cannot_filter():
    with pytest.raises(UserError, match=r"pool_size=5.*width 3"):
        LPRNN(3, pool_size=5, filters="parallel")


def first_weights(cls, **settings):
    torch.manual_seed(0)
    return cls(6, 8, **settings).rnn.all_weights[0]


@pytest.mark.parametrize("cls", [GRU, LSTM, Elman])
def test_first_weights_of_cells_are_those_of_torch_or_orthogonal(cls):
    torch.manual_seed(0)
    plain = {GRU: torch.nn.GRU, LSTM: torch.nn.LSTM, Elman: torch.nn.RNN}[cls](6, 8).all_weights[0]
    assert all(map(torch.equal, first_weights(cls), plain))
    for init in ("orthogonal", "orthogonal_gates"):
        W, U, b, c = first_weights(cls, init=init)
        for weight in W, U:
            for part in weight.split(8) if init == "orthogonal_gates" else [weight]:
                gram = part.T @ part if part.shape[0] >= part.shape[1] else part @ part.T
                torch.testing.assert_close(gram, torch.eye(len(gram)), atol=1e-5, rtol=0)
        assert not b.any()
        assert not c.any()


def test_first_weights_of_an_lstm_of_sonnet_and_its_forget_bias():
    _, _, b, c = first_weights(LSTM, init="sonnet")
    assert b.view(4, 8).tolist() == [[0.0] * 8, [1.0] * 8, [0.0] * 8, [0.0] * 8]
    assert not c.any()
    torch.manual_seed(0)
    W, U, _, _ = LSTM(64, 192, init="sonnet").rnn.all_weights[0]
    for weight in W, U:
        assert weight.abs().max() <= 2 / 16
        assert float(weight.detach().std()) == pytest.approx(0.88 / 16, rel=0.02), (
            "a normal that is cut at two spreads has 0.88 of one"
        )
    shifted, plain = first_weights(LSTM, forget_bias=1.0), first_weights(LSTM)
    torch.testing.assert_close(shifted[2] - plain[2], torch.tensor([0.0, 1.0, 0.0, 0.0]).repeat_interleave(8))
    assert not first_weights(LSTM, init="sonnet", forget_bias=0.0)[2].any()
