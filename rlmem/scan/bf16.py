"""Products of matrices whose entries are rounded to bfloat16; sums and results are in single precision.

On CUDA these are products of bfloat16 matrices with a float32 result. On a CPU they are a kernel's, which rounds what
it reads (kernels/bf16.cpp); torch has no product there whose result is not rounded, too. With RLMEM_BF16=emulated, the
rounded numbers are multiplied in float32, on any machine: the definition, to test what bf16 changes and to run agents
where the hardware is missing.
"""

import os

import torch
from torch import Tensor

from rlmem.errors import UserError
from rlmem.scan import native
from rlmem.system.hardware import processor_features


def missing(device: torch.device) -> str | None:
    """The reason why `device` lacks such products; None if it has them, or if they are emulated."""
    if emulated():
        return None
    if device.type == "cuda":
        if not hasattr(torch.ops.aten.mm, "dtype"):
            return f"torch {torch.__version__} has no such products; expected a newer torch"
        there = torch.cuda.is_bf16_supported(including_emulation=False)
        return None if there else "this GPU has no instructions for it"
    if device.type != "cpu" or "avx512_bf16" not in processor_features().split():
        return "this processor has no instructions for it (avx512_bf16)"
    return None if native.exports("bf16_product") else f"no kernel: {native.missing() or 'the compiler is too old'}"


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
    """W^T [D, H] of a weight, as `multiply` takes it; contiguous on a CPU, whose BLAS is faster then."""
    if W.is_cuda:
        return (rounded(W) if emulated() else W.bfloat16()).t()
    return rounded(W).t().contiguous()


def multiply(x: Tensor, Wt: Tensor, b: Tensor | None) -> Tensor:
    """x W^T + b [n, H] of x [n, D] and a `prepared` W, single precision, by torch; records no gradient."""
    if Wt.dtype == torch.bfloat16:
        y = torch.mm(x.bfloat16(), Wt, out_dtype=torch.float32)
        return y if b is None else y + b
    return rounded(x) @ Wt if b is None else torch.addmm(b, rounded(x), Wt)


def has_kernel(x: Tensor) -> bool:
    """Whether products with x are the kernel's."""
    return x.device.type == "cpu" and not emulated()
