"""The source of a supervised algorithm: windows of rows."""

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

    inputs: [B, T, ...] each
    target: the right answers, [B, T, ...]
    mask: where an answer is due, [B, T] bool
    due: how many answers are due
    """

    inputs: Inputs
    target: Tensor
    mask: Tensor
    due: int


class Feed(ABC):
    """Windows one after another.

    device: where windows go
    steps: slots read so far, of all rows
    seconds: spent on making windows ("data")
    state: the memory's state before the next window; None: rows begin with the initial state
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
