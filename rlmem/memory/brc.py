"""Bistable recurrent cells."""

from math import sqrt
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from rlmem.core.types import PositiveInt, State
from rlmem.memory.base import RecurrentCell
from rlmem.scan import cells, native


class BRC(RecurrentCell):
    """Bistable recurrent cell (Vecoven et al. 2020, arXiv:2006.05252): where a > 1, a unit has two states that it keeps
    for as long as its input does not force it out.

        a = 1 + tanh(U_r x + W_r h + b_r),   c = sigmoid(U_z x + W_z h + b_z)
        h' = c * h + (1 - c) * tanh(U_h x + a * h),   y = h'

    State: h [B, H].

    hidden_size: H, width of state and output
    recurrent: "matrix", W is [H, H] and units modulate each other (nBRC); "vector", W is [H] and each sees itself (BRC)
    init: first U, uniform. "fan_in" has a variance of 1 / D, so that what comes in has the size of x whatever D is;
        "glorot", as in the released code, has 2 / (D + H). Where x is far narrower than the state, as 6 beside 256,
        that drives the state so weakly that its gradients grow without bound in nBRC.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: PositiveInt = 256,
        recurrent: Literal["matrix", "vector"] = "matrix",
        init: Literal["fan_in", "glorot"] = "fan_in",
    ):
        super().__init__(input_size, hidden_size)
        self.recurrent, self.state_shape, H = recurrent, (hidden_size,), hidden_size
        bound = sqrt(3 / input_size if init == "fan_in" else 6 / (input_size + H))
        weights = (torch.empty(H, input_size).uniform_(-bound, bound) for _ in range(3))
        self.U_r, self.U_z, self.U_h = map(nn.Parameter, weights)
        self.W_r, self.b_r = self._recurrent(H), nn.Parameter(torch.zeros(H))
        self.W_z, self.b_z = self._recurrent(H), nn.Parameter(torch.zeros(H))

    def _recurrent(self, H: int) -> nn.Parameter:
        vector = self.recurrent == "vector"
        return nn.Parameter(torch.ones(H) if vector else nn.init.xavier_uniform_(torch.empty(H, H)))

    def cell(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        return self._cell(self._drive(x), state)

    def sequence(self, packed: PackedSequence, state: State, last: Tensor) -> tuple[Tensor, State]:
        drive, W = self._drive(packed.data), torch.cat([self.W_r, self.W_z])
        if native.takes(*drive, state, W):
            h = cells.brc(*drive, state, W, packed.batch_sizes)
            return h, h[last]
        sizes = packed.batch_sizes.tolist()
        steps = zip(*(part.split(sizes) for part in drive), strict=True)
        return cells.over_steps(self._cell, steps, sizes, state)

    def _drive(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The input's part of both gates [n, 2 H], and of the candidate [n, H]."""
        gates = native.linear(x, torch.cat([self.U_r, self.U_z]), torch.cat([self.b_r, self.b_z]))
        return gates, native.linear(x, self.U_h)

    def _cell(self, drive: tuple[Tensor, Tensor], h: Tensor) -> tuple[Tensor, Tensor]:
        gates, candidate = drive
        W = torch.cat([self.W_r, self.W_z])
        r, z = (gates + (W * h.repeat(1, 2) if self.recurrent == "vector" else native.linear(h, W))).chunk(2, -1)
        c = torch.sigmoid(z)
        h = c * h + (1 - c) * torch.tanh(candidate + (1 + torch.tanh(r)) * h)
        return h, h
