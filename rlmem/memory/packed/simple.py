"""The packed sequences of Elman, LMU and IndRNN: one product per step."""

import torch
from torch import Tensor

from rlmem.memory.packed.steps import previous_states

ACTIVATIONS = {"tanh": torch.tanh_, "relu": torch.relu_}


def simple_sequence(
    wx: Tensor, h0: Tensor, U: Tensor, sizes: list[int], activation: str = "tanh", width: int | None = None
) -> Tensor:
    """All h [S, H] of h' = phi(wx + U h), on any device.

    wx: [S, H], the input's part
    h0: [E, H], the first states
    U: [H, H], or [H] where it acts elementwise
    activation: phi, "tanh" or "relu"
    width: phi acts on the first `width` of the H units, and the others are linear; by default it acts on all
    """
    return _Sequence.apply(wx, h0, U, sizes, activation, width)


class _Sequence(torch.autograd.Function):
    """The gradient of U is a single product over all slots."""

    @staticmethod
    def forward(ctx, wx: Tensor, h0: Tensor, U: Tensor, sizes: list[int], activation: str, width: int | None) -> Tensor:
        h_all, h = torch.empty_like(wx), h0
        for now, wx_t in zip(h_all.split(sizes), wx.split(sizes), strict=True):
            before = h[: len(now)]
            h = torch.addmm(wx_t, before, U.t(), out=now) if U.dim() == 2 else torch.addcmul(wx_t, before, U, out=now)
            ACTIVATIONS[activation](h[:, :width])
        ctx.save_for_backward(h_all, h0, U)
        ctx.sizes, ctx.activation, ctx.width = sizes, activation, width
        return h_all

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_h_all: Tensor):
        h_all, h0, U = ctx.saved_tensors
        slope, squashed = torch.ones_like(h_all), h_all[:, : ctx.width]
        slope[:, : ctx.width] = squashed > 0 if ctx.activation == "relu" else 1 - squashed.square()
        grad_wx, grad_h = torch.empty_like(h_all), torch.zeros_like(h0)
        steps = zip(*(x.split(ctx.sizes) for x in (grad_wx, grad_h_all, slope)), strict=True)
        for now, grad_t, slope_t in reversed(list(steps)):
            dh = grad_h[: len(now)]
            torch.mul(dh.add_(grad_t), slope_t, out=now)
            torch.mm(now, U, out=dh) if U.dim() == 2 else torch.mul(now, U, out=dh)
        before = previous_states(h0, h_all, ctx.sizes)
        grad_U = grad_wx.t() @ before if U.dim() == 2 else (grad_wx * before).sum(0)
        return grad_wx, grad_h, grad_U, None, None, None
