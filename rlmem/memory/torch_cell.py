"""What cells with torch's own weights share."""

from abc import abstractmethod
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.functional import embedding
from torch.nn.utils.rnn import PackedSequence
from torch.utils._pytree import tree_leaves, tree_map

from rlmem.memory.base import RecurrentCell, ZeroState
from rlmem.memory.projecting import Projecting
from rlmem.scan import native
from rlmem.scan.native import linear
from rlmem.types import State, where_start

Init = Literal["torch", "orthogonal", "orthogonal_gates"]
"""First weights of recurrent cells, as frameworks and published code have them.

torch: all weights and biases are uniform within 1 / sqrt(H) of zero (torch; POPGym, Morad et al. 2023)
orthogonal: W and U, each with its gates one above the other, are orthogonal; biases are zero (POMDP-Baselines, Ni et
    al. 2022, arXiv:2110.05038, and what was built on it: Morad et al. 2023, arXiv:2310.04128, figure 5; Le et al.
    2024, arXiv:2410.10132; Lu et al. 2024, arXiv:2405.17358, discrete tasks)
orthogonal_gates: the part of W and U of every gate is orthogonal; biases are zero (flax, with which Lu et al. 2024
    trained in PyBullet)
"""


class TorchCell(ZeroState, RecurrentCell, Projecting):
    """A cell whose weights are those of a torch module `rnn`: cuDNN on CUDA, `states_of` elsewhere.

    Torch's own packed kernels on the CPU take time quadratic in the number of slots. The output is h, which is the
    state or the first part of it.
    """

    def __init__(self, input_size: int, rnn: nn.RNNBase, init: Init = "torch"):
        super().__init__(input_size, rnn.hidden_size)
        self.state_shape = (rnn.hidden_size,)
        self.rnn = rnn
        if init != "torch":
            set_first_weights(rnn, init)

    def projected(self, x: Tensor, W: Tensor, b: Tensor) -> Tensor:
        """x W^T + b, the input's part of the gates. By torch on CUDA, as cuDNN does in `sequence`."""
        return F.linear(x, W, b) if x.is_cuda else linear(x, W, b)

    def takes(self, x: Tensor, state: State) -> bool:
        """Whether `states_of` can read such tensors."""
        return native.takes(x, *tree_leaves(state))

    @abstractmethod
    def project_slots(self, x: Tensor) -> Tensor | None:
        """The input's part of the gates [n, P], with all biases that belong to it; None where no kernel reads it."""

    @abstractmethod
    def states_of(self, p: Tensor, state: State, sizes: Tensor) -> State:
        """The states after all S slots of packed episodes p [S, P], from their first states [E, H], by a kernel.

        p: of `project_slots`; it is overwritten
        sizes: [T], how many episodes take part in each step
        """

    def read_projected(self, p: Tensor, which: Tensor, state: State, start: Tensor) -> tuple[Tensor, State]:
        def sequence(packed: PackedSequence, state: State, last: Tensor) -> tuple[Tensor, State]:
            return self._states(packed._replace(data=embedding(packed.data, p)), state, last)

        return self.over_episodes(sequence, which, state, start)

    def _for_states_of(self, x: Tensor, state: State) -> Tensor | None:
        """`project_slots`, unless the kernel cannot read the state."""
        return self.project_slots(x) if self.takes(x, state) else None

    def _states(self, packed: PackedSequence, state: State, last: Tensor) -> tuple[Tensor, State]:
        states = self.states_of(packed.data, state, packed.batch_sizes)
        return tree_leaves(states)[0], tree_map(lambda s: s[last], states)

    def stepped(self, x: Tensor, state: State) -> State | None:
        """The states after one slot, x [B, D], by the kernel that reads rows in training, so that not a bit differs.

        Returns None where there is no kernel, or where a gradient is recorded.
        """
        if torch.is_grad_enabled() or (p := self._for_states_of(x, state)) is None:
            return None
        return self._stepped(p, state)

    def step_projected(self, p: Tensor, which: Tensor, state: State, start: Tensor) -> tuple[Tensor, State]:
        states = self._stepped(embedding(which, p), where_start(start, self.initial_state(len(which)), state))
        return tree_leaves(states)[0], states

    def _stepped(self, p: Tensor, state: State) -> State:
        return self.states_of(p, state, torch.tensor([len(p)], device="cpu"))

    def sequence(self, packed: PackedSequence, state: State, last: Tensor) -> tuple[Tensor, State]:
        if packed.data.is_cuda:
            y, final = self.rnn(packed, tree_map(lambda s: s[None], state))
            return y.data, tree_map(lambda s: s[0], final)
        p = self._for_states_of(packed.data, state)
        if p is None:
            return super().sequence(packed, state, last)
        return self._states(packed._replace(data=p), state, last)


@torch.no_grad()
def set_first_weights(rnn: nn.RNNBase, init: Init) -> None:
    """Draw the weights of a cell anew, as `Init` says."""
    for matrices in rnn.all_weights:
        for weight in matrices[:2]:
            gates = weight.split(rnn.hidden_size) if init == "orthogonal_gates" else [weight]
            for gate in gates:
                nn.init.orthogonal_(gate)
        for bias in matrices[2:]:
            bias.zero_()
