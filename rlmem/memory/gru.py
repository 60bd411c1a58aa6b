"""Gated Recurrent Unit."""

import torch
from torch import Tensor, nn

from rlmem.memory.torch_cell import Init, TorchCell
from rlmem.scan import cells, native
from rlmem.scan.native import linear
from rlmem.types import PositiveInt


class GRU(TorchCell):
    """Gated Recurrent Unit (Cho et al. 2014, arXiv:1406.1078, eq. 5-8), in torch's form.

        r = sigmoid(W_r x + U_r h),  z = sigmoid(W_z x + U_z h)
        n = tanh(W_n x + b_n + r * (U_n h + c_n)),  h' = (1 - z) * n + z * h

    Differs from the paper as torch does: the reset gate acts after U_n. State: h [B, H].
    cuDNN on CUDA, a kernel of the native engine on the CPU (`rlmem.scan.cells`).

    hidden_size: H, width of state and output
    init: first weights, see `rlmem.memory.torch_cell.Init`
    """

    def __init__(self, input_size: int, hidden_size: PositiveInt = 256, init: Init = "torch"):
        super().__init__(input_size, nn.GRU(input_size, hidden_size), init)

    def cell(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        if (h := self.stepped(x, state)) is not None:
            return h, h
        W, U, b, c = self.rnn.all_weights[0]
        Wx, Uh = self.projected(x, W, b), linear(state, U, c)
        r, z, _ = (Wx + Uh).chunk(3, 1)
        r, z = torch.sigmoid(r), torch.sigmoid(z)
        n = torch.tanh(Wx.chunk(3, 1)[2] + r * Uh.chunk(3, 1)[2])
        h = n + z * (state - n)
        return h, h

    def project_slots(self, x: Tensor) -> Tensor | None:
        W, U, b, c = self.rnn.all_weights[0]
        return self.projected(x, W, b) if native.takes(x, W, U, b, c) else None

    def states_of(self, p: Tensor, state: Tensor, sizes: Tensor) -> Tensor:
        _, U, _, c = self.rnn.all_weights[0]
        return cells.gru(p, state, U, c, sizes)
