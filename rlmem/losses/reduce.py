"""The reductions that losses and statistics share."""

import torch
from torch import Tensor


def masked_mean(x: Tensor, mask: Tensor, weight: Tensor | None = None) -> Tensor:
    """Mean of x [B, T] where mask; zero if nothing is. What stands outside the mask, NaN included, has no effect.

    weight [B, T]: factors of the terms, such as importance weights; the sum is still divided by the number of slots.
    """
    return torch.where(mask, x if weight is None else weight * x, 0).sum() / mask.sum().clamp(min=1)


def standardise(x: Tensor, mask: Tensor) -> Tensor:
    """x [B, T] shifted and scaled to mean 0 and standard deviation 1 over the mask."""
    mean = masked_mean(x, mask)
    return (x - mean) / (masked_mean((x - mean).square(), mask).sqrt() + 1e-8)
