"""The gated delta rule on the native engine: slot by slot, columns of S side by side, S stored every few slots only."""

from typing import Any

import torch
from torch import Tensor

from rlmem.scan import native

KEPT = 1 << 16
"""Numbers of S that the slots of a piece may hold while they are walked again: they fit the second-level cache."""


def walk(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, f: Tensor, S0: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
    """y [B, T, v] and the final S of `rlmem.scan.delta_scan`, with the decay f itself; all of one real type."""
    y, S = _Delta.apply(f, beta, v, k, q, S0, start)
    return y, S


class _Delta(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        f, beta, v, k, q, S0, start = map(native.addressable, inputs)
        (B, T, V), K = v.shape, k.shape[2]
        every = max(4, min(64, KEPT // (K * min(V, 64))))
        y, last = torch.empty_like(v), torch.empty_like(S0)
        saved = S0.new_empty(B, -(-T // every), K, V) if any(ctx.needs_input_grad) else None
        native.run_rows("delta_forward", (f, beta, v, k, q, S0, start, y, last, saved), (T, K, V, every), B, T * K * V)
        ctx.save_for_backward(f, beta, v, k, q, start, saved)
        ctx.every = every
        return y, last

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_y: Tensor, grad_last: Tensor) -> tuple[Tensor | None, ...]:
        *inputs, start, saved = ctx.saved_tensors
        (B, T, V), K = inputs[2].shape, inputs[3].shape[2]
        given = native.addressable(grad_y), native.addressable(grad_last)
        grads = [*map(torch.zeros_like, inputs), torch.empty_like(given[1])]
        arguments = (*inputs, start, saved, *given, *grads)
        native.run_rows("delta_backward", arguments, (T, K, V, ctx.every), B, T * K * V)
        return *grads, None
