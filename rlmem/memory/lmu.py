"""Legendre Memory Unit."""

from collections.abc import Callable
from math import sqrt
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence

from rlmem.core.types import PositiveFloat, PositiveInt
from rlmem.memory.base import RecurrentCell
from rlmem.scan.cells import SimpleSequence

State = dict[str, Tensor]


class LMU(RecurrentCell):
    """Legendre Memory Unit (Voelker et al. 2019, NeurIPS 32, eq. 4, 6 and 7).

        u = e_x x + e_h h + e_m m                  [1]
        m' = A m + B u                             [m]
        h' = tanh(W_x x + W_h h + W_m m'),  y = h'

    A and B are constant: m holds the Legendre coefficients of the last theta values of u. No biases; e_m starts at
    zero. State: {h [B, H], m [B, memory_size]}. Over a sequence the linear maps are multiplied out beforehand: one
    product of [h, m] per slot, then tanh on h alone.

    hidden_size: H, width of h and of the output
    memory_size: m, number of Legendre polynomials
    theta: slots, length of the remembered window
    matrices: exact: computed in float64, then cast to the parameters' type; float32: rounded to float32 before, as
        published
    """

    A: Tensor
    B: Tensor

    def __init__(
        self,
        input_size: int,
        hidden_size: PositiveInt = 256,
        memory_size: PositiveInt = 256,
        theta: PositiveFloat = 64,
        matrices: Literal["exact", "float32"] = "exact",
    ):
        super().__init__(input_size, hidden_size)
        self.state_shape = {"h": (hidden_size,), "m": (memory_size,)}
        self.e_x = nn.Parameter(_lecun_uniform(input_size))
        self.e_h = nn.Parameter(_lecun_uniform(hidden_size))
        self.e_m = nn.Parameter(torch.zeros(1, memory_size))
        empty = (torch.empty(hidden_size, width) for width in (input_size, hidden_size, memory_size))
        self.W_x, self.W_h, self.W_m = (nn.Parameter(nn.init.xavier_normal_(W)) for W in empty)
        exact = legendre_delay(memory_size, theta)
        self.constants = exact if matrices == "exact" else tuple(c.float().double() for c in exact)
        self._round_constants()

    def _round_constants(self) -> None:
        for name, constant in zip("AB", self.constants, strict=True):
            self.register_buffer(name, constant.to(self.e_x), persistent=False)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        """After a change of type or device, cast the constants anew, so that `double()` has them in full precision."""
        moved = super()._apply(fn, recurse)
        self._round_constants()
        return moved

    def cell(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        h, m = state["h"], state["m"]
        u = F.linear(x, self.e_x) + F.linear(h, self.e_h) + F.linear(m, self.e_m)
        m = F.linear(m, self.A) + F.linear(u, self.B)
        h = torch.tanh(F.linear(x, self.W_x) + F.linear(h, self.W_h) + F.linear(m, self.W_m))
        return h, {"h": h, "m": m}

    def sequence(self, packed: PackedSequence, state: State, last: Tensor) -> tuple[Tensor, State]:
        m_of_x, m_of_h, m_of_m = self.B @ self.e_x, self.B @ self.e_h, self.A + self.B @ self.e_m
        of_x = torch.cat([self.W_x + self.W_m @ m_of_x, m_of_x])
        of_h = torch.cat([self.W_h + self.W_m @ m_of_h, m_of_h])
        of_m = torch.cat([self.W_m @ m_of_m, m_of_m])
        H, sizes = self.output_size, packed.batch_sizes.tolist()
        before = torch.cat([state["h"], state["m"]], 1)
        of_hm = torch.cat([of_h, of_m], 1)
        hm = SimpleSequence.apply(F.linear(packed.data, of_x), before, of_hm, sizes, "tanh", H)
        final = hm[last]
        return hm[:, :H], {"h": final[:, :H], "m": final[:, H:]}


def legendre_delay(order: int, theta: float) -> tuple[Tensor, Tensor]:
    """A [order, order] and B [order, 1], float64, of one slot of the Legendre delay system with window `theta`.

    The zero-order hold of theta dm/dt = A m + B u with A_ij = (2i + 1) (-1 if i < j else (-1)^(i-j+1)) and
    B_i = (2i + 1) (-1)^i.
    """
    i = torch.arange(order, dtype=torch.float64)[:, None]
    alternating = 1 - 2 * (i % 2)
    above = i < i.T
    system = torch.zeros(order + 1, order + 1, dtype=torch.float64)
    system[:-1, :-1] = torch.where(above, -1.0, -alternating * alternating.T)
    system[:-1, -1:] = alternating
    held = torch.linalg.matrix_exp(system * torch.cat([2 * i + 1, i[:1]]) / theta)
    return held[:-1, :-1], held[:-1, -1:]


def _lecun_uniform(fan_in: int) -> Tensor:
    bound = sqrt(3 / fan_in)
    return torch.empty(1, fan_in).uniform_(-bound, bound)
