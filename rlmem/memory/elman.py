"""Elman's simple recurrent network."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rlmem.core.types import PositiveInt
from rlmem.memory.base import RecurrentCell
from rlmem.memory.gru import Init, TorchCell
from rlmem.scan.cells import SimpleSequence


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
        W, _, b, c = self.rnn.all_weights[0]
        return F.linear(x, W, b + c)

    def advance(self, p: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.tanh(p + F.linear(state, self.rnn.all_weights[0][1]))
        return h, h

    def cell(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        W, U, b, c = self.rnn.all_weights[0]
        h = torch.tanh(F.linear(x, W, b) + F.linear(state, U, c))
        return h, h

    step = RecurrentCell.step

    def runs(self, *tensors: Tensor) -> bool:
        return True

    def states(self, p: Tensor, state: Tensor, sizes: Tensor) -> Tensor:
        return SimpleSequence.apply(p, state, self.rnn.all_weights[0][1], sizes.tolist(), "tanh", None)
