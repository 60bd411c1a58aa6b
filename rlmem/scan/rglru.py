"""The gates of RG-LRU in one pass over memory each way, on the native engine."""

from typing import Any

import torch
from torch import Tensor

from rlmem.scan import native

STEEPEST = 1000.0
"""Bound of the derivative of the square root, as in the released code."""


def gates(pre: Tensor, u: Tensor, rate: Tensor) -> tuple[Tensor, Tensor]:
    """a = exp(-rate * sigmoid(p)) and b = sqrt(1 - a^2) * sigmoid(s) * u, [..., H] each.

    pre: [..., heads, 2, H / heads], p and s
    u: [..., H]
    rate: [H]
    """
    a, b = _Gates.apply(pre, u, rate)
    return a, b


class _Gates(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        pre, u, rate = map(native.addressable, inputs)
        a, b = torch.empty_like(u), torch.empty_like(u)
        _run("rglru_forward", (pre, u, rate, a, b), pre)
        ctx.save_for_backward(pre, u, rate, a)
        return a, b

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_a: Tensor, grad_b: Tensor) -> tuple[Tensor, ...]:
        pre, u, rate, a = ctx.saved_tensors
        given = native.addressable(grad_a), native.addressable(grad_b)
        grad_pre, grad_u, of_slots = torch.empty_like(pre), torch.empty_like(u), torch.empty_like(u)
        _run("rglru_backward", (pre, u, rate, a, *given, STEEPEST, grad_pre, grad_u, of_slots), pre)
        return grad_pre, grad_u, of_slots.flatten(0, -2).sum(0)


def _run(kernel: str, arguments: tuple[Any, ...], pre: Tensor) -> None:
    heads, _, width = pre.shape[-3:]
    native.run_rows(kernel, arguments, (heads, width), pre.numel() // max(2 * heads * width, 1), 2 * heads * width)
