"""Recurrent cells over packed episodes: the loop over steps, and a fast loop with hand-written gradients.

S slots of E episodes lie in the order of `torch.nn.utils.rnn.PackedSequence`; `sizes` has the number of episodes that
take part in each step.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from rlmem.scan.cells import previous_states
from rlmem.types import State


def over_steps(
    cell: Callable[[Any, State], tuple[Tensor, State]], inputs: Iterable[Any], sizes: list[int], state: State
) -> tuple[Tensor, State]:
    """Call `cell` for every step, from the first states [E, ...]: outputs [S, H], and each episode's final state."""
    outputs, ended, running = [], [], tree_leaves(state)[0].shape[0]
    for x, size in zip(inputs, sizes, strict=True):
        if size < running:
            ended.append(tree_map(lambda s, n=size: s[n:], state))
            state, running = tree_map(lambda s, n=size: s[:n], state), size
        y, state = cell(x, state)
        outputs.append(y)
    ended.append(state)
    return torch.cat(outputs), tree_map(lambda *parts: torch.cat(parts[::-1]), *ended)


class SharedWeight:
    """The products drive_t + W h_t of a loop over steps of `sizes`, for W [out, in] and drive [S, out].

    The gradient of W is one product over all slots; autograd alone would form and add one for every slot.
    """

    def __init__(self, W: Tensor, drive: Tensor, sizes: list[int]):
        self.transposed = W.detach().t()
        self.read: list[Tensor] = []
        all_slots = _GradientOfAllSlots.apply(drive, W, self.read)
        self.drive = iter(all_slots.split(sizes) if len(sizes) > 1 else (all_slots,))

    def product(self, h: Tensor) -> Tensor:
        """drive_t + W h [n, out] of the next step."""
        self.read.append(h.detach())
        return torch.addmm(next(self.drive), h, self.transposed)


class _GradientOfAllSlots(torch.autograd.Function):
    """Returns `drive` [S, out]. Its gradient equals that of the products W h, from which backward takes W's."""

    @staticmethod
    def forward(ctx, drive: Tensor, W: Tensor, read: list[Tensor]) -> Tensor:
        ctx.read = read
        return drive.view_as(drive)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad: Tensor):
        return grad, grad.t() @ torch.cat(ctx.read), None


ACTIVATIONS = {"tanh": torch.tanh_, "relu": torch.relu_}


class SimpleSequence(torch.autograd.Function):
    """All h [S, H] of h' = phi(wx + U h), on any device; the gradient of U is a single product over all slots.

    wx: [S, H], the input's part
    h0: [E, H], the first states
    U: [H, H], or [H] where it acts elementwise
    activation: phi, "tanh" or "relu"
    width: phi acts on the first `width` of the H units, and the others are linear; None: it acts on all
    """

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
