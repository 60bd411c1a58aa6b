"""What to do with a gradient step whose loss or gradient is not finite."""

from typing import Any, Literal

import torch
from torch import Tensor

OnNan = Literal["stop", "skip"]

PATIENCE = 100
"""Steps that may be skipped in a row; parameters that fail more often will not recover."""


class Finite:
    """Checks that the loss and the gradient of every step are finite.

    on_nan: stop: raise FloatingPointError; skip: do not take the step, at most PATIENCE times in a row
    """

    def __init__(self, on_nan: OnNan = "stop"):
        self.on_nan = on_nan
        self.skipped = self.in_a_row = 0

    def allows(self, **numbers: Tensor) -> bool:
        """Whether loss and gradient norms are finite. If not, counts a skipped step or raises FloatingPointError."""
        if torch.isfinite(torch.stack([number.detach() for number in numbers.values()])).all():
            self.in_a_row = 0
            return True
        values = ", ".join(f"{name} {float(number.detach())}" for name, number in numbers.items())
        self.skipped += 1
        self.in_a_row += 1
        if self.on_nan == "stop" or self.in_a_row > PATIENCE:
            before = f" after {PATIENCE} in a row that were skipped" if self.in_a_row > PATIENCE else ""
            raise FloatingPointError(f"{values}{before}: no step was taken")
        return False

    def metrics(self) -> dict[str, float]:
        """The number of skipped steps, where steps may be skipped."""
        return {"nan/skipped": self.skipped} if self.on_nan == "skip" else {}

    def state_dict(self) -> dict[str, Any]:
        return {"skipped": self.skipped, "in_a_row": self.in_a_row}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.skipped, self.in_a_row = state["skipped"], state["in_a_row"]
