"""A short causal convolution within episodes, on the native engine."""

from typing import Any

import torch
from torch import Tensor

from rlmem.scan import native
from rlmem.scan.native import check_flags


def convolve(v: Tensor, before: Tensor, start: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """b + sum_j w_j * v_{t-K+j} [B, T, E], j = 1 ... K, over slots of the episode only.

    v: [B, T, E]
    before: [B, K - 1, E], the slots before the first
    start: [B, T] bool
    w: [E, K]
    b: [E]
    """
    (B, T, E), K = v.shape, w.shape[1]
    check_flags(start, B, T)
    if before.shape != (B, K - 1, E) or w.shape != (E, K) or b.shape != (E,):
        found = [list(x.shape) for x in (before, w, b)]
        raise ValueError(f"expected before, w and b of shapes {[[B, K - 1, E], [E, K], [E]]}, got {found}")
    y: Tensor = _Convolution.apply(v, before, start, w.t(), b)
    return y


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *given: Tensor) -> Tensor:
        v, before, start, w, b = map(native.addressable, given)
        y = torch.empty_like(v)
        _run("convolution_forward", (v, before, start, w, b, y), w)
        ctx.save_for_backward(v, before, start, w)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_y: Tensor) -> tuple[Tensor | None, ...]:
        v, before, start, w = ctx.saved_tensors
        grads = torch.zeros_like(v), torch.zeros_like(before)
        of_rows = v.new_zeros(len(v), *w.shape), v.new_zeros(len(v), w.shape[1])
        _run("convolution_backward", (v, before, start, w, native.addressable(grad_y), *grads, *of_rows), w)
        grad_w, grad_b = (x.sum(0) for x in of_rows)
        return *grads, None, grad_w, grad_b


def _run(kernel: str, arguments: tuple[Any, ...], w: Tensor) -> None:
    (B, T, E), K = arguments[0].shape, len(w)
    native.run_rows(kernel, arguments, (T, E, K), B, T * E * K)
