"""The `triton` engine, for scans on CUDA: one program per row and block of channels, sequential in time.

The same two walks as `kernels.cpp`, with the running state in registers. Complex numbers are interleaved pairs. A
decay that is constant over time is read once. `TRITON_INTERPRET=1` runs the kernels on the CPU, slowly, for tests.
"""

import os
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import torch
from torch import Tensor

BLOCK = 64
"""Channels of one program: two warps, so that 16 rows of 256 channels fill 64 multiprocessors."""


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
    """See `rlmem.scan.linear._Scan` for shapes."""
    B, T = start.shape
    N = h0.shape[1]
    h = torch.empty(B, T, N, dtype=h0.dtype, device=h0.device)
    arguments = (_real(x) for x in (a, b, h0))
    grid, sizes = _launch(a, h, N // b.shape[2], reverse)
    with _device_of(h):
        _kernels().forward[grid](*arguments, start.view(torch.uint8), _real(h), **sizes)
    return h


def backward(
    a: Tensor, h: Tensor, h0: Tensor, start: Tensor, grad_h: Tensor, drivers: int, needs_a: bool, reverse: bool
) -> tuple[Tensor | None, Tensor, Tensor]:
    """(grad_a or None, grad_b, grad_h0)."""
    N = h.shape[2]
    constant = a.dim() == 1
    grad_a = torch.empty_like(h0) if constant else torch.empty_like(h) if needs_a else h0
    grad_b, grad_h0 = torch.empty_like(h), torch.empty_like(h0)
    grid, sizes = _launch(a, h, 1, reverse)
    tensors = (_real(x) for x in (a, h, h0, grad_h, grad_a, grad_b, grad_h0))
    with _device_of(h):
        _kernels().backward[grid](*tensors, start.view(torch.uint8), NEEDS_A=needs_a, **sizes)
    if drivers < N:
        grad_b = grad_b.real.unflatten(2, (drivers, -1)).sum(-1)
    return (grad_a.sum(0) if constant else grad_a) if needs_a else None, grad_b, grad_h0


def _device_of(x: Tensor) -> AbstractContextManager[Any]:
    """Triton launches on the current device, whatever device the tensors are on."""
    return torch.cuda.device(x.device) if x.is_cuda else nullcontext()


def _real(x: Tensor) -> Tensor:
    return torch.view_as_real(x) if x.is_complex() else x


def _launch(a: Tensor, h: Tensor, each: int, reverse: bool) -> tuple[tuple[int, int], dict[str, Any]]:
    B, T, N = h.shape
    sizes = {"T": T, "N": N, "EACH": each, "CONSTANT": a.dim() == 1, "COMPLEX": h.is_complex(), "REVERSE": reverse}
    return (B, -(-N // BLOCK)), sizes | {"BLOCK": BLOCK, "num_warps": 2}


def _kernels() -> Any:
    from rlmem.scan import triton_kernels

    return triton_kernels
