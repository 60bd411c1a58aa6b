"""Gated Recurrent Unit."""

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from rlmem.memory.base import RecurrentCell
from rlmem.types import PositiveInt


class GRU(RecurrentCell):
    """Gated Recurrent Unit (Cho et al. 2014, arXiv:1406.1078, eq. 5-8), in torch's form.

        r = sigmoid(W_r x + U_r h),  z = sigmoid(W_z x + U_z h)
        n = tanh(W_n x + b_n + r * (U_n h + c_n)),  h' = (1 - z) * n + z * h

    Differs from the paper as torch does: the reset gate acts after U_n. State: h [B, H].

    hidden_size: H, width of state and output
    """

    def __init__(self, input_size: int, hidden_size: PositiveInt = 256):
        super().__init__()
        self.input_size, self.output_size = input_size, hidden_size
        self.rnn = nn.GRU(input_size, hidden_size)

    def initial_state(self, batch_size: int) -> Tensor:
        return self._like_parameters().new_zeros(batch_size, self.output_size)

    def cell(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.gru_cell(x, state, *self.rnn.all_weights[0])
        return h, h

    def sequence(self, packed: PackedSequence, state: Tensor) -> tuple[Tensor, Tensor]:
        y, h = self.rnn(packed, state[None])
        return y.data, h[0]
