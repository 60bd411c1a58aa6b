"""Long Short-Term Memory."""

import torch
from torch import Tensor, nn

from rlmem.memory.torch_cell import TorchCell
from rlmem.scan import cells
from rlmem.scan.matmul import linear
from rlmem.types import PositiveInt

State = tuple[Tensor, Tensor]


class LSTM(TorchCell):
    """Long Short-Term Memory (Hochreiter and Schmidhuber 1997) with forget gate (Gers et al. 2000).

        i, f, o = sigmoid(W x + U h + b) each,  g = tanh(W_g x + U_g h + b_g)
        c' = f * c + i * g,  h' = o * tanh(c')

    State: (h, c), each [B, H]. Torch's initialisation; cuDNN on CUDA, a kernel of the native engine on the CPU
    (`rlmem.scan.cells`).

    hidden_size: H, width of state and output
    """

    def __init__(self, input_size: int, hidden_size: PositiveInt = 256):
        super().__init__(input_size, nn.LSTM(input_size, hidden_size))
        self.state_shape = ((hidden_size,), (hidden_size,))

    def cell(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        h, c = state
        W, U, b, b_hidden = self.rnn.all_weights[0]
        i, f, g, o = (linear(h, U, b_hidden) + linear(x, W, b)).chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        return h, (h, c)

    def states_on_cpu(self, x: Tensor, state: State, sizes: Tensor) -> State | None:
        W, U, b, b_hidden = self.rnn.all_weights[0]
        tensors = linear(x, W, b + b_hidden), *state, U
        return cells.lstm(*tensors, sizes) if cells.can_run(*tensors) else None
