"""The reductions that losses and statistics share. With several processes (`rlmem.parallel`) they are over all rows."""

import torch
from torch import Tensor

from rlmem.parallel import alone, summed


def masked_mean(x: Tensor, mask: Tensor, weight: Tensor | None = None) -> Tensor:
    """Mean of x [B, T] where mask; zero if nothing is. What stands outside the mask, NaN included, has no effect.

    weight [B, T]: factors of the terms, such as importance weights; the sum is still divided by the number of slots.
    """
    total, count = torch.where(mask, x if weight is None else weight * x, 0).sum(), mask.sum()
    if not alone():
        total, count = summed(torch.stack([total, count.to(total.dtype)])).unbind()
    return total / count.clamp(min=1)


def standardise(x: Tensor, mask: Tensor) -> Tensor:
    """x [B, T], which has no gradient, shifted and scaled to mean 0 and standard deviation 1 over the mask."""
    mean = masked_mean(x, mask)
    return (x - mean) / (masked_mean((x - mean).square(), mask).sqrt() + 1e-8)
