"""The memoryless control."""

from itertools import pairwise

from torch import Tensor, nn

from rlmem.core.types import NonNegativeInt, PositiveInt, State
from rlmem.memory.base import Memory
from rlmem.scan import Linear


class MLP(Memory):
    """Hidden layers on the present slot only, to compare memories with (POPGym's MLP baseline has two).

        y_t = phi(W_2 phi(W_1 x_t + b_1) + b_2),   phi = LeakyReLU

    State: the empty tuple.

    hidden_size: H, width of the layers
    layers: how many there are; with 0 the output is x, of width D
    """

    def __init__(self, input_size: int, hidden_size: PositiveInt = 256, layers: NonNegativeInt = 2):
        super().__init__(input_size, hidden_size if layers else input_size)
        sizes = [input_size, *[hidden_size] * layers]
        pairs = ((Linear(a, b), nn.LeakyReLU()) for a, b in pairwise(sizes))
        self.layers = nn.Sequential(*(layer for pair in pairs for layer in pair))

    def initial_state(self, batch_size: int) -> State:
        return ()

    def forward(self, x: Tensor, state: State, start: Tensor) -> tuple[Tensor, State]:
        return self.layers(x), ()
