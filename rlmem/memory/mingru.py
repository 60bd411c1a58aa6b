"""Minimal GRU and minimal LSTM."""

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from rlmem.core.types import PositiveInt
from rlmem.memory.recurrence import LinearRecurrence
from rlmem.scan import Engine, Linear


class MinGRU(LinearRecurrence):
    """Minimal GRU (Feng et al. 2024, arXiv:2410.01201, section 3.1): a GRU whose gate does not see its state.

        h_t = (1 - z_t) * h_{t-1} + z_t * g(W_h x_t + b_h),   z_t = sigmoid(W_z x_t + b_z),   y_t = h_t

    State: h [B, H].

    hidden_size: H, width of state and output
    candidate: g, "linear", the identity; or "positive", u + 1/2 where u >= 0 and sigmoid(u) elsewhere, which the
        paper's log-space form asks for
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: PositiveInt = 256,
        candidate: Literal["linear", "positive"] = "linear",
        engine: Engine = "auto",
    ):
        super().__init__(input_size, hidden_size, engine)
        self.candidate, self.state_shape = candidate, (hidden_size,)
        self.W_z, self.W_h = Linear(input_size, hidden_size), Linear(input_size, hidden_size)

    def gates(self, p: Tensor) -> tuple[Tensor, Tensor]:
        z, candidate = self.W_z(p), self.W_h(p)
        if self.candidate == "positive":
            candidate = positive(candidate)
        return torch.sigmoid(-z), torch.sigmoid(z) * candidate

    def read(self, h: Tensor, p: Tensor) -> Tensor:
        return h


def positive(u: Tensor) -> Tensor:
    """u + 1/2 where u >= 0 and sigmoid(u) elsewhere (arXiv:2410.01201, appendix B)."""
    return torch.where(u >= 0, u + 0.5, torch.sigmoid(u))


class MinLSTM(LinearRecurrence):
    """Minimal LSTM (Feng et al. 2024, arXiv:2410.01201, section 3.2): an LSTM whose gates do not see its state, and sum
    to one.

        f, i = sigmoid(W x + b) each,   f' = f / (f + i),   i' = i / (f + i)
        h_t = f'_t * h_{t-1} + i'_t * g(W_h x_t + b_h),   y_t = h_t

    State: h [B, H].

    hidden_size: H, width of state and output
    candidate: g, "linear", the identity; or "positive", u + 1/2 where u >= 0 and sigmoid(u) elsewhere, which the
        paper's log-space form asks for
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: PositiveInt = 256,
        candidate: Literal["linear", "positive"] = "linear",
        engine: Engine = "auto",
    ):
        super().__init__(input_size, hidden_size, engine)
        self.candidate, self.state_shape = candidate, (hidden_size,)
        self.W_f, self.W_i, self.W_h = (Linear(input_size, hidden_size) for _ in range(3))

    def gates(self, p: Tensor) -> tuple[Tensor, Tensor]:
        odds = F.logsigmoid(self.W_f(p)) - F.logsigmoid(self.W_i(p))  # the logarithm of f / i
        candidate = self.W_h(p)
        if self.candidate == "positive":
            candidate = positive(candidate)
        return torch.sigmoid(odds), torch.sigmoid(-odds) * candidate

    def read(self, h: Tensor, p: Tensor) -> Tensor:
        return h
