"""The `triton` engine, for scans on CUDA: the two walks of `linear.cpp`, with the running state in registers."""

import os
from contextlib import nullcontext
from functools import cache
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

BLOCK = 64
"""Channels of one program: two warps, so that 16 rows of 256 channels fill 64 multiprocessors."""
AHEAD = 8
"""Slots that are loaded before the first of them is used."""


@cache
def missing() -> str | None:
    """Why this engine cannot run here; None if it can."""
    try:
        import triton  # noqa: F401
    except ImportError:
        return "needs the package triton, which torch brings on Linux with CUDA"
    if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
        return "no CUDA device is available"
    return None


def forward(a: Tensor, b: Tensor, h0: Tensor, start: Tensor, reverse: bool) -> Tensor:
    """All states h [B, T, N]; see `rlmem.scan.linear._Scan` for shapes."""
    N = h0.shape[1]
    h = torch.empty(*start.shape, N, dtype=h0.dtype, device=h0.device)
    _launch("forward", (a, b, h0, start, h), h, EACH=N // b.shape[2], CONSTANT=a.dim() == 1, REVERSE=reverse)
    return h


def backward(
    a: Tensor, h: Tensor, h0: Tensor, start: Tensor, grad_h: Tensor, drivers: int, needs_a: bool, reverse: bool
) -> tuple[Tensor | None, Tensor, Tensor]:
    """(grad_a or None, grad_b, grad_h0)."""
    constant = a.dim() == 1
    grad_a = torch.empty_like(h0) if constant else torch.empty_like(h) if needs_a else h0
    grad_b, grad_h0 = torch.empty_like(h), torch.empty_like(h0)
    tensors = (a, h, h0, grad_h, grad_a, grad_b, grad_h0, start)
    _launch("backward", tensors, h, EACH=1, CONSTANT=constant, REVERSE=reverse, NEEDS_A=needs_a)
    if drivers < h.shape[2]:
        grad_b = grad_b.real.unflatten(2, (drivers, -1)).sum(-1)
    return (grad_a.sum(0) if constant else grad_a) if needs_a else None, grad_b, grad_h0


def _launch(kernel: str, tensors: tuple[Tensor, ...], h: Tensor, **flags: Any) -> None:
    """Run a kernel for states h [B, T, N]."""
    B, T, N = h.shape
    flags |= {"T": T, "N": N, "COMPLEX": h.is_complex(), "BLOCK": BLOCK, "AHEAD": AHEAD, "num_warps": 2}
    launch(kernel, (B, -(-N // BLOCK)), tensors, **flags)


def launch(kernel: str, grid: tuple[int, ...], tensors: tuple[Tensor, ...], **flags: Any) -> None:
    """Run a kernel on the device of its tensors: Triton alone would take the current one.

    kernel: its name in `triton_kernels`
    tensors: complex ones are passed as pairs, and flags as bytes
    """
    run = getattr(import_module("rlmem.scan.triton_kernels"), kernel)[grid]
    passed = [
        torch.view_as_real(x) if x.is_complex() else x.view(torch.uint8) if x.dtype == torch.bool else x
        for x in tensors
    ]
    with torch.cuda.device(tensors[0].device) if tensors[0].is_cuda else nullcontext():
        run(*passed, **flags)
