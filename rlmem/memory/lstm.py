"""Long Short-Term Memory."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence

from rlmem.memory.torch_cell import LSTMSequence, TorchCell
from rlmem.scan.matmul import linear
from rlmem.types import PositiveInt

State = tuple[Tensor, Tensor]


class LSTM(TorchCell):
    """Long Short-Term Memory (Hochreiter and Schmidhuber 1997) with forget gate (Gers et al. 2000).

        i, f, o = sigmoid(W x + U h + b) each,  g = tanh(W_g x + U_g h + b_g)
        c' = f * c + i * g,  h' = o * tanh(c')

    State: (h, c), each [B, H]. Torch's initialisation; cuDNN on CUDA. On the CPU, oneDNN for episodes of equal length,
    else a loop with a hand-written backward (`rlmem.memory.torch_cell`).

    hidden_size: H, width of state and output
    """

    def __init__(self, input_size: int, hidden_size: PositiveInt = 256):
        super().__init__(input_size, nn.LSTM(input_size, hidden_size))
        self.state_shape = ((hidden_size,), (hidden_size,))

    def cell(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        h, c = state
        W, U, b, b_hidden = self.rnn.all_weights[0]
        i, f, g, o = (F.linear(h, U, b_hidden) + F.linear(x, W, b)).chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        return h, (h, c)

    def sequence(self, packed: PackedSequence, state: State, last: Tensor) -> tuple[Tensor, State]:
        sizes = packed.batch_sizes.tolist()
        if packed.data.is_cuda or sizes[0] != sizes[-1]:
            return super().sequence(packed, state, last)
        # equal lengths: torch's dense kernel (oneDNN) is the fastest there is
        y, (h, c) = self.rnn(packed.data.view(len(sizes), len(last), -1), (state[0][None], state[1][None]))
        return y.flatten(0, 1), (h[0], c[0])

    def states_on_cpu(self, x: Tensor, state: State, sizes: list[int]) -> State:
        W, U, b, b_hidden = self.rnn.all_weights[0]
        return LSTMSequence.apply(linear(x, W, b + b_hidden), *state, U, sizes)
