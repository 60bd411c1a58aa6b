"""torch's GRU behind the memory contract, to measure the others against."""

from typing import Any

import torch
from torch import Tensor, nn

from rlmem.memory.base import Memory


class TorchGRU(Memory):
    """`torch.nn.GRU`. It knows no starts: every row is one episode."""

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__()
        self.input_size, self.output_size = input_size, hidden_size
        self.rnn: Any = nn.GRU(input_size, hidden_size, batch_first=True)

    def initial_state(self, batch_size: int) -> Tensor:
        return self._like_parameters().new_zeros(batch_size, self.output_size)

    def forward(self, x: Tensor, state: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
        y, h = self.rnn(x, state[None])
        return y, h[0]


class TorchGRUCell(TorchGRU):
    """`torch.nn.GRUCell` in a Python loop, the form in which FFM's Figure 3 runs its recurrent networks."""

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.rnn = nn.GRUCell(input_size, hidden_size)

    def forward(self, x: Tensor, state: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
        outputs = []
        for x_t in x.unbind(1):
            state = self.rnn(x_t, state)
            outputs.append(state)
        return torch.stack(outputs, 1), state
