"""Gradient steps are taken only where loss and gradient are finite."""

import math

import torch
from torch import Tensor

from rlmem.loops.parts import OnNan

MOST_SKIPPED = 100
"""Steps that may be skipped in a row; parameters that fail more often will not recover."""


class Finite:
    """Takes the gradient steps whose loss and gradient are finite, and no others.

    A step is decided on the device, and the next may follow at once; what was decided is known after `settle`.

    on_nan: stop: raise FloatingPointError; skip: leave the step out, at most MOST_SKIPPED times in a row
    """

    def __init__(self, on_nan: OnNan = "stop"):
        self.on_nan = on_nan
        self.skipped = self.in_a_row = 0
        self.unsettled: list[tuple[tuple[str, ...], Tensor, Tensor]] = []

    def step(self, optim: torch.optim.Optimizer, **numbers: Tensor) -> None:
        """Take the optimiser's step if the numbers, loss and gradient norms, are finite. If `on_nan` is stop, none is
        taken after one that was not.

        Fused optimisers read on the device whether to (`found_inf`, as from torch's GradScaler); others wait for it.
        """
        values = torch.stack([number.detach() for number in numbers.values()])
        finite = torch.isfinite(values).all()
        if self.on_nan == "stop" and self.unsettled:
            finite = finite & self.unsettled[-1][2]
        self.unsettled.append((tuple(numbers), values, finite))
        if optim.defaults.get("fused"):
            optim.found_inf = (~finite).float()  # type: ignore[attr-defined]
            optim.step()
        elif finite:
            optim.step()

    def settle(self) -> list[bool]:
        """Whether each step since the last call was taken. Raises FloatingPointError for the first that was not if
        `on_nan` says so.
        """
        unsettled, self.unsettled = self.unsettled, []
        if not unsettled:
            return []
        numbers = iter(torch.cat([values for _, values, _ in unsettled]).tolist())
        taken = []
        for names, _, _ in unsettled:
            found = {name: next(numbers) for name in names}
            taken.append(all(map(math.isfinite, found.values())))
            if taken[-1]:
                self.in_a_row = 0
                continue
            self.skipped += 1
            self.in_a_row += 1
            if self.on_nan == "stop" or self.in_a_row > MOST_SKIPPED:
                before = f" after {MOST_SKIPPED} in a row that were skipped" if self.in_a_row > MOST_SKIPPED else ""
                values = ", ".join(f"{name} {value}" for name, value in found.items())
                raise FloatingPointError(f"{values}{before}: no step was taken")
        return taken
