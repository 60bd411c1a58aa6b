"""What supervised algorithms learn from, windows of rows, and the network that predicts from them."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from rlmem.agents.actor_critic import Network
from rlmem.agents.layers import HeadLayers
from rlmem.agents.trunk import Trunks
from rlmem.core.errors import UserError
from rlmem.core.types import Inputs, State
from rlmem.scan import Linear


@dataclass
class DataWindow:
    """What one update reads: B rows of T slots.

    inputs: [B, T, ...] each
    target: what to predict, [B, T, ...]
    mask: which slots have a target, [B, T] bool
    due: the number of these slots
    begins: where sequences begin in the rows of a stream, [B, T]; None: rows are parts of episodes
    """

    inputs: Inputs
    target: Tensor
    mask: Tensor
    due: int
    begins: NDArray[np.bool_] | None = None


class Feed(ABC):
    """A source of windows.

    device: the device of the windows
    steps: slots read so far, in all rows
    seconds: seconds spent on making windows, as "data"
    state: the memory's state before the next window; None: rows begin with the initial state
    """

    def __init__(self, device: torch.device):
        self.device, self.seconds = device, {"data": 0.0}
        self.steps = 0
        self.state: State | None = None

    @abstractmethod
    def next(self, budget: int) -> DataWindow:
        """The next window, made smaller at the end of the budget; it counts as at most `budget` slots."""

    def carry(self, state: State) -> None:  # noqa: B027 - only for rows that continue
        """Let the next window begin with `state`, detached, if its rows continue those of the last window."""

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.steps, "state": self.state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.steps = state["steps"]
        if state["state"] is not None:
            self.state = tree_map(lambda leaf: leaf.to(self.device), state["state"])


class WindowFeed(Feed):
    """Windows drawn at random from the episodes of a file; each begins with an empty memory.

    algo: learns from a file, its `dataset`; a run is resumed only with the same content, of which it has the `digest`
    draw: makes a window of that many rows
    generator: draws the windows
    drops: which frames are dropped, if `draw` drops some
    """

    def __init__(
        self,
        algo: Any,
        draw: Callable[[int, torch.Generator], DataWindow],
        generator: torch.Generator,
        device: torch.device,
        drops: Any = None,
    ):
        super().__init__(device)
        self.draw, self.rows, self.slots, self.drops = draw, algo.batch_size, algo.window_size(), drops
        self.dataset, self.digest, self.generator = algo.dataset, algo.digest, generator

    def next(self, budget: int) -> DataWindow:
        began = perf_counter()
        rows = min(self.rows, -(-budget // self.slots))
        self.steps += min(budget, rows * self.slots)
        window = self.draw(rows, self.generator)
        self.seconds["data"] += perf_counter() - began
        return window

    def state_dict(self) -> dict[str, Any]:
        drops = {} if self.drops is None else {"drops": self.drops.state_dict()}
        return super().state_dict() | {"generator": self.generator.get_state(), "data": self.digest} | drops

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state["data"] != self.digest:
            problem = "holds other episodes than when the run began"
            raise UserError(f"algo.dataset={self.dataset}: {problem}; expected the same file; restore it")
        super().load_state_dict(state)
        self.generator.set_state(state["generator"].cpu())
        if self.drops is not None:
            self.drops.load_state_dict(state["drops"])


class Predictor(Network):
    """Predicts `outputs` numbers from the features of a slot.

    head_sizes: sizes of the head's hidden layers, () for a linear head; None: the features are the prediction

    Raises UserError without a head if there are more or fewer features than outputs, and for an encoder that normalises
    observations by running statistics, which only loops of agents that act keep.
    """

    def __init__(self, trunks: Trunks, outputs: int, head_sizes: Sequence[int] | None):
        super().__init__()
        self.trunks = trunks
        if self.normalisers():
            problem = (
                "the statistics are of what an agent observes while it acts, and here nothing acts while it learns"
            )
            raise UserError(f"encoder.normalise_obs=true: {problem}; expected false; e.g. encoder.normalise_obs=false")
        width = self.trunks.actor.output_size
        if head_sizes is not None:
            hidden, width = HeadLayers(head_sizes).hidden(width)
            self.head: nn.Module = nn.Sequential(hidden, Linear(width, outputs))
        elif width == outputs:
            self.head = nn.Identity()
        else:
            problem = f"the memory's output is the answer, of {outputs} numbers, and has {width}"
            raise UserError(f"algo.head_sizes=null: {problem}; e.g. memory.hidden_size={outputs} or algo.head_sizes=[]")

    def initial_state(self, batch_size: int) -> State:
        return self.trunks.actor.initial_state(batch_size)

    def read(self, inputs: Inputs, state: State) -> tuple[Tensor, State]:
        """Features [B, T, F] of rows of slots, and the state after them."""
        trunk = self.trunks.actor
        y, state = trunk.memory(trunk.encoder(*inputs), state, inputs.start)
        return torch.cat([y, trunk.encoder.shortcut(inputs.obs)], -1) if trunk.encoder.shortcut_size else y, state
