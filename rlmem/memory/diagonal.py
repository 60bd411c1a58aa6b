"""Recurrent networks in which a unit sees itself alone, or a pair of units itself: IndRNN and recurrent trace units."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from rlmem.core.errors import UserError
from rlmem.core.types import Layers, PositiveInt, State
from rlmem.memory.base import RecurrentCell
from rlmem.memory.recurrence import LinearRecurrence
from rlmem.scan import Engine, Linear
from rlmem.scan.cells import SimpleSequence, over_steps
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


class IndRNN(RecurrentCell):
    """Independently Recurrent Neural Network (Li et al. 2018, arXiv:1803.04831).

        h_l' = phi(W_l h_{l-1}' + bi_l + u_l * h_l + b_l),   h_{-1}' = x,   y = the last layer's h'

    A unit sees only its own past: u_l [H] is a vector, and time is an elementwise loop, layer after layer, with a
    hand-written backward (`rlmem.scan.cells`). |u| <= 2^(1/max_length) is kept by clamping the weights in
    place before they are used, so a weight at the bound still has its gradient. Two biases per layer, and
    u, b ~ U(0, 1), as published.
    State: h [B, L, H].

    hidden_size: H, width of every layer
    num_layers: L
    activation: relu, as the code published with POPGym computes, or tanh, which its configuration names
    max_length: slots over which an activation may at most double by its own weight
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: PositiveInt = 256,
        num_layers: Layers = 2,
        activation: Literal["relu", "tanh"] = "relu",
        max_length: PositiveInt = 1024,
    ):
        super().__init__(input_size, hidden_size)
        self.activation, self.u_max = activation, 2 ** (1 / max_length)
        self.state_shape = (num_layers, hidden_size)
        self.W = nn.ModuleList(Linear(hidden_size if l else input_size, hidden_size) for l in range(num_layers))
        self.u = nn.Parameter(torch.rand(num_layers, hidden_size))
        self.b = nn.Parameter(torch.rand(num_layers, hidden_size))

    def symbols(self, of: Callable[[Tensor], Tensor] = lambda parameter: parameter) -> dict[str, Tensor]:
        weights: dict[str, Tensor] = {}
        for l, (layer, u, b) in enumerate(zip(self.W, of(self.u), of(self.b), strict=True)):
            W, bi = map(of, layer.parameters())
            weights |= {f"W_{l}": W, f"bi_{l}": bi, f"u_{l}": u, f"b_{l}": b}
        return weights

    def cell(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        phi = ACTIVATIONS[self.activation]
        layers = []
        for W, u, b, h in zip(self.W, self._clamped_u(), self.b, state.unbind(1), strict=True):
            x = phi(W(x) + u * h + b)
            layers.append(x)
        return x, torch.stack(layers, 1)

    def sequence(self, packed: PackedSequence, state: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
        x, sizes, final = packed.data, packed.batch_sizes.tolist(), []
        for W, u, b, h in zip(self.W, self._clamped_u(), self.b, state.unbind(1), strict=True):
            x = SimpleSequence.apply(W(x) + b, h, u, sizes, self.activation, None)
            final.append(x[last])
        return x, torch.stack(final, 1)

    def _clamped_u(self) -> Tensor:
        if torch.compiler.is_compiling():  # nothing may change in place; the weights stay as they are
            return self.u.clamp(-self.u_max, self.u_max)
        self.u.data.clamp_(-self.u_max, self.u_max)  # `data`: a graph built earlier does not count it as a change
        return self.u
