"""GRU and LSTM over packed episodes on CUDA: a kernel for the whole sequence, each way (`rlmem.scan.cells`)."""

import os
from typing import Any

import torch
from torch import Tensor

from rlmem.scan import triton_scan
from rlmem.scan.matmul import Precision, gradient_of_weight
from rlmem.scan.native import addressable
from rlmem.types import to_device

ENABLED = os.environ.get("RLMEM_CUDA_CELLS", "triton") != "cudnn"
"""Whether these kernels take the place of cuDNN's."""
EPISODES, COLUMNS, DEPTH, WARPS = 16, 32, 32, 4
"""The sizes of a program's products: episodes, columns of the result, and what is summed at once; and its warps."""


def takes(x: Tensor, *states: Tensor) -> bool:
    """Whether the kernels read inputs and states of such types and widths."""
    fit = all(s.dtype == torch.float32 and s.shape[1] % max(COLUMNS, DEPTH) == 0 for s in states)
    return ENABLED and x.is_cuda and x.dtype == torch.float32 and fit and triton_scan.missing() is None


def gru(wx: Tensor, h0: Tensor, U: Tensor, bias: Tensor, sizes: Tensor, precision: Precision) -> Tensor:
    """See `rlmem.scan.cells.gru`."""
    h: Tensor = _GRU.apply(*map(addressable, (wx, h0, U, bias)), sizes, precision)
    return h


def lstm(wx: Tensor, h0: Tensor, c0: Tensor, U: Tensor, sizes: Tensor, precision: Precision) -> tuple[Tensor, Tensor]:
    """See `rlmem.scan.cells.lstm`."""
    states: tuple[Tensor, Tensor] = _LSTM.apply(*map(addressable, (wx, h0, c0, U)), sizes, precision)
    return states


class _GRU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, wx: Tensor, h0: Tensor, U: Tensor, bias: Tensor, sizes: Tensor, precision: Precision) -> Tensor:
        steps, before = _steps(sizes, wx.device)
        uh_n, h = wx.new_empty(len(wx), h0.shape[1]), wx.new_empty(len(wx), h0.shape[1])
        _run("gru_forward", (wx, h0, U, bias, *steps, h, uh_n), h0, precision)
        ctx.save_for_backward(wx, uh_n, h, h0, U, steps, before)
        ctx.precision = precision
        return h

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_h: Tensor):
        gates, uh_n, h, h0, U, steps, before = ctx.saved_tensors
        before = torch.cat([h0, h])[before]
        grad_wx, grad_uh, grad_h0 = torch.empty_like(gates), torch.empty_like(gates), torch.zeros_like(h0)
        grads = addressable(grad_h), grad_wx, grad_uh, grad_h0
        _run("gru_backward", (gates, uh_n, before, U.t().contiguous(), *steps, *grads), h0, ctx.precision)
        return grad_wx, grad_h0, gradient_of_weight(grad_uh, before, ctx.precision), grad_uh.sum(0), None, None


class _LSTM(torch.autograd.Function):
    @staticmethod
    def forward(ctx, wx: Tensor, h0: Tensor, c0: Tensor, U: Tensor, sizes: Tensor, precision: Precision):
        steps, before = _steps(sizes, wx.device)
        h, c = wx.new_empty(len(wx), h0.shape[1]), wx.new_empty(len(wx), h0.shape[1])
        _run("lstm_forward", (wx, h0, c0, U, *steps, h, c), h0, precision)
        ctx.save_for_backward(wx, h, c, h0, c0, U, steps, before)
        ctx.precision = precision
        return h, c

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_h: Tensor, grad_c: Tensor):
        gates, h, c, h0, c0, U, steps, before = ctx.saved_tensors
        h_before, c_before = torch.cat([h0, h])[before], torch.cat([c0, c])[before]
        grad_wx, grad_h0, grad_c0 = torch.empty_like(gates), torch.zeros_like(h0), torch.zeros_like(c0)
        grads = addressable(grad_h), addressable(grad_c), grad_wx, grad_h0, grad_c0
        _run("lstm_backward", (gates, c, c_before, U.t().contiguous(), *steps, *grads), h0, ctx.precision)
        return grad_wx, grad_h0, grad_c0, gradient_of_weight(grad_wx, h_before, ctx.precision), None, None


def _steps(sizes: Tensor, device: torch.device) -> tuple[Tensor, Tensor]:
    """On the device: the episodes of each step and the packed position of its first one, [2, T]; and the row [S] of
    each slot's state before, among the first states and those of all slots."""
    first = sizes.cumsum(0) - sizes
    steps_back = torch.cat([sizes.new_zeros(1), sizes[:-1]]).repeat_interleave(sizes)
    slots = torch.arange(len(steps_back), device=sizes.device)
    before = slots - steps_back + torch.where(slots < sizes[0], 0, sizes[0])
    return to_device(torch.stack([sizes, first]).int().numpy(), device), to_device(before.numpy(), device)


def _run(kernel: str, tensors: tuple[Tensor, ...], h0: Tensor, precision: Precision) -> None:
    E, H = h0.shape
    T = next(len(x) for x in tensors if x.dtype == torch.int32)
    sizes: dict[str, Any] = {"H": H, "M": EPISODES, "J": COLUMNS, "K": DEPTH}
    how = {"PRECISION": "tf32" if precision == "tf32" else "tf32x3", "num_warps": WARPS}
    triton_scan.launch(f"triton_cell_kernels.{kernel}", (-(-E // EPISODES),), tensors, T=T, **sizes, **how)
