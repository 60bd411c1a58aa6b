"""The engines in plain torch: `loop`, the definition, and `chunked`."""

from math import isqrt

import torch
from torch import Tensor


def missing() -> str | None:
    """Why this engine cannot run here: it always can."""
    return None


def loop(a: Tensor, b: Tensor, h0: Tensor, start: Tensor, reverse: bool) -> Tensor:
    """The definition, differentiated by autograd; all of a and b [B, T, *F]."""
    h, states = h0, []
    zero = torch.zeros_like(h0)
    steps = list(zip(a.unbind(1), b.unbind(1), start.unbind(1), strict=True))
    for a_t, b_t, start_t in reversed(steps) if reverse else steps:
        h = a_t * torch.where(_like(start_t, h), zero, h) + b_t
        states.append(h)
    return torch.stack(states[::-1] if reverse else states, 1)


def forward(a: Tensor, b: Tensor, h0: Tensor, start: Tensor, reverse: bool) -> Tensor:
    """The `chunked` engine; see `rlmem.scan.linear._Scan` for shapes."""
    a = a[None, None] if a.dim() == 1 else a
    if b.shape[2] < h0.shape[1]:
        b = b.repeat_interleave(h0.shape[1] // b.shape[2], 2).to(h0.dtype)
    if not reverse:
        return _chunked(a, b, h0, start)
    return _chunked(a.flip(1), b.flip(1), h0, start.flip(1)).flip(1)


def backward(
    a: Tensor, h: Tensor, h0: Tensor, start: Tensor, grad_h: Tensor, drivers: int, needs_a: bool, reverse: bool
) -> tuple[Tensor | None, Tensor, Tensor]:
    """(grad_a or None, grad_b, grad_h0)."""
    if reverse:
        flip = lambda x: x if x.dim() == 1 else x.flip(1)  # noqa: E731
        grad_a, grad_b, grad_h0 = backward(*map(flip, (a, h)), h0, *map(flip, (start, grad_h)), drivers, needs_a, False)
        return None if grad_a is None else flip(grad_a), grad_b.flip(1), grad_h0
    rows = a[None, None] if a.dim() == 1 else a
    a_next = rows.conj() if a.dim() == 1 else torch.cat([rows[:, 1:], rows[:, :1]], 1).flip(1).conj()
    cut = torch.cat([start[:, 1:], torch.ones_like(start[:, :1])], 1)
    g = _chunked(a_next.resolve_conj(), grad_h.flip(1), torch.zeros_like(h0), cut.flip(1)).flip(1)
    fresh = start[..., None]
    grad_a = None
    if needs_a:
        previous = torch.cat([h0[:, None], h[:, :-1]], 1).masked_fill_(fresh, 0)
        grad_a = (g * previous.conj()).sum_to_size(rows.shape).view(a.shape)
    grad_h0 = (g[:, 0] * rows[:, 0].conj()).masked_fill(fresh[:, 0], 0)
    if drivers < h.shape[2]:
        return grad_a, g.real.unflatten(2, (drivers, -1)).sum(-1), grad_h0
    return grad_a, g, grad_h0


def _chunked(a: Tensor, b: Tensor, h0: Tensor, start: Tensor) -> Tensor:
    """All states for a [B or 1, T or 1, N], without autograd.

    With C chunks of K slots: K steps for all chunks at once, C steps for the carry, one correction of all slots
    before a chunk's first start: h += (a_1 ... a_k) * carry.
    """
    T = b.shape[1]
    K = isqrt(T - 1) + 1
    C = -(-T // K)
    constant = a.shape[1] == 1
    b, start = (_chunks(x, C, K) for x in (b, start))  # [B, C, K, ...]
    a = a[:, :, None].expand(-1, C, K, -1) if constant else _chunks(a, C, K)
    h = torch.empty_like(b, memory_format=torch.contiguous_format)
    h[:, :, 0] = b[:, :, 0]
    starts = start[..., None]
    for k in range(1, K):
        before = h[:, :, k - 1].masked_fill(starts[:, :, k], 0)
        torch.addcmul(b[:, :, k], before, a[:, :, k], out=h[:, :, k])
    product = (a[:, :1] if constant else a).cumprod(2)
    alive = ~start.cumsum(2, dtype=torch.int32).bool()[..., None]
    last = product[:, :, -1].expand(-1, C, -1)
    carries, carry = [], h0
    for c in range(C):
        carries.append(carry)
        carry = torch.where(alive[:, c, -1], last[:, c] * carry, 0) + h[:, c, -1]
    correction = product * torch.stack(carries, 1)[:, :, None]
    h += torch.where(alive, correction, 0)
    return h.flatten(1, 2)[:, :T]


def _chunks(x: Tensor, C: int, K: int) -> Tensor:
    """[B, T, ...] as [B, C, K, ...], padded with zeros."""
    padding = C * K - x.shape[1]
    if padding:
        x = torch.cat([x, x.new_zeros(x.shape[0], padding, *x.shape[2:])], 1)
    return x.unflatten(1, (C, K))


def _like(flag: Tensor, x: Tensor) -> Tensor:
    """View `flag` with trailing ones so that it broadcasts against `x`."""
    return flag.view(*flag.shape, *[1] * (x.dim() - flag.dim()))
