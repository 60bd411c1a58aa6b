"""Bistable recurrent cells."""

from math import sqrt
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from rlmem.memory.base import RecurrentCell, ZeroState
from rlmem.memory.packed import SharedWeight, over_steps
from rlmem.scan import cells, native
from rlmem.scan.native import linear
from rlmem.types import PositiveInt, State


class BRC(ZeroState, RecurrentCell):
    """Bistable recurrent cell (Vecoven et al. 2020, arXiv:2006.05252): where a > 1, a unit has two states that it keeps
    for as long as its input does not force it out.

        a = 1 + tanh(U_r x + W_r h + b_r),   c = sigmoid(U_z x + W_z h + b_z)
        h' = c * h + (1 - c) * tanh(U_h x + a * h),   y = h'

    State: h [B, H]. A kernel of the native engine on the CPU (`rlmem.scan.cells`), elsewhere a loop over slots.

    hidden_size: H, width of state and output
    recurrent: "matrix", W is [H, H] and units modulate each other (nBRC); "vector", W is [H] and each sees itself (BRC)
    init: first U, uniform. "fan_in" has a variance of 1 / D, so that what comes in has the size of x whatever D is;
        "glorot", as in the released code, has 2 / (D + H). Where x is far narrower than the state, as 6 beside 256,
        that drives the state so weakly that its gradients grow without bound in nBRC.
    """

    U_r: nn.Parameter
    U_z: nn.Parameter
    U_h: nn.Parameter
    W_r: nn.Parameter
    W_z: nn.Parameter
    b_r: nn.Parameter
    b_z: nn.Parameter

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
        for name in ("U_r", "U_z", "U_h"):
            self.register_parameter(name, nn.Parameter(torch.empty(H, input_size).uniform_(-bound, bound)))
        for gate in ("r", "z"):
            first = torch.ones(H) if recurrent == "vector" else nn.init.xavier_uniform_(torch.empty(H, H))
            self.register_parameter(f"W_{gate}", nn.Parameter(first))
            self.register_parameter(f"b_{gate}", nn.Parameter(torch.zeros(H)))

    def cell(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        drive, candidate = self._drive(x)
        return self._cell(drive + self._modulated(state), candidate, state)

    def sequence(self, packed: PackedSequence, state: State, last: Tensor) -> tuple[Tensor, State]:
        sizes = packed.batch_sizes.tolist()
        drive, candidate = self._drive(packed.data)
        tensors = drive, candidate, state, torch.cat([self.W_r, self.W_z])
        if native.takes(*tensors):
            h = cells.brc(*tensors, packed.batch_sizes)
            return h, h[last]
        if self.recurrent == "vector":
            inputs = zip(drive.split(sizes), candidate.split(sizes), strict=True)
            return over_steps(lambda x, h: self._cell(x[0] + self._modulated(h), x[1], h), inputs, sizes, state)
        shared = SharedWeight(tensors[-1], drive, sizes)
        return over_steps(lambda x, h: self._cell(shared.product(h), x, h), candidate.split(sizes), sizes, state)

    def _drive(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """What x [n, D] gives to both gates [n, 2 H], and to the candidate [n, H]."""
        gates = linear(x, torch.cat([self.U_r, self.U_z]), torch.cat([self.b_r, self.b_z]))
        return gates, linear(x, self.U_h)

    def _modulated(self, h: Tensor) -> Tensor:
        """What the state h [n, H] gives to both gates [n, 2 H]."""
        if self.recurrent == "vector":
            return torch.cat([self.W_r * h, self.W_z * h], -1)
        return linear(h, torch.cat([self.W_r, self.W_z]))

    def _cell(self, gates: Tensor, candidate: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        r, z = gates.chunk(2, -1)
        c = torch.sigmoid(z)
        h = c * h + (1 - c) * torch.tanh(candidate + (1 + torch.tanh(r)) * h)
        return h, h
