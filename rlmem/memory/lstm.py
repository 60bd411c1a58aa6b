"""Long Short-Term Memory."""

from typing import Literal

import torch
from torch import Tensor, nn

from rlmem.core.types import PositiveInt
from rlmem.memory.gru import Init, TorchCell
from rlmem.scan import cells
from rlmem.scan.native import linear

State = tuple[Tensor, Tensor]


class LSTM(TorchCell):
    """Long Short-Term Memory (Hochreiter and Schmidhuber 1997) with forget gate (Gers et al. 2000).

        i, f, o = sigmoid(W x + U h + b) each,  g = tanh(W_g x + U_g h + b_g)
        c' = f * c + i * g,  h' = o * tanh(c')

    State: (h, c), each [B, H].

    hidden_size: H, width of state and output
    init: first weights, see `rlmem.memory.gru.Init`; or "sonnet", the library of LP-RNN's paper (Stepleton et
        al. 2018, arXiv:1805.04955): normal with a spread of 1 / sqrt(D + H), cut at two spreads, and biases of zero
    forget_bias: what is added to the first bias of f, so that c is kept at first (Gers et al. 2000; 1 in Sonnet and
        TensorFlow); None: 1 with init="sonnet", else 0
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: PositiveInt = 256,
        init: Init | Literal["sonnet"] = "torch",
        forget_bias: float | None = None,
    ):
        super().__init__(nn.LSTM(input_size, hidden_size), "torch" if init == "sonnet" else init)
        self.state_shape = ((hidden_size,), (hidden_size,))
        W, U, b, b_hidden = self.rnn.all_weights[0]
        with torch.no_grad():
            if init == "sonnet":
                spread = (input_size + hidden_size) ** -0.5
                for weight in W, U:
                    nn.init.trunc_normal_(weight, std=spread, a=-2 * spread, b=2 * spread)
                for bias in b, b_hidden:
                    bias.zero_()
            b.chunk(4)[1].add_(float(init == "sonnet") if forget_bias is None else forget_bias)

    def project_slots(self, x: Tensor) -> Tensor:
        _, _, b, b_hidden = self.rnn.all_weights[0]
        return self.times_W(x, b + b_hidden)

    def advance(self, p: Tensor, state: State) -> tuple[Tensor, State]:
        h, c = state
        i, f, g, o = (p + linear(h, self.rnn.all_weights[0][1], None, self.panels_of_U)).chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        return h, (h, c)

    def states(self, p: Tensor, state: State, sizes: Tensor) -> State:
        return cells.lstm(p, *state, self.rnn.all_weights[0][1], sizes, self.panels_of_U)
