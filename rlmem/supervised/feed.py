"""The source of a supervised algorithm: windows of rows."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from rlmem.types import Inputs, State


@dataclass
class Window:
    """What one update reads: B rows of T slots.

    inputs: [B, T, ...] each
    target: what to predict, [B, T, ...]
    mask: which slots have a target, [B, T] bool
    due: the number of these slots
    """

    inputs: Inputs
    target: Tensor
    mask: Tensor
    due: int


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
    def next(self, budget: int) -> Window:
        """The next window, made smaller at the end of the budget; it counts as at most `budget` slots."""

    def carry(self, state: State) -> None:  # noqa: B027 - only for rows that continue
        """Let the next window begin with `state`, detached, if its rows continue those of the last window."""

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.steps, "state": self.state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.steps = state["steps"]
        if state["state"] is not None:
            self.state = tree_map(lambda leaf: leaf.to(self.device), state["state"])
