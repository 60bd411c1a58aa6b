"""Scalar LSTM."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence

from rlmem.core.types import PositiveInt
from rlmem.memory.base import RecurrentCell
from rlmem.memory.blocks import head_width
from rlmem.scan import Linear, cells, native
from rlmem.scan.cells import over_steps
from rlmem.scan.native import linear, of_weights

State = dict[str, Tensor]
GATES = "ifzo"
FORGET_BIAS = (5.0, 12.0)
"""First b_f: the first unit of a head has the first number, the last unit that less the second (released code)."""


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
        h, state = over_steps(self._cell, drive.split(sizes), sizes, state)
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
