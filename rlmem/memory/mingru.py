"""Minimal GRU."""

import torch
from torch import Tensor

from rlmem.memory.base import LinearRecurrence
from rlmem.scan import Engine, Linear
from rlmem.types import PositiveInt


class MinGRU(LinearRecurrence):
    """Minimal GRU (Feng et al. 2024, arXiv:2410.01201, section 3.1): a GRU whose gate does not see its state.

        h_t = (1 - z_t) * h_{t-1} + z_t * (W_h x_t + b_h),   z_t = sigmoid(W_z x_t + b_z),   y_t = h_t

    The plain form, not the log-space one, which keeps h positive. State: h [B, H].

    hidden_size: H, width of state and output
    """

    def __init__(self, input_size: int, hidden_size: PositiveInt = 256, engine: Engine = "auto"):
        super().__init__(input_size, hidden_size, engine)
        self.state_shape = (hidden_size,)
        self.W_z, self.W_h = Linear(input_size, hidden_size), Linear(input_size, hidden_size)

    def gates(self, p: Tensor) -> tuple[Tensor, Tensor]:
        z = self.W_z(p)
        return torch.sigmoid(-z), torch.sigmoid(z) * self.W_h(p)

    def read(self, h: Tensor, p: Tensor) -> Tensor:
        return h
