"""The memoryless control."""

from torch import Tensor, nn

from rlmem.memory.base import Memory
from rlmem.scan import Linear
from rlmem.types import PositiveInt, State


class MLP(Memory):
    """Two hidden layers on the present slot only, to compare memories with (POPGym's MLP baseline).

        y_t = phi(W_2 phi(W_1 x_t + b_1) + b_2),   phi = LeakyReLU

    State: the empty tuple.

    hidden_size: H, width of both layers
    """

    def __init__(self, input_size: int, hidden_size: PositiveInt = 256):
        super().__init__(input_size, hidden_size)
        W_1, W_2 = Linear(input_size, hidden_size), Linear(hidden_size, hidden_size)
        self.layers = nn.Sequential(W_1, nn.LeakyReLU(), W_2, nn.LeakyReLU())

    def initial_state(self, batch_size: int) -> State:
        return ()

    def forward(self, x: Tensor, state: State, start: Tensor) -> tuple[Tensor, State]:
        return self.layers(x), ()
