"""The memoryless control with a clock."""

import torch
from torch import Tensor, nn

from rlmem.memory.mlp import MLP
from rlmem.memory.positions import ages, counting, sinusoid
from rlmem.types import PositiveFloat, PositiveInt


class PositionalMLP(MLP):
    """Two hidden layers on the present slot and its age: what counting time alone can do (POPGym's PosMLP baseline,
    Morad et al. 2023, arXiv:2303.01859).

        y_t = MLP((1 - s) x_t + s p_age),   s = sigmoid(w)

    p is the sine encoding of the slots since the episode's start, as wide as x. w is zero at first, so s = 1/2.
    Published: s itself is the weight, clamped to [0, 1], and x is mixed before the encoder's second layer.
    State: age [B], slots read since the episode's start.

    hidden_size: H, width of both layers
    base: of the longest wavelength, 2 pi base slots (published: the longest episode, 1024)
    """

    def __init__(self, input_size: int, hidden_size: PositiveInt = 256, base: PositiveFloat = 1024.0):
        super().__init__(input_size, hidden_size)
        self.base = base
        self.w = nn.Parameter(torch.zeros(()))

    def initial_state(self, batch_size: int) -> Tensor:
        like = self._like_parameters()
        return like.new_zeros(batch_size, dtype=counting(like.dtype))

    def forward(self, x: Tensor, state: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
        age = ages(state, start)
        x = torch.lerp(x, sinusoid(age, self.input_size, self.base).to(x.dtype), torch.sigmoid(self.w))
        return self.layers(x), age[:, -1] + 1
