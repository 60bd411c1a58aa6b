"""Independently Recurrent Neural Network."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from rlmem.core.types import Layers, PositiveInt
from rlmem.memory.base import RecurrentCell
from rlmem.scan import Linear
from rlmem.scan.cells import SimpleSequence


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
        for l, (linear, u, b) in enumerate(zip(self.W, of(self.u), of(self.b), strict=True)):
            W, bi = map(of, linear.parameters())
            weights |= {f"W_{l}": W, f"bi_{l}": bi, f"u_{l}": u, f"b_{l}": b}
        return weights

    def cell(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        phi = {"relu": torch.relu, "tanh": torch.tanh}[self.activation]
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
