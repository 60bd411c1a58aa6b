"""The slots of a batch that off-policy losses are about."""

from torch import Tensor

from rlmem.types import Batch, action_mask, flagged


class Slots:
    """The n acted slots of a batch, and those behind them. Slots are numbered b * T + t.

    acted: [n], the slots in which the agent acted
    after: [n], the slot behind each of them, which is its successor
    weight: [n], importance weights; None: all are one
    """

    def __init__(self, batch: Batch):
        self.acted = flagged(batch.mask)
        self.after = self.acted + 1
        weight = batch.behaviour.get("weight")
        self.weight = None if weight is None else self.of(weight)

    def of(self, x: Tensor) -> Tensor:
        """[B, T, ...] to [n, ...], where the agent acted."""
        return x.flatten(0, 1)[self.acted]

    def masks(self, batch: Batch) -> tuple[Tensor | None, Tensor | None]:
        """The action masks [n, A] of the slots that acted, and of those behind them; None: all actions are allowed."""
        mask = action_mask(batch.obs)
        return (None, None) if mask is None else (self.of(mask), mask.flatten(0, 1)[self.after])

    def mean(self, x: Tensor) -> Tensor:
        """The mean of x [n]; zero if there is no slot."""
        return x.sum() / max(len(x), 1)

    def weighted_mean(self, x: Tensor) -> Tensor:
        """The mean of x [n] times the importance weights; the sum is still divided by n."""
        return self.mean(x if self.weight is None else self.weight * x)
