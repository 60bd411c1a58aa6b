"""Products of float32 matrices whose entries are rounded to TF32, 10 bits of mantissa; sums and results are float32.

On CUDA they are cuBLAS's. Elsewhere the rounded numbers are multiplied in float32, which is slow: the definition, to
test what TF32 changes.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn import functional as F

UNUSED = 13
"""Bits of a float32's mantissa that TF32 does not have."""


def missing(device: torch.device) -> str | None:
    """The reason why `device` lacks such products; None if it has them. A CPU emulates them."""
    if device.type == "cuda" and torch.cuda.get_device_capability(device) < (8, 0):
        return "this GPU has no instructions for it"
    return None


def rounded(x: Tensor) -> Tensor:
    """x [float32], each number the nearest in TF32; ties go away from zero, as the hardware's conversion has it."""
    bits = x.contiguous().view(torch.int32)
    nearest = ((bits + (1 << UNUSED - 1)) & -(1 << UNUSED)).view(torch.float32)
    return torch.where(torch.isfinite(x), nearest, x)


def multiply(x: Tensor, W: Tensor, b: Tensor | None) -> Tensor:
    """x W^T + b of x [..., D], W [H, D] and b [H], in float32; it records no gradient."""
    if not x.is_cuda:
        return F.linear(rounded(x), rounded(W), b)
    with on_cuda():
        return F.linear(x, W, b)


@contextmanager
def on_cuda() -> Iterator[None]:
    """Within, torch may round what it multiplies on CUDA."""
    matmul = torch.backends.cuda.matmul
    before, matmul.allow_tf32 = matmul.allow_tf32, True
    try:
        yield
    finally:
        matmul.allow_tf32 = before
