"""Where a supervised algorithm reads: windows of rows, and how many slots have been read."""

from __future__ import annotations

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

    inputs: [B, T, ...];  target: [B, T, ...], what is to be said;  mask: [B, T] bool, where
    due: how many slots the mask has
    """

    inputs: Inputs
    target: Tensor
    mask: Tensor
    due: int


class Feed(ABC):
    """Windows one after another.

    steps: slots read so far, of all rows;  state: the memory's before the next window; None: rows begin with the
    initial state of the memory that reads them
    """

    def __init__(self, device: torch.device):
        self.device, self.seconds = device, {"data": 0.0}
        self.steps = 0
        self.state: State | None = None

    @abstractmethod
    def next(self, budget: int) -> Window:
        """The next window, which counts as `budget` slots at most; a smaller one at the end of the budget."""

    def carry(self, state: State) -> None:  # noqa: B027 - windows that begin anew take nothing
        """Take the state after a window to the next one, where rows go on; no gradient comes with it."""

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.steps, "state": self.state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.steps = state["steps"]
        if state["state"] is not None:
            self.state = tree_map(lambda leaf: leaf.to(self.device), state["state"])
