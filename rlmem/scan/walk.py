"""The autograd function of kernels that keep a row's state every few slots, from which the way back walks again."""

from typing import Any

import torch
from torch import Tensor

from rlmem.scan import native


class Walk(torch.autograd.Function):
    """y [B, T, ...] and the last state of the kernels NAME_forward and NAME_backward.

    name: of the kernels
    widths: the kernel's integers after T
    every: slots from one state that is kept to the next
    options: numbers that the kernels take behind the inputs
    values: the position of the input whose shape y has
    shared: the position of the input that all rows share, which gets a gradient from each; None: there is none
    inputs: five tensors, the first state and the start flags
    """

    @staticmethod
    def forward(
        ctx: Any,
        name: str,
        widths: tuple[int, ...],
        every: int,
        options: tuple[float, ...],
        values: int,
        shared: int | None,
        *inputs: Tensor,
    ) -> tuple[Tensor, Tensor]:
        *five, first, start = map(native.addressable, inputs)
        B, T = start.shape
        y, last = torch.empty_like(five[values]), torch.empty_like(first)
        states = first.new_empty(B, -(-T // every), *first.shape[1:]) if any(ctx.needs_input_grad) else None
        ctx.name, ctx.sizes, ctx.options, ctx.shared = name, (T, *widths, every), options, shared
        tensors = *five, first, start, *options, y, last, states
        native.run_rows(f"{name}_forward", tensors, ctx.sizes, B, T * first[0].numel())
        ctx.save_for_backward(*five, start, states)
        return y, last

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_y: Tensor, grad_last: Tensor) -> tuple[Tensor | None, ...]:
        *five, start, states = ctx.saved_tensors
        B, T = start.shape
        gradients = native.addressable(grad_y), native.addressable(grad_last)
        shapes = [(B, *x.shape) if i == ctx.shared else x.shape for i, x in enumerate(five)]
        grads = [*(x.new_zeros(shape) for x, shape in zip(five, shapes, strict=True)), torch.empty_like(gradients[1])]
        tensors = *five, start, *ctx.options, states, *gradients, *grads
        native.run_rows(f"{ctx.name}_backward", tensors, ctx.sizes, B, T * gradients[1][0].numel())
        if ctx.shared is not None:
            grads[ctx.shared] = grads[ctx.shared].sum(0)
        return *[None] * 6, *grads, None
