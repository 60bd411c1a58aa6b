"""Matrix products: in single precision on the CPU by a kernel of the native engine (docs/design.md)."""

import platform
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rlmem.errors import UserError
from rlmem.scan import native, products
from rlmem.types import watchers

FEW = 16
"""Rows up to which packing a matrix for a single product costs more than it saves."""
LITTLE = 1 << 18
"""Multiplications up to which recording a gradient in Python costs more than the kernel saves."""

KERNEL_LEADS = platform.machine().lower() in ("x86_64", "amd64")
"""Elsewhere torch's library may use a unit for matrices, as on Apple's processors, which the kernel does not."""

Precision = Literal["float32", "bf16", "tf32"]
"""What products of float32 matrices on CUDA round their inputs to; sums and results are float32."""

Kept = dict[tuple[str, int], tuple[Tensor, int, Any]]
"""What was derived and the identity of its weight -> the weight, its version, the value."""


class _Thread(threading.local):
    """How this thread takes products.

    derived: what was derived while weights are constant; None: they are not
    rows_alike: whether it is within `rows_alike`
    """

    derived: Kept | None = None
    rows_alike = False


_thread = _Thread()
_bf16 = False
"""Whether products on CUDA are those of numbers rounded to bfloat16, in this process."""
Made = TypeVar("Made")


def compute_in(precision: Precision, device: torch.device) -> None:
    """Let products on CUDA be of this precision, in this process. Raises UserError where `device` lacks them."""
    global _bf16
    if precision != "float32" and (why := _missing(precision, device)):
        raise UserError(f"precision={precision}: {why}; e.g. precision=float32")
    _bf16 = precision == "bf16"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"


def _missing(precision: Precision, device: torch.device) -> str | None:
    """The reason why `device` has no products in bf16 or TF32; None if it has them."""
    if device.type != "cuda":
        return f"it needs an NVIDIA GPU, and this run is on {device}"
    if precision == "bf16" and not hasattr(torch.ops.aten.mm, "dtype"):
        return f"torch {torch.__version__} has no such products; expected a newer torch"
    return None if torch.cuda.get_device_capability(device) >= (8, 0) else "this GPU has no instructions for it"


@contextmanager
def constant_weights(kept: Kept | None = None) -> Iterator[None]:
    """Within, weights do not change, as in acting: what is `derived` from them is computed once.

    kept: what was derived before and is added to, for weights that stay constant from one `with` to the next
    """
    before, _thread.derived = _thread.derived, {} if kept is None else kept
    try:
        yield
    finally:
        _thread.derived = before


@contextmanager
def rows_alike() -> Iterator[None]:
    """Within, float32 products of few rows are the kernel's, as those of many are, which make each row by itself."""
    before, _thread.rows_alike = _thread.rows_alike, True
    try:
        yield
    finally:
        _thread.rows_alike = before


def derives_once() -> bool:
    """Whether what is `derived` here is kept: where weights are constant and no gradient is recorded."""
    # Compiled code and a graph run again, when weights have changed, and read this value.
    runs_again = torch.compiler.is_compiling() or bool(watchers)
    return _thread.derived is not None and not runs_again and not torch.is_grad_enabled()


def derived(what: str, W: Tensor, make: Callable[[Tensor], Made]) -> Made:
    """The value of `make(W)`, which is kept where weights are constant and no gradient is recorded.

    what: the name of the value; `make` must be the same function of the same weights wherever it is used
    W: a weight; if it has changed in place nevertheless, the value is computed anew
    """
    kept = _thread.derived if derives_once() else None
    if kept is None:
        return make(W)
    key = what, id(W)
    if key not in kept or kept[key][0] is not W or kept[key][1] != W._version:
        kept[key] = W, W._version, make(W)
    found: Made = kept[key][2]
    return found


class Linear(nn.Linear):
    """`torch.nn.Linear`, computed by `linear`."""

    def forward(self, input: Tensor) -> Tensor:
        return linear(input, self.weight, self.bias)


def linear(x: Tensor, W: Tensor, b: Tensor | None = None) -> Tensor:
    """x W^T + b for x [..., D], W [H, D], b [H]; differentiable."""
    if torch.compiler.is_compiling():  # exported, too: a file must not depend on the hardware that it was made on
        return F.linear(x, W, b)
    if not torch.is_grad_enabled():
        return product(x, W, b)
    many = _thread.rows_alike or x.numel() * len(W) > LITTLE
    if _rounds(x, W) or (many and _is_native(x, W, b)):
        y: Tensor = _Linear.apply(x.flatten(0, -2) if x.dim() > 1 else x[None], W, b)
        return y.view(*x.shape[:-1], len(W))
    return F.linear(x, W, b)


def product(x: Tensor, W: Tensor, b: Tensor | None = None) -> Tensor:
    """`linear`, recording no gradient."""
    constant, rounds = _thread.derived is not None and isinstance(W, nn.Parameter), _rounds(x, W)
    if not (rounds or _is_native(x, W, b, constant)):
        return F.linear(x, W, b)
    rows = x if x.dim() == 2 else x.flatten(0, -2) if x.dim() > 2 else x[None]
    if rounds:
        y = torch.mm(rows.bfloat16(), W.bfloat16().t(), out_dtype=torch.float32)
        y = y if b is None else y + b
    else:
        y = products.product(rows, W, b, derived("packed", W, products.packed) if constant else None)
    return y if x.dim() == 2 else y.view(*x.shape[:-1], len(W))


def gradient_of_weight(grad_y: Tensor, x: Tensor) -> Tensor:
    """grad_y^T x [H, D], the gradient of W from that of y [n, H] and x [n, D]."""
    if torch.is_grad_enabled() or _rounds(x, grad_y):
        return linear(grad_y.t(), x.t())  # which can be differentiated again
    return products.product(grad_y.t(), x.t()) if KERNEL_LEADS and native.takes(grad_y, x) else grad_y.t() @ x


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, W: Tensor, b: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, W)
        return product(x, W, b)

    @staticmethod
    def backward(ctx, grad_y: Tensor):
        x, W = ctx.saved_tensors
        needs_x, needs_W, needs_b = ctx.needs_input_grad
        multiply = linear if torch.is_grad_enabled() else product  # the former can be differentiated again
        grad_x = multiply(grad_y, W.t()) if needs_x else None
        grad_W = gradient_of_weight(grad_y, x) if needs_W else None
        return grad_x, grad_W, grad_y.sum(0) if needs_b else None


def _rounds(x: Tensor, W: Tensor) -> bool:
    """Whether a product is one of numbers rounded to bfloat16."""
    return _bf16 and x.is_cuda and x.dtype == W.dtype == torch.float32


def _is_native(x: Tensor, W: Tensor, b: Tensor | None, constant: bool = False) -> bool:
    """Whether a product is the kernel's. Unusual or wrong arguments go to torch, whose error messages are clearer.

    constant: whether W is packed once for many products
    """
    if torch.compiler.is_compiling() or x.dtype != torch.float32 or not KERNEL_LEADS or x.dim() == 0:
        return False  # first, as sizes are symbols while compiling
    if not (constant or _thread.rows_alike or x.numel() > FEW * x.shape[-1]):
        return False
    fit = W.dim() == 2 and x.shape[-1] == W.shape[1] and (b is None or b.shape == W.shape[:1])
    return fit and native.takes(x, W, *([] if b is None else [b]))
