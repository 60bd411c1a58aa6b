"""Cells with the weights of a torch module: GRU, LSTM and Elman's network, and their common base `TorchCell`."""

from abc import abstractmethod
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding
from torch.nn.utils.rnn import PackedSequence
from torch.utils._pytree import tree_leaves, tree_map

from rlmem.core.types import PositiveInt, State, where_start
from rlmem.memory.base import Projecting, RecurrentCell
from rlmem.scan import cells, native
from rlmem.scan.native import linear, of_weights, packed

Init = Literal["torch", "orthogonal", "orthogonal_gates"]
"""First weights of recurrent cells, as frameworks and published code have them.

torch: all weights and biases are uniform within 1 / sqrt(H) of zero (torch; POPGym, Morad et al. 2023)
orthogonal: W and U, each with its gates one above the other, are orthogonal; biases are zero (POMDP-Baselines, Ni et
    al. 2022, arXiv:2110.05038, and what was built on it: Morad et al. 2023, arXiv:2310.04128, figure 5; Le et al.
    2024, arXiv:2410.10132; Lu et al. 2024, arXiv:2405.17358, discrete tasks)
orthogonal_gates: the part of W and U of every gate is orthogonal; biases are zero (flax, with which Lu et al. 2024
    trained in PyBullet)
"""


class TorchCell(RecurrentCell, Projecting):
    """A cell with the weights W, U, b and c of a torch module: cuDNN on CUDA, elsewhere the operation `states`.

    The output is h, which is the state or the first part of it. `advance` is the definition, and what runs where the
    operation does not. Torch's own packed kernels on the CPU take time quadratic in the number of slots.
    """

    def __init__(self, rnn: nn.RNNBase, init: Init = "torch"):
        super().__init__(rnn.input_size, rnn.hidden_size)
        self.rnn, self.state_shape = rnn, (rnn.hidden_size,)
        if init != "torch":
            set_first_weights(rnn, init)

    @abstractmethod
    def project_slots(self, x: Tensor) -> Tensor:
        """The input's part of the gates [n, P], with all biases that belong to it."""

    @abstractmethod
    def advance(self, p: Tensor, state: State) -> tuple[Tensor, State]:
        """One step without resets, from the projections p [B, P] of the inputs: h [B, H] and the next state."""

    def states(self, p: Tensor, state: State, sizes: Tensor) -> State:
        """The states after all S slots of packed episodes, from their first states [E, H]; for cells with a kernel.

        p: [S, P], of `project_slots`; it is overwritten
        sizes: [T], how many episodes take part in each step
        """
        raise NotImplementedError

    @of_weights
    def panels_of_W(self) -> Tensor:
        """W as `packed` returns it."""
        return packed(self.rnn.all_weights[0][0])

    @of_weights
    def panels_of_U(self) -> Tensor:
        """U as `packed` returns it."""
        return packed(self.rnn.all_weights[0][1])

    def runs(self, *tensors: Tensor) -> bool:
        """True if there is a kernel, `states`, which can read the tensors and the weights."""
        return type(self).states is not TorchCell.states and native.takes(*tensors, *self.rnn.all_weights[0])

    def times_W(self, x: Tensor, b: Tensor) -> Tensor:
        """W x + b; by torch on CUDA, as cuDNN does in `sequence`."""
        W = self.rnn.all_weights[0][0]
        return nn.functional.linear(x, W, b) if x.is_cuda else linear(x, W, b, self.panels_of_W)

    def cell(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        return self.advance(self.project_slots(x), state)

    def step(self, x: Tensor, state: State, start: Tensor) -> tuple[Tensor, State]:
        return self._step(self.project_slots(x), state, start)

    def step_projected(self, p: Tensor, which: Tensor, state: State, start: Tensor) -> tuple[Tensor, State]:
        return self._step(embedding(which, p), state, start)

    def sequence(self, packed: PackedSequence, state: State, last: Tensor) -> tuple[Tensor, State]:
        if packed.data.is_cuda:
            y, final = self.rnn(packed, tree_map(lambda s: s[None], state))
            return y.data, tree_map(lambda s: s[0], final)
        return self._read(self.project_slots(packed.data), packed.batch_sizes, state, last)

    def read_projected(self, p: Tensor, which: Tensor, state: State, start: Tensor) -> tuple[Tensor, State]:
        def sequence(packed: PackedSequence, state: State, last: Tensor) -> tuple[Tensor, State]:
            return self._read(embedding(packed.data, p), packed.batch_sizes, state, last)

        return self.over_episodes(sequence, which, state, start)

    def _step(self, p: Tensor, state: State, start: Tensor) -> tuple[Tensor, State]:
        state = where_start(start, self.initial_state(p.shape[0]), state)
        if torch.is_grad_enabled() or not self.runs(p, *tree_leaves(state)):
            return self.advance(p, state)
        state = self.states(p, state, torch.tensor([len(p)], device="cpu"))
        return tree_leaves(state)[0], state

    def _read(self, p: Tensor, sizes: Tensor, state: State, last: Tensor) -> tuple[Tensor, State]:
        if not self.runs(p, *tree_leaves(state)):
            return cells.over_steps(self.advance, p.split(sizes.tolist()), sizes.tolist(), state)
        states = self.states(p, state, sizes)
        return tree_leaves(states)[0], tree_map(lambda s: s[last], states)


class GRU(TorchCell):
    """Gated Recurrent Unit (Cho et al. 2014, arXiv:1406.1078, eq. 5-8), in torch's form.

        r = sigmoid(W_r x + U_r h),  z = sigmoid(W_z x + U_z h)
        n = tanh(W_n x + b_n + r * (U_n h + c_n)),  h' = (1 - z) * n + z * h

    Differs from the paper as torch does: the reset gate acts after U_n. State: h [B, H].

    hidden_size: H, width of state and output
    init: first weights, see `rlmem.memory.gru.Init`
    """

    def __init__(self, input_size: int, hidden_size: PositiveInt = 256, init: Init = "torch"):
        super().__init__(nn.GRU(input_size, hidden_size), init)

    def project_slots(self, x: Tensor) -> Tensor:
        return self.times_W(x, self.rnn.all_weights[0][2])

    def advance(self, p: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        _, U, _, c = self.rnn.all_weights[0]
        Uh = linear(state, U, c, self.panels_of_U)
        r, z, _ = torch.sigmoid(p + Uh).chunk(3, 1)
        n = torch.tanh(p.chunk(3, 1)[2] + r * Uh.chunk(3, 1)[2])
        h = n + z * (state - n)
        return h, h

    def states(self, p: Tensor, state: Tensor, sizes: Tensor) -> Tensor:
        _, U, _, c = self.rnn.all_weights[0]
        return cells.gru(p, state, U, c, sizes, self.panels_of_U)


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
        h, c = state
        return cells.lstm(p, h, c, self.rnn.all_weights[0][1], sizes, self.panels_of_U)


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


@torch.no_grad()
def set_first_weights(rnn: nn.RNNBase, init: Init) -> None:
    """Draw the weights of a cell again, as `Init` describes them."""
    for matrices in rnn.all_weights:
        for weight in matrices[:2]:
            for gate in weight.split(rnn.hidden_size) if init == "orthogonal_gates" else [weight]:
                nn.init.orthogonal_(gate)
        for bias in matrices[2:]:
            bias.zero_()
