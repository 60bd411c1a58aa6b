"""The linear recurrence h_t = a_t * h_{t-1} + b_t with resets, real or complex, differentiable.

Two engines compute the same thing: `loop` is the definition; `chunked` walks all chunks of about sqrt(T) slots
side by side, carries the state from chunk to chunk, and has a hand-written backward. Both touch each element a
constant number of times. Memory models, returns and advantages all run through here.
"""

from math import isqrt
from typing import Literal

import torch
from torch import Tensor

Engine = Literal["auto", "loop", "chunked"]


def chosen_engine(engine: Engine) -> Engine:
    """The engine that scans of more than one slot run on."""
    return "chunked" if engine == "auto" else engine


def linear_scan(a: Tensor, b: Tensor, h0: Tensor, start: Tensor, engine: Engine = "auto") -> Tensor:
    """All states h [B, T, ...] of h_t = a_t * (0 if start_t else h_{t-1}) + b_t.

    a: [B, T, ...] or, for a decay that does not change with time, [...]; broadcasts against b's features
    b: [B, T, ...], T >= 1; real or complex, same dtype as a
    h0: [B, ...] state before slot 0
    start: [B, T] bool

    A start selects zero instead of multiplying by it: an inf in h0 or in an earlier slot does not survive.
    Autograd flows to a, b and h0; none crosses a start.
    """
    if a.dim() < b.dim():
        a = a.expand(b.shape[2:])[None, None]
    if b.shape[1] == 1 or chosen_engine(engine) == "loop":
        return _loop(a.expand_as(b), b, h0, start)
    return _Chunked.apply(a, b, h0, start)


def _loop(a: Tensor, b: Tensor, h0: Tensor, start: Tensor) -> Tensor:
    h, states = h0, []
    zero = torch.zeros_like(h0)
    for a_t, b_t, start_t in zip(a.unbind(1), b.unbind(1), start.unbind(1), strict=True):
        h = a_t * torch.where(_like(start_t, h), zero, h) + b_t
        states.append(h)
    return torch.stack(states, 1)


def _like(flag: Tensor, x: Tensor) -> Tensor:
    """View `flag` with trailing ones so that it broadcasts against `x`."""
    return flag.view(*flag.shape, *[1] * (x.dim() - flag.dim()))


class _Chunked(torch.autograd.Function):
    """dL/db_t = g_t and dL/da_t = g_t * conj(h_{t-1}), where g_t = dL/dh_t + conj(a_{t+1}) g_{t+1} is the same
    recurrence in reversed time, cut where slot t+1 is a start."""

    @staticmethod
    def forward(ctx, a: Tensor, b: Tensor, h0: Tensor, start: Tensor) -> Tensor:
        h = chunked(a, b, h0, start)
        ctx.save_for_backward(a, h, h0, start)
        return h

    @staticmethod
    def backward(ctx, grad_h: Tensor):
        a, h, h0, start = ctx.saved_tensors
        grad_a = grad_h0 = None
        a_next = a.conj() if a.shape[1] == 1 else torch.cat([a[:, 1:], a[:, :1]], 1).flip(1).conj()
        cut = torch.cat([start[:, 1:], torch.ones_like(start[:, :1])], 1)
        g = chunked(a_next.resolve_conj(), grad_h.flip(1), torch.zeros_like(h0), cut.flip(1)).flip(1)
        fresh = _like(start, h)
        if ctx.needs_input_grad[0]:
            previous = torch.cat([h0[:, None], h[:, :-1]], 1).masked_fill_(fresh, 0)
            grad_a = (g * previous.conj()).sum_to_size(a.shape)
        if ctx.needs_input_grad[2]:
            grad_h0 = (g[:, 0] * a[:, 0].conj()).masked_fill(fresh[:, 0], 0)
        return grad_a, g, grad_h0, None


def chunked(a: Tensor, b: Tensor, h0: Tensor, start: Tensor) -> Tensor:
    """`linear_scan` for a [B or 1, T or 1, ...], without autograd.

    With C chunks of K slots: K steps for all chunks at once, C steps for the carry, one correction of all slots
    before a chunk's first start: h += (a_1 ... a_k) * carry.
    """
    T = b.shape[1]
    K = isqrt(T - 1) + 1
    C = -(-T // K)
    constant = a.shape[1] == 1
    b, start = (_chunks(x, C, K) for x in (b, start))  # [B, C, K, ...]
    a = a[:, :, None].expand(-1, C, K, *a.shape[2:]) if constant else _chunks(a, C, K)
    h = torch.empty_like(b, memory_format=torch.contiguous_format)
    h[:, :, 0] = b[:, :, 0]
    starts = _like(start, b)
    for k in range(1, K):
        before = h[:, :, k - 1].masked_fill(starts[:, :, k], 0)
        torch.addcmul(b[:, :, k], before, a[:, :, k], out=h[:, :, k])
    product = (a[:, :1] if constant else a).cumprod(2)
    alive = ~start.cumsum(2, dtype=torch.int32).bool()
    alive = _like(alive, b)
    last = product[:, :, -1].expand(-1, C, *product.shape[3:])
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
