"""What cells with torch's own weights share."""

from abc import abstractmethod

from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from torch.utils._pytree import tree_leaves, tree_map

from rlmem.memory.base import RecurrentCell, ZeroState
from rlmem.types import State


class TorchCell(ZeroState, RecurrentCell):
    """A cell whose weights are those of a torch module `rnn`: cuDNN on CUDA, `states_on_cpu` elsewhere.

    Torch's own packed kernels on the CPU take time quadratic in the number of slots. The output is h, which is the
    state or the first part of it.
    """

    def __init__(self, input_size: int, rnn: nn.RNNBase):
        super().__init__(input_size, rnn.hidden_size)
        self.state_shape = (rnn.hidden_size,)
        self.rnn = rnn

    @abstractmethod
    def states_on_cpu(self, x: Tensor, state: State, sizes: Tensor) -> State | None:
        """The states after all S slots of packed episodes x [S, D], from their first states [E, H], by a fast way.

        sizes: [T], how many episodes take part in each step

        Returns None where there is no fast way; the loop over `cell` then runs.
        """

    def sequence(self, packed: PackedSequence, state: State, last: Tensor) -> tuple[Tensor, State]:
        if packed.data.is_cuda:
            y, final = self.rnn(packed, tree_map(lambda s: s[None], state))
            return y.data, tree_map(lambda s: s[0], final)
        states = self.states_on_cpu(packed.data, state, packed.batch_sizes)
        if states is None:
            return super().sequence(packed, state, last)
        return tree_leaves(states)[0], tree_map(lambda s: s[last], states)
