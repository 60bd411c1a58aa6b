"""The cells of xLSTM: matrix LSTM and scalar LSTM."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence

from rlmem.core.types import NonNegativeFloat, PositiveInt, where_start
from rlmem.memory.base import Memory, RecurrentCell
from rlmem.memory.blocks import head_width
from rlmem.scan import Engine, Linear, cells, native, normalised_scan
from rlmem.scan.native import linear, of_weights

State = dict[str, Tensor]
GATES = "ifzo"
"""The gates of SLSTM, in the order of its weights."""
FORGET_BIAS = (5.0, 12.0)
"""First b_f of SLSTM: the first unit of a head has the first number, the last unit that less the second (released
code)."""


class MLSTM(Memory):
    """Matrix LSTM, the parallel cell of xLSTM (Beck et al. 2024, arXiv:2405.04517, eq. 19-27), one head.

        C_t = f_t C_{t-1} + i_t k_t v_t^T,   n_t = f_t n_{t-1} + i_t k_t,   i_t = exp(w_i x_t),  f_t = sigmoid(w_f x_t)
        y_t = W_out(o_t * C_t^T q_t / max(|n_t . q_t|, 1)),   o_t = sigmoid(W_o x_t),   no W_out where k = H
        q_t = W_q x_t,   k_t = W_k x_t / sqrt(k),   v_t = W_v x_t

    Kept as C exp(-m) and n exp(-m) with m_t = max(log f_t + m_{t-1}, log i_t, 0), the paper's stabiliser (eq. 15-17)
    with a floor of 0, so that no exponent is above zero; 1 then reads exp(-m_t). m has no gradient: nothing depends
    on it. Biases everywhere. Differs from the paper: only the cell, without the block around it.
    State: {"C" [B, k, k], keys by values, "n" [B, k], "m" [B]}. Cost: O(T (64 + k) k) as products of matrices, C never
    held per slot.

    hidden_size: H, width of the output
    key_size: k, width of keys, queries and values
    forget_bias: b_f at initialisation; 3 as in the authors' code, where heads range from 3 to 6 (0: f is about 1/2)
    recurrent: False treats every slot as an episode of its own, as in the release of Le et al. 2024 (arXiv:2410.10132)
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: PositiveInt = 256,
        key_size: PositiveInt = 24,
        forget_bias: NonNegativeFloat = 3.0,
        recurrent: bool = True,
        engine: Engine = "auto",
    ):
        super().__init__(input_size, hidden_size, engine)
        self.state_shape = {"C": (key_size, key_size), "n": (key_size,), "m": ()}
        self.key_size, self.recurrent = key_size, recurrent
        self.W_q, self.W_k, self.W_v = (Linear(input_size, key_size) for _ in range(3))
        self.w_i, self.w_f = Linear(input_size, 1), Linear(input_size, 1)
        self.W_o = Linear(input_size, key_size)
        self.W_out = Linear(key_size, hidden_size) if key_size != hidden_size else nn.Identity()
        nn.init.constant_(self.w_f.bias, forget_bias)

    def forward(self, x: Tensor, state: State, start: Tensor) -> tuple[Tensor, State]:
        if not self.recurrent:
            start = torch.ones_like(start)
        log_i, log_f = self.w_i(x).squeeze(-1), F.logsigmoid(self.w_f(x)).squeeze(-1)
        m = stabiliser(log_i, log_f, state["m"], start)
        m_before = torch.cat([state["m"].detach()[:, None], m[:, :-1]], 1)
        log_decay = log_f + torch.where(start, 0, m_before) - m
        k = self.W_k(x) * ((log_i - m).exp() / self.key_size**0.5)[..., None]
        q, v = self.W_q(x), self.W_v(x)
        Cq, nq, C, n = normalised_scan(q, k, v, state["C"], state["n"], start, log_decay, self.engine)
        h = torch.sigmoid(self.W_o(x)) * Cq / torch.maximum(nq.abs(), (-m).exp()[..., None])
        return self.W_out(h), {"C": C, "n": n, "m": m[:, -1]}


@torch.no_grad()
def stabiliser(log_i: Tensor, log_f: Tensor, m0: Tensor, start: Tensor) -> Tensor:
    """m_t = max(log f_t + (0 if start_t else m_{t-1}), log i_t, 0), all [B, T], with log f_t <= 0 and m0 [B].

    Computed by doubling the window of slots that m_t covers; log_f and start become the sum and the union over it.
    """
    m = log_i.clamp(min=0)
    first = torch.maximum(m[:, 0], log_f[:, 0] + where_start(start[:, 0], torch.zeros_like(m0), m0))
    m = torch.cat([first[:, None], m[:, 1:]], 1)
    window = 1
    while window < m.shape[1]:
        reached = torch.maximum(m[:, window:], log_f[:, window:] + m[:, :-window])
        reached = torch.where(start[:, window:], m[:, window:], reached)
        m = torch.cat([m[:, :window], reached], 1)
        log_f = torch.cat([log_f[:, :window], log_f[:, window:] + log_f[:, :-window]], 1)
        start = torch.cat([start[:, :window], start[:, window:] | start[:, :-window]], 1)
        window *= 2
    return m


class SLSTM(RecurrentCell):
    """Scalar LSTM, the recurrent cell of xLSTM (Beck et al. 2024, arXiv:2405.04517, eq. 8-17), in heads.

        i = exp(a_i),  f, o = sigmoid(a_f), sigmoid(a_o),  z = tanh(a_z),   a_q = W_q x + R_q h + b_q each
        c' = f * c + i * z,   n' = f * n + i,   h' = o * c' / n',   y = h'

    R_q consists of blocks on the heads of h. Kept as c exp(-m) and n exp(-m) with m' = max(log f + m, a_i), the paper's
    stabiliser, or a_i where nothing has been read; it has no gradient, since nothing depends on it. First weights are
    those of the released code. State: {h, c, n, m}, each [B, H].

    hidden_size: H, width of state and output
    num_heads: blocks of R_q; divides H
    inputs: "dense", W_q is [H, D]; or "heads", W_q consists of blocks on the heads of W_in x, or of x if D = H, as in
        the layer of the released code
    norm: "none"; or "heads", y = LN(h') per head, times 1 + gn_scale, as in the layer of the released code
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: PositiveInt = 256,
        num_heads: PositiveInt = 4,
        inputs: Literal["dense", "heads"] = "dense",
        norm: Literal["none", "heads"] = "none",
    ):
        super().__init__(input_size, hidden_size)
        self.inputs, self.norm, self.num_heads, width = inputs, norm, num_heads, head_width(hidden_size, num_heads)
        self.state_shape = dict.fromkeys("hcnm", (hidden_size,))
        read = input_size if inputs == "dense" else width
        self.W_in = (
            Linear(input_size, hidden_size) if inputs == "heads" and input_size != hidden_size else nn.Identity()
        )
        self.W = nn.Parameter(torch.randn(4, num_heads, width, read) * (2 / (5 * read)) ** 0.5)
        self.R = nn.Parameter(torch.zeros(4, num_heads, width, width))
        self.b = nn.Parameter(torch.zeros(4, num_heads, width))
        first, fall = FORGET_BIAS
        unit, block = torch.linspace(0, 1, width), torch.linspace(0, 1, num_heads)
        with torch.no_grad():
            self.b[1] = first - fall * unit ** (0.3 + 1.3 * block[:, None])
        if norm == "heads":
            self.gn_scale = nn.Parameter(torch.zeros(hidden_size))

    def symbols(self, of: Callable[[Tensor], Tensor] = lambda parameter: parameter) -> dict[str, Tensor]:
        weights = super().symbols(of)
        W, R, b = (weights.pop(name) for name in "WRb")
        for n, gate in enumerate(GATES):
            weights |= {f"W_{gate}": W[n].flatten(0, 1) if self.inputs == "dense" else W[n]}
            weights |= {f"R_{gate}": R[n], f"b_{gate}": b[n].flatten()}
        return weights

    @of_weights
    def by_head(self) -> tuple[Tensor, Tensor, Tensor]:
        """W, R and b [4, heads, width, ...] as [heads, 4 * width, ...]."""
        W, R, b = (weight.transpose(0, 1).flatten(1, 2) for weight in (self.W, self.R, self.b))
        return W, R, b

    @of_weights
    def panels(self) -> Tensor:
        """R as its kernel reads it."""
        return cells.of_heads(self.by_head()[1])

    def cell(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        h, state = self._cell(self._drive(x), state)
        return self._normed(h), state

    def sequence(self, packed: PackedSequence, state: State, last: Tensor) -> tuple[Tensor, State]:
        drive, R = self._drive(packed.data), self.by_head()[1]
        h, c, n, m = (state[name] for name in "hcnm")
        if native.takes(drive, h, c, n, m, R):
            states = cells.slstm(drive, h, c, n, m, R, packed.batch_sizes, self.panels)
            return self._normed(states[0]), {name: s[last] for name, s in zip("hcnm", states, strict=True)}
        sizes = packed.batch_sizes.tolist()
        h, state = cells.over_steps(self._cell, drive.split(sizes), sizes, state)
        return self._normed(h), state

    def _drive(self, x: Tensor) -> Tensor:
        """The input's part of the gates: i, f, z, o of the first head, then of the next, [n, 4 H]."""
        W, _, b = self.by_head()
        if self.inputs == "dense":
            return linear(x, W.flatten(0, 1), b.flatten())
        x = self.W_in(x).unflatten(1, (self.num_heads, -1)).transpose(0, 1)
        return (x @ W.mT).transpose(0, 1).flatten(1) + b.flatten()

    def _cell(self, drive: Tensor, state: State) -> tuple[Tensor, State]:
        by_heads = state["h"].unflatten(1, (self.num_heads, -1)).transpose(0, 1)
        a = drive + (by_heads @ self.by_head()[1].mT).transpose(0, 1).flatten(1)
        i, f, z, o = (part.flatten(1) for part in a.unflatten(1, (self.num_heads, 4, -1)).unbind(2))
        reached = (F.logsigmoid(f) + state["m"]).masked_fill(state["n"] == 0, -torch.inf)
        m = torch.maximum(i, reached).detach()
        i, f = (i - m).exp(), (reached - m).exp()
        c, n = f * state["c"] + i * torch.tanh(z), f * state["n"] + i
        h = torch.sigmoid(o) * c / n
        return h, {"h": h, "c": c, "n": n, "m": m}

    def _normed(self, h: Tensor) -> Tensor:
        if self.norm == "none":
            return h
        normed = F.layer_norm(h.unflatten(-1, (self.num_heads, -1)), (h.shape[-1] // self.num_heads,))
        return normed.flatten(-2) * (1 + self.gn_scale)
