"""The `chunked` engine: torch operations on C chunks of K slots, about sqrt(T) of each, walked side by side.

The first walk starts every chunk from zero, and also takes the product of its decays; from both follow the states that
enter the chunks. The second walk starts from these and gives all states.
"""

from math import isqrt

import torch
from torch import Tensor


def forward(a: Tensor, b: Tensor, h0: Tensor, start: Tensor, reverse: bool) -> Tensor:
    """All states h [B, T, N]; see `rlmem.scan.linear._Scan` for shapes."""
    if reverse:
        return forward(_flip(a), b.flip(1), h0, start.flip(1), False).flip(1)
    if b.shape[2] < h0.shape[1]:
        b = b.repeat_interleave(h0.shape[1] // b.shape[2], 2).to(h0.dtype)
    h = torch.empty_like(b)
    C, K = _sizes(b.shape[1])
    A, X, H = (_chunks(x, C, K) for x in (a, b, h))
    resets = _resets(start, C, K)
    local = torch.zeros_like(X[:, :, 0])
    product = torch.ones_like(local)
    for k in range(K):
        local[resets[k]] = 0
        torch.addcmul(X[:, :, k], A[:, :, k], local, out=local)
        product.mul_(A[:, :, k])
    state = _enter(h0, local, product, _chunks(start, C, K).any(2)[..., None])
    for k in range(K):
        kept, state[resets[k]] = state[resets[k]], 0
        before, state = state, torch.addcmul(X[:, :, k], A[:, :, k], state, out=H[:, :, k])
        before[resets[k]] = kept
    last = state[:, -1]
    for t in range(C * K, h.shape[1]):
        before = last.masked_fill(start[:, t, None], 0)
        last = torch.addcmul(b[:, t], a if a.dim() == 1 else a[:, t], before, out=h[:, t])
    return h


def backward(
    a: Tensor, h: Tensor, h0: Tensor, start: Tensor, grad_h: Tensor, drivers: int, needs_a: bool, reverse: bool
) -> tuple[Tensor | None, Tensor, Tensor]:
    """(grad_a or None, grad_b, grad_h0): the same two walks from the last slot to the first."""
    if reverse:
        flipped = (_flip(a), h.flip(1), h0, start.flip(1), grad_h.flip(1))
        grad_a, grad_b, grad_h0 = backward(*flipped, drivers, needs_a, False)
        return None if grad_a is None else _flip(grad_a), grad_b.flip(1), grad_h0
    T = h.shape[1]
    constant = a.dim() == 1
    a = a.conj().resolve_conj()
    grad_b = torch.empty_like(h)
    grad_a = (torch.zeros_like(h0) if constant else torch.empty_like(h)) if needs_a else None
    C, K = _sizes(T)
    carry = torch.zeros_like(h0)  # what flows from a slot's state into the state before it
    for t in reversed(range(C * K, T)):
        g = torch.add(grad_h[:, t], carry, out=grad_b[:, t])
        fresh = start[:, t, None]
        if grad_a is not None:
            step = (g * h[:, t - 1].conj()).masked_fill_(fresh, 0)
            grad_a.add_(step) if constant else grad_a[:, t].copy_(step)
        carry = (g * (a if constant else a[:, t])).masked_fill_(fresh, 0)
    A, G, H, D = (_chunks(x, C, K) for x in (a, grad_h, h, grad_b))
    resets = _resets(start, C, K)
    local = torch.zeros_like(G[:, :, 0])
    product = torch.ones_like(local)
    for k in reversed(range(K)):
        local.add_(G[:, :, k]).mul_(A[:, :, k])
        product.mul_(A[:, :, k])
        local[resets[k]] = 0
    dead = _chunks(start, C, K).any(2)[..., None]
    carry = _enter(carry, *(x.flip(1) for x in (local, product, dead))).flip(1)
    before = torch.cat([h0[:, None], H[:, :-1, -1]], 1)
    step = torch.empty_like(carry)
    total = torch.zeros_like(carry)
    dA = None if grad_a is None or constant else _chunks(grad_a, C, K)
    for k in reversed(range(K)):
        g = torch.add(G[:, :, k], carry, out=D[:, :, k])
        if needs_a:
            out = step if dA is None else dA[:, :, k]
            torch.mul(g, (H[:, :, k - 1] if k else before).conj(), out=out)
            out[resets[k]] = 0
            if dA is None:
                total.add_(step)
        torch.mul(g, A[:, :, k], out=carry)
        carry[resets[k]] = 0
    if grad_a is not None and constant:
        grad_a = grad_a.sum(0) + total.sum((0, 1))
    if drivers < h.shape[2]:
        grad_b = grad_b.real.unflatten(2, (drivers, -1)).sum(-1)
    return grad_a, grad_b, carry[:, 0]


def _enter(first: Tensor, local: Tensor, product: Tensor, dead: Tensor) -> Tensor:
    """The state that enters each chunk [B, C, N]; nothing passes a `dead` one [B, C, 1], which holds a start."""
    states = [first]
    for end, factor, stopped in zip(local.unbind(1), product.unbind(1), dead.unbind(1), strict=True):
        states.append(torch.where(stopped, end, torch.addcmul(end, factor, states[-1])))
    return torch.stack(states[:-1], 1)


def _sizes(T: int) -> tuple[int, int]:
    """C chunks of K slots; the fewer than K slots that remain are walked alone."""
    K = isqrt(T - 1) + 1
    return T // K, K


def _chunks(x: Tensor, C: int, K: int) -> Tensor:
    """A view [B, C, K, ...] of the first C * K slots of x [B, T, ...], or of the constant x [N]."""
    return x.expand(1, C, K, -1) if x.dim() == 1 else x[:, : C * K].unflatten(1, (C, K))


def _resets(start: Tensor, C: int, K: int) -> list[tuple[Tensor, Tensor]]:
    """For each slot k of the chunks, the (rows, chunks) that start there: few, so cheaper to index than to mask."""
    slots = _chunks(start, C, K).permute(2, 0, 1)  # [K, B, C]
    _, rows, chunks = slots.nonzero(as_tuple=True)
    counts = slots.sum((1, 2)).tolist()
    return list(zip(rows.split(counts), chunks.split(counts), strict=True))


def _flip(a: Tensor) -> Tensor:
    return a if a.dim() == 1 else a.flip(1)
