"""Reductions over the slots that count, which losses and statistics share."""

from collections.abc import Callable

import torch
from torch import Tensor


def masked_total(x: Tensor, mask: Tensor, weight: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Sum of x where mask, and the number of these slots. Values outside the mask have no effect, not even NaN.
    Arguments as in `masked_mean`.
    """
    counted = torch.where(mask, x if weight is None else weight * x, 0)
    return counted.flatten(-mask.dim()).sum(-1), mask.sum()


def masked_mean(x: Tensor, mask: Tensor, weight: Tensor | None = None) -> Tensor:
    """Mean of x where mask; zero if the mask is empty.

    x: [B, T], or several of these [K, B, T], of which [K] means are returned
    mask: [B, T] bool
    weight: [B, T] factors of the terms, such as importance weights; the sum is still divided by the number of slots
    """
    total, count = masked_total(x, mask, weight)
    return total / count.clamp(min=1)


def standardise(x: Tensor, mask: Tensor, mean: Callable[[Tensor, Tensor], Tensor] = masked_mean) -> Tensor:
    """x shifted and scaled to mean 0 and standard deviation 1 over the mask.

    x: [B, T], without gradient
    mask: [B, T] bool
    mean: takes the mean of a tensor [B, T] over a mask; another one where several processes share the slots
    """
    average = mean(x, mask)
    return (x - average) / (mean((x - average).square(), mask).sqrt() + 1e-8)
