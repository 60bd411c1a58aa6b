"""The `chunked` engine: torch operations, as the scan of the monoid of maps h -> a h + b."""

import torch
from torch import Tensor

from rlmem.scan.monoid import monoid_scan

Map = tuple[Tensor, Tensor]


def forward(a: Tensor, b: Tensor, h0: Tensor, start: Tensor, reverse: bool) -> Tensor:
    """All states h [B, T, N]; see `rlmem.scan.linear._Scan` for shapes."""
    if reverse:
        return forward(_flip(a), b.flip(1), h0, start.flip(1), False).flip(1)
    b = b.repeat_interleave(h0.shape[1] // b.shape[2], 2).to(h0.dtype)
    states: Map = monoid_scan(_then, (1.0, 0.0), (a.expand_as(b), b), (torch.ones_like(h0), h0), start)
    return states[1]


def backward(
    a: Tensor, h: Tensor, h0: Tensor, start: Tensor, grad_h: Tensor, drivers: int, needs_a: bool, reverse: bool
) -> tuple[Tensor | None, Tensor, Tensor]:
    """(grad_a or None, grad_b, grad_h0): the same scan from the last slot to the first."""
    if reverse:
        flipped = _flip(a), h.flip(1), h0, start.flip(1), grad_h.flip(1)
        grad_a, grad_b, grad_h0 = backward(*flipped, drivers, needs_a, False)
        return None if grad_a is None else _flip(grad_a), grad_b.flip(1), grad_h0
    decay, fresh, grad_a = a.conj().resolve_conj().expand_as(h), start[..., None], None
    grad_b = forward(decay.roll(-1, 1), grad_h, torch.zeros_like(h0), start.roll(-1, 1), True)
    if needs_a:
        before = torch.cat([h0[:, None], h[:, :-1]], 1)
        grad_a = (grad_b * before.conj()).masked_fill(fresh, 0)
        grad_a = grad_a.sum((0, 1)) if a.dim() == 1 else grad_a
    grad_h0 = (grad_b[:, 0] * decay[:, 0]).masked_fill(fresh[:, 0], 0)
    if drivers < h.shape[2]:
        grad_b = grad_b.real.unflatten(2, (drivers, -1)).sum(-1)
    return grad_a, grad_b, grad_h0


def _then(earlier: Map, later: Map) -> Map:
    """The map h -> c (a h + b) + d, of h -> a h + b and h -> c h + d."""
    (a, b), (c, d) = earlier, later
    return a * c, torch.addcmul(d, c, b)


def _flip(a: Tensor) -> Tensor:
    return a if a.dim() == 1 else a.flip(1)
