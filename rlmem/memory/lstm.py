"""Long Short-Term Memory."""

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from rlmem.memory.base import RecurrentCell
from rlmem.types import PositiveInt

Pair = tuple[Tensor, Tensor]


class LSTM(RecurrentCell):
    """Long Short-Term Memory (Hochreiter and Schmidhuber 1997) with forget gate (Gers et al. 2000).

        i, f, o = sigmoid(W x + U h + b) each,  g = tanh(W_g x + U_g h + b_g)
        c' = f * c + i * g,  h' = o * tanh(c')

    State: (h, c), each [B, H]. Torch's initialisation.

    hidden_size: H, width of state and output
    """

    def __init__(self, input_size: int, hidden_size: PositiveInt = 256):
        super().__init__()
        self.input_size, self.output_size = input_size, hidden_size
        self.rnn = nn.LSTM(input_size, hidden_size)

    def initial_state(self, batch_size: int) -> Pair:
        zeros = self._like_parameters().new_zeros(batch_size, self.output_size)
        return zeros, zeros.clone()

    def cell(self, x: Tensor, state: Pair) -> tuple[Tensor, Pair]:
        h, c = torch.lstm_cell(x, state, *self.rnn.all_weights[0])
        return h, (h, c)

    def sequence(self, packed: PackedSequence, state: Pair) -> tuple[Tensor, Pair]:
        y, (h, c) = self.rnn(packed, (state[0][None], state[1][None]))
        return y.data, (h[0], c[0])
