"""The definition of the linear scan: one slot after the other, differentiated by autograd."""

import torch
from torch import Tensor

from rlmem.types import where_start


def naive_scan(a: Tensor, b: Tensor, h0: Tensor, start: Tensor, reverse: bool) -> Tensor:
    """All states h [B, T, *F] of h_t = a_t * (0 if start_t else h_{t-1}) + b_t, or from the last slot to the first.

    a, b: [B, T, *F]
    h0: [B, *F], the state before the first slot that is read
    start: [B, T] bool
    """
    h, states, zero = h0, [], torch.zeros_like(h0)
    steps = list(zip(a.unbind(1), b.unbind(1), start.unbind(1), strict=True))
    for a_t, b_t, start_t in reversed(steps) if reverse else steps:
        h = a_t * where_start(start_t, zero, h) + b_t
        states.append(h)
    return torch.stack(states[::-1] if reverse else states, 1)
