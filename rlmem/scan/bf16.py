"""Products of matrices whose entries are rounded to bfloat16; sums and results are in single precision.

On CUDA these are products of bfloat16 matrices with a float32 result. On a CPU, those of many rows are oneDNN's, which
may then use the instructions for bfloat16. With RLMEM_BF16=emulated, the rounded numbers are multiplied in float32, on
any machine: the definition, to test what bf16 changes and to run agents where the hardware is missing.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from rlmem.errors import UserError
from rlmem.system.hardware import processor_features

FEW = 64
"""Rows up to which a CPU multiplies in float32: it waits for the weights, not for the products."""


def missing(device: torch.device) -> str | None:
    """Why `device` does not have such products; None if it does, or if they are emulated."""
    if emulated():
        return None
    needed = torch.ops.aten.mm if device.type == "cuda" else torch.backends.mkldnn
    if not hasattr(needed, "dtype" if device.type == "cuda" else "matmul"):
        return f"torch {torch.__version__} has no such products; expected a newer torch"
    if device.type == "cuda":
        there = torch.cuda.is_bf16_supported(including_emulation=False)
        return None if there else "this GPU has no instructions for it"
    features = processor_features().split()
    fits = device.type == "cpu" and ("avx512_bf16" in features or "amx_bf16" in features)
    fits = fits and torch.backends.mkldnn.is_available()
    return None if fits else "this processor has no instructions for it (avx512_bf16 or amx_bf16)"


def emulated() -> bool:
    """Whether the products are emulated. Raises UserError for another value of RLMEM_BF16."""
    value = os.environ.get("RLMEM_BF16", "")
    if value not in ("", "emulated"):
        raise UserError(f"RLMEM_BF16={value}: accepted: emulated; e.g. unset RLMEM_BF16")
    return value == "emulated"


def rounded(x: Tensor) -> Tensor:
    """x, each number the nearest bfloat16, still in single precision."""
    return x.bfloat16().float()


def prepared(W: Tensor) -> Tensor:
    """A weight as `multiply` takes it."""
    return W.bfloat16() if W.is_cuda and not emulated() else rounded(W)


def multiply(x: Tensor, W: Tensor) -> Tensor:
    """x W^T [n, H] of x [n, D] and a `prepared` W [H, D], single precision; records no gradient."""
    if W.dtype == torch.bfloat16:
        return torch.mm(x.bfloat16(), W.t(), out_dtype=torch.float32)
    x = rounded(x)
    if len(x) <= FEW or emulated():
        return x @ W.t()
    with _onednn_in_bf16():
        return x @ W.t()


@contextmanager
def _onednn_in_bf16() -> Iterator[None]:
    """Within, oneDNN may multiply float32 matrices by instructions for bfloat16, in all threads of the process.

    What is multiplied within is rounded already, so that it does not matter whether it does. Products of several
    threads may overlap: the first one in sets the mode, and the last one out restores it.
    """
    _inside.enter()
    try:
        yield
    finally:
        _inside.leave()


class _Inside:
    """How many threads multiply now, and oneDNN's mode before the first of them."""

    def __init__(self) -> None:
        self.lock, self.number, self.before = threading.Lock(), 0, ""

    def enter(self) -> None:
        with self.lock:
            if self.number == 0:
                matmul = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
                self.before, matmul.fp32_precision = matmul.fp32_precision, "bf16"
            self.number += 1

    def leave(self) -> None:
        with self.lock:
            self.number -= 1
            if self.number == 0:
                torch.backends.mkldnn.matmul.fp32_precision = self.before  # type: ignore[attr-defined]


_inside = _Inside()
