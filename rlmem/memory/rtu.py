"""Recurrent trace units."""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from rlmem.core.errors import UserError
from rlmem.core.types import PositiveInt, State
from rlmem.memory.base import RecurrentCell
from rlmem.memory.recurrence import LinearRecurrence
from rlmem.scan import Engine
from rlmem.scan.cells import over_steps
from rlmem.scan.native import linear

Pair = tuple[Tensor, Tensor]
CUT = 0.8796
"""What a normal distribution's spread is multiplied by where it is cut at two spreads."""
ACTIVATIONS = {"relu": torch.relu, "tanh": torch.tanh}


class _Rotation(nn.Module):
    """The weights of a trace unit: lambda [n], what scales inputs, and the maps of the input."""

    W_1: nn.Parameter
    W_2: nn.Parameter

    def _make(self, input_size: int, hidden_size: int) -> None:
        if hidden_size % 2:
            raise UserError(f"hidden_size={hidden_size}: expected an even number, half of it for each part")
        n = hidden_size // 2
        radius, angle = torch.rand(2, n, dtype=torch.float64).clamp(min=1e-12)
        first = (-0.5 * radius.log()).log(), (6.28 * angle).log()
        self.nu_log, self.theta_log = (nn.Parameter(w.to(torch.get_default_dtype())) for w in first)
        for name in ("W_1", "W_2"):
            weight = torch.empty(n, input_size)
            std = input_size**-0.5 / CUT
            nn.init.trunc_normal_(weight, std=std, a=-2 * std, b=2 * std)
            self.register_parameter(name, nn.Parameter(weight))

    def _rotation(self) -> tuple[Tensor, Tensor, Tensor]:
        """Radius, angle and the scale of inputs, [n] each."""
        nu = self.nu_log.exp()
        return (-nu).exp(), self.theta_log.exp(), (-torch.expm1(-2 * nu)).sqrt() + 1e-8


class RTU(_Rotation, LinearRecurrence):
    """Linear recurrent trace unit (Elelimy et al. 2024, arXiv:2409.01449).

        c_t = lambda * c_{t-1} + gamma * (W_1 x_t + i W_2 x_t),   y_t = relu([Re c_t, Im c_t])
        lambda = exp(-exp(nu_log) + i exp(theta_log)),   gamma = sqrt(1 - |lambda|^2) + 1e-8

    gamma follows lambda, in which it differs from the LRU. Gradients are those through time, not the paper's by
    real-time recurrent learning. State: c [B, H / 2] complex.

    hidden_size: H, width of the output, even
    """

    complex_state = True

    def __init__(self, input_size: int, hidden_size: PositiveInt = 256, engine: Engine = "auto"):
        super().__init__(input_size, hidden_size, engine)
        self._make(input_size, hidden_size)
        self.state_shape = (hidden_size // 2,)

    def gates(self, p: Tensor) -> tuple[Tensor, Tensor]:
        radius, angle, scale = self._rotation()
        drive = torch.complex(linear(p, self.W_1), linear(p, self.W_2))
        return torch.polar(radius, angle), scale * drive

    def read(self, h: Tensor, p: Tensor) -> Tensor:
        return torch.relu(torch.cat([h.real, h.imag], -1))


class NonlinearRTU(_Rotation, RecurrentCell):
    """Nonlinear recurrent trace unit (Elelimy et al. 2024, arXiv:2409.01449): `RTU` with an activation of both parts
    inside the recurrence, y_t = [Re c_t, Im c_t]. State: the two parts, [B, H / 2] each.

    hidden_size: H, width of the output, even
    activation: relu or tanh
    """

    def __init__(self, input_size: int, hidden_size: PositiveInt = 256, activation: Literal["relu", "tanh"] = "relu"):
        super().__init__(input_size, hidden_size)
        self._make(input_size, hidden_size)
        self.activation, self.state_shape = activation, ((hidden_size // 2,), (hidden_size // 2,))

    def cell(self, x: Tensor, state: Pair) -> tuple[Tensor, Pair]:
        return self._cell(linear(x, torch.cat([self.W_1, self.W_2])), state, self._rotation())

    def sequence(self, packed: PackedSequence, state: State, last: Tensor) -> tuple[Tensor, State]:
        drive = linear(packed.data, torch.cat([self.W_1, self.W_2]))
        sizes, rotation = packed.batch_sizes.tolist(), self._rotation()
        return over_steps(lambda d, c: self._cell(d, c, rotation), drive.split(sizes), sizes, state)

    def _cell(self, drive: Tensor, state: Pair, rotation: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Pair]:
        (radius, angle, scale), (c1, c2) = rotation, state
        real, imaginary, phi = radius * angle.cos(), radius * angle.sin(), ACTIVATIONS[self.activation]
        d1, d2 = (scale * part for part in drive.chunk(2, -1))
        after = phi(real * c1 - imaginary * c2 + d1), phi(real * c2 + imaginary * c1 + d2)
        return torch.cat(after, -1), after
