"""Attention of every slot to the last slots of its episode: a native kernel, or torch's in chunks of slots."""

from math import inf, nan
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from rlmem.scan import native

SMALLEST_CHUNK = 64
"""The fewest queries of a chunk: smaller matrix products would be slow."""


def attend(q: Tensor, k: Tensor, v: Tensor, age: Tensor, heads: int, bias: Tensor | None = None) -> Tensor:
    """What every slot reads [B, T, H]: sum_n softmax_n(q_t . k_{t-n} / sqrt(H / heads) + bias_n) v_{t-n} of each head.

    The sum is over n = 0, ..., min(age_t, S): S slots at most, of the episode alone. A slot that sees an inf or a NaN
    reads NaN; what it does not see leaves no trace.

    q: [B, T, H]
    k, v: [B, S + T, H], whose first S slots lie before the row
    age: [B, T], slots since the episode's start
    heads: the heads, which share H evenly
    bias: [B, heads, T, S + 1] for n = S, ..., 0; None: zeros
    """
    inputs = [k, v, age] + ([] if bias is None else [bias])
    if not native.takes(q, *inputs):
        return in_chunks(q, k, v, age, heads, bias)
    (B, T, H), S = q.shape, k.shape[1] - q.shape[1]
    wanted = [(B, S + T, H)] * 2 + [(B, T)] + ([] if bias is None else [(B, heads, T, S + 1)])
    if S < 0 or H % heads or [x.shape for x in inputs] != wanted:  # the kernel reads by address
        shapes = [list(x.shape) for x in (q, *inputs)]
        raise ValueError(
            f"expected {heads} heads in q, k, v, age and bias of shapes {[(B, T, H), *wanted]}, got {shapes}"
        )
    y: Tensor = _Attention.apply(q, k, v, age, bias, heads)
    return y


def in_chunks(q: Tensor, k: Tensor, v: Tensor, age: Tensor, heads: int, bias: Tensor | None) -> Tensor:
    """`attend` by torch, with queries in chunks about as long as the window, each against its own keys and the window
    before: O(T S) memory."""
    (B, T, H), S = q.shape, k.shape[1] - q.shape[1]
    C = max(S + 1, SMALLEST_CHUNK)
    C = T if T <= 2 * C else C
    padding = -T % C

    def chunks(z: Tensor, size: int) -> Tensor:  # [B, -, F] -> [B * n, size, F]
        return F.pad(z, (0, 0, 0, padding)).unfold(1, size, C).transpose(2, 3).flatten(0, 1)

    def split(z: Tensor) -> Tensor:  # [B * n, size, H] -> [B * n, heads, size, H / heads]
        return z.unflatten(2, (heads, -1)).transpose(1, 2)

    lag = torch.arange(S, S + C, device=q.device)[:, None] - torch.arange(C + S, device=q.device)
    reach = chunks(age.clamp(max=S)[..., None], C)
    visible = mask = ((lag >= 0) & (lag <= reach))[:, None]  # [B * n, 1, C, C + S]
    if bias is not None:
        # [i, lag] to [i, j] with j - i - (S - lag) constant: a row that is one longer shifts each by one more
        by_lag = F.pad(split(chunks(bias.transpose(1, 2).flatten(2), C)), (0, C)).flatten(-2)
        mask = by_lag[..., : C * (C + S)].unflatten(-1, (C, C + S)).masked_fill(~visible, -inf)
    # An inf or NaN of an earlier episode would pass a weight of zero. Such slots are zeroed, and a slot that may
    # see one becomes NaN by selection. One slot alone has no earlier episode: what lies before it is cleared.
    lost = ~(k.isfinite() & v.isfinite()).all(-1, keepdim=True) if T > 1 else None
    if lost is not None:
        k, v = torch.where(lost, 0, k), torch.where(lost, 0, v)
    y = F.scaled_dot_product_attention(
        split(chunks(q, C)), split(chunks(k, C + S)), split(chunks(v, C + S)), attn_mask=mask
    )
    if lost is not None:
        y = torch.where((visible & chunks(lost, C + S).transpose(1, 2)[:, None]).any(-1, keepdim=True), nan, y)
    return y.transpose(1, 2).reshape(B, -1, H)[:, :T]


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, age: Tensor, bias: Tensor | None, heads: int) -> Tensor:
        (B, T, H), S = q.shape, k.shape[1] - q.shape[1]
        q, k, v, age = map(native.addressable, (q, k, v, age))
        bias = None if bias is None else native.addressable(bias)
        y, sums = torch.empty_like(q), q.new_empty(B, heads, T)
        ctx.sizes = B, T, S, heads, H // heads
        native.call_in_parallel("attention_forward", (q, k, v, age, bias, y, sums), [ctx.sizes])
        ctx.save_for_backward(q, k, v, age, bias, y, sums)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_y: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, age, bias, y, sums = ctx.saved_tensors
        grads = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        grad_bias = None if bias is None else torch.zeros_like(bias)
        inputs = q, k, v, age, bias, y, sums, native.addressable(grad_y)
        native.call_in_parallel("attention_backward", (*inputs, *grads, grad_bias), [ctx.sizes])
        return *grads, None, grad_bias, None
