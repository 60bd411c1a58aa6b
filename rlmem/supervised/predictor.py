"""The network of supervised algorithms: an encoder, a memory, and a head that answers."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from rlmem.agents.base import Network
from rlmem.agents.trunk import Trunk, Trunks
from rlmem.errors import UserError
from rlmem.nets.layers import hidden_layers
from rlmem.scan.matmul import Linear
from rlmem.types import Inputs, State


class Predictor(Network):
    """Predicts `outputs` numbers from the features of a slot.

    make_trunk: makes the encoder and the memory
    outputs: numbers in a prediction
    head_sizes: sizes of the head's hidden layers, () for a linear head; None: the features are the prediction

    Raises UserError without a head if there are more or fewer features than outputs.
    """

    def __init__(self, make_trunk: Callable[[], Trunk], outputs: int, head_sizes: Sequence[int] | None):
        super().__init__()
        self.trunks = Trunks(make_trunk, separate=False)
        width = self.trunks.actor.output_size
        if head_sizes is not None:
            hidden, width = hidden_layers(width, head_sizes)
            self.head: nn.Module = nn.Sequential(hidden, Linear(width, outputs))
        elif width == outputs:
            self.head = nn.Identity()
        else:
            what = f"the memory's output is the answer, of {outputs} numbers, and has {width}"
            raise UserError(f"algo.head_sizes=null: {what}; e.g. memory.hidden_size={outputs} or algo.head_sizes=[]")

    def initial_state(self, batch_size: int) -> State:
        return self.trunks.actor.initial_state(batch_size)

    def read(self, inputs: Inputs, state: State) -> tuple[Tensor, State]:
        """Features [B, T, F] of rows of slots, and the state after them."""
        trunk = self.trunks.actor
        y, state = trunk.memory(trunk.encoder(*inputs), state, inputs.start)
        return torch.cat([y, trunk.encoder.shortcut(inputs.obs)], -1) if trunk.encoder.shortcut_size else y, state
