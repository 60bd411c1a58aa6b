"""Attention of every slot to the last slots of its episode, on the native engine."""

from typing import Any

import torch
from torch import Tensor

from rlmem.scan import native
from rlmem.scan.native import addressable


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
    (B, T, H), S = q.shape, k.shape[1] - q.shape[1]
    wanted = [(B, S + T, H)] * 2 + [(B, T)] + ([] if bias is None else [(B, heads, T, S + 1)])
    given = [k, v, age] + ([] if bias is None else [bias])
    if S < 0 or H % heads or [x.shape for x in given] != wanted:
        found = [list(x.shape) for x in (q, *given)]
        raise ValueError(
            f"expected {heads} heads in q, k, v, age and bias of shapes {[(B, T, H), *wanted]}, got {found}"
        )
    y: Tensor = _Attention.apply(q, k, v, age, bias, heads)
    return y


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, age: Tensor, bias: Tensor | None, heads: int) -> Tensor:
        (B, T, H), S = q.shape, k.shape[1] - q.shape[1]
        q, k, v, age = map(addressable, (q, k, v, age))
        bias = None if bias is None else addressable(bias)
        y, sums = torch.empty_like(q), q.new_empty(B, heads, T)
        ctx.sizes = B, T, S, heads, H // heads
        _run("attention_forward", (q, k, v, age, bias, y, sums), ctx.sizes)
        ctx.save_for_backward(q, k, v, age, bias, y, sums)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_y: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, age, bias, y, sums = ctx.saved_tensors
        grads = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        grad_bias = None if bias is None else torch.zeros_like(bias)
        given = q, k, v, age, bias, y, sums, addressable(grad_y)
        _run("attention_backward", (*given, *grads, grad_bias), ctx.sizes)
        return *grads, None, grad_bias, None


def _run(kernel: str, arguments: tuple[Any, ...], sizes: tuple[int, ...]) -> None:
    """Run a kernel of attention.cpp."""
    native.call_in_parallel(kernel, arguments, [sizes])
