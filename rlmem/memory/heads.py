"""What memories with several heads share: heads are rows of the batch to their scans."""

import torch
from torch import Tensor


def split_heads(u: Tensor, heads: int, steps: int = 1) -> Tensor:
    """u [B, T, steps * heads * width], in this order, as [B * heads, T * steps, width]."""
    u = u.unflatten(-1, (steps, heads, -1))
    return u.permute(0, 3, 1, 2, 4).flatten(2, 3).flatten(0, 1)


def join_heads(u: Tensor, heads: int) -> Tensor:
    """The inverse: u [B * heads, T, width] as [B, T, heads * width]."""
    return u.unflatten(0, (-1, heads)).transpose(1, 2).flatten(2)


def inverse_softplus(x: Tensor) -> Tensor:
    """u with softplus(u) = x > 0."""
    return x + torch.log(-torch.expm1(-x))
