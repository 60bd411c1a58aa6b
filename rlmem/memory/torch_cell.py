"""What cells with torch's own weights and one hidden vector share: GRU and Elman."""

from abc import abstractmethod

from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from rlmem.memory.base import RecurrentCell


class TorchCell(RecurrentCell):
    """A cell whose weights are those of a torch module `rnn`; state h [B, H]. cuDNN on CUDA, `packed_on_cpu` elsewhere.

    Torch's packed kernels on the CPU take time quadratic in the number of slots.
    """

    def __init__(self, input_size: int, rnn: nn.RNNBase):
        super().__init__()
        self.input_size, self.output_size = input_size, rnn.hidden_size
        self.rnn = rnn

    @abstractmethod
    def packed_on_cpu(self, packed: PackedSequence, state: Tensor) -> Tensor:
        """All outputs [S, H] of packed episodes from their first states [E, H]."""

    def initial_state(self, batch_size: int) -> Tensor:
        return self._like_parameters().new_zeros(batch_size, self.output_size)

    def sequence(self, packed: PackedSequence, state: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
        if packed.data.is_cuda:
            y, h = self.rnn(packed, state[None])
            return y.data, h[0]
        y = self.packed_on_cpu(packed, state)
        return y, y[last]
