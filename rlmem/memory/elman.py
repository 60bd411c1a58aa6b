"""Elman's simple recurrent network."""

import torch
from torch import Tensor, nn

from rlmem.core.types import PositiveInt
from rlmem.memory.gru import Init, TorchCell
from rlmem.scan.native import linear


class Elman(TorchCell):
    """Simple recurrent network (Elman 1990, Finding structure in time), in torch's form.

        h' = tanh(W x + b + U h + c)

    State: h [B, H].

    hidden_size: H, width of state and output
    init: first weights, see `rlmem.memory.gru.Init`
    """

    def __init__(self, input_size: int, hidden_size: PositiveInt = 256, init: Init = "torch"):
        super().__init__(nn.RNN(input_size, hidden_size), init)

    def project_slots(self, x: Tensor) -> Tensor:
        _, _, b, c = self.rnn.all_weights[0]
        return self.times_W(x, b + c)

    def advance(self, p: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.tanh(p + linear(state, self.rnn.all_weights[0][1], None, self.panels_of_U))
        return h, h
