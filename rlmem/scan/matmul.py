"""Matrix products: in single precision on the CPU by a kernel of the native engine (docs/design.md), in bf16 or TF32.

Which precision a product has, its caller says: it belongs to an agent, whose modules carry it.
"""

import platform
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rlmem.scan import bf16, native, products, tf32
from rlmem.types import watchers

FEW = 16
"""Rows up to which packing a matrix for a single product costs more than it saves."""
FEW_ROUNDED = 256
"""The same in bf16, beside a product of rounded numbers in float32."""
LITTLE = 1 << 18
"""Multiplications up to which recording a gradient in Python costs more than the kernel saves."""

KERNEL_LEADS = platform.machine().lower() in ("x86_64", "amd64")
"""Elsewhere torch's library may use a unit for matrices, as on Apple's processors, which the kernel does not."""

Precision = Literal["float32", "bf16", "tf32"]
"""Of the inputs of products in single precision; sums, results and all else are float32. Doubles stay doubles."""

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
Made = TypeVar("Made")


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

    precision: Precision = "float32"

    def forward(self, input: Tensor) -> Tensor:
        return linear(input, self.weight, self.bias, self.precision)


def linear(x: Tensor, W: Tensor, b: Tensor | None = None, precision: Precision = "float32") -> Tensor:
    """x W^T + b for x [..., D], W [H, D], b [H]; differentiable."""
    if torch.compiler.is_compiling():  # exported, too: a file must not depend on the hardware that it was made on
        rounds = precision == "bf16" and _rounds(x, W, precision)
        return F.linear(bf16.rounded(x), bf16.rounded(W), b) if rounds else F.linear(x, W, b)
    if not torch.is_grad_enabled():
        return product(x, W, b, precision)
    many = _thread.rows_alike or x.numel() * len(W) > LITTLE
    if _rounds(x, W, precision) or (many and _is_native(x, W, b)):
        y: Tensor = _Linear.apply(x.flatten(0, -2) if x.dim() > 1 else x[None], W, b, precision)
        return y.view(*x.shape[:-1], len(W))
    return F.linear(x, W, b)


def product(x: Tensor, W: Tensor, b: Tensor | None = None, precision: Precision = "float32") -> Tensor:
    """`linear`, recording no gradient."""
    constant = _thread.derived is not None and isinstance(W, nn.Parameter)
    rounds = _rounds(x, W, precision)
    if not (rounds or _is_native(x, W, b, constant)):
        return F.linear(x, W, b)
    rows = x if x.dim() == 2 else x.flatten(0, -2) if x.dim() > 2 else x[None]
    if rounds and precision == "tf32":
        y = tf32.multiply(rows, W, b)
    elif not rounds:
        y = products.product(rows, W, b, derived("packed", W, products.packed) if constant else None)
    elif bf16.has_kernel(x) and not (constant and len(rows) <= FEW_ROUNDED):
        y = products.bf16_product(rows, W, b)
    else:
        y = bf16.multiply(rows, derived("bf16", W, bf16.prepared) if constant else bf16.prepared(W), b)
    return y if x.dim() == 2 else y.view(*x.shape[:-1], len(W))


def gradient_of_weight(grad_y: Tensor, x: Tensor, precision: Precision = "float32") -> Tensor:
    """grad_y^T x [H, D], the gradient of W from that of y [n, H] and x [n, D]."""
    if torch.is_grad_enabled() or _rounds(x, grad_y, precision):
        return linear(grad_y.t(), x.t(), None, precision)  # which can be differentiated again
    return products.product(grad_y.t(), x.t()) if KERNEL_LEADS and native.takes(grad_y, x) else grad_y.t() @ x


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, W: Tensor, b: Tensor | None, precision: Precision) -> Tensor:
        ctx.save_for_backward(x, W)
        ctx.precision = precision
        return product(x, W, b, precision)

    @staticmethod
    def backward(ctx, grad_y: Tensor):
        (x, W), precision = ctx.saved_tensors, ctx.precision
        needs_x, needs_W, needs_b = ctx.needs_input_grad[:3]
        multiply = linear if torch.is_grad_enabled() else product  # the former can be differentiated again
        grad_x = multiply(grad_y, W.t(), None, precision) if needs_x else None
        grad_W = gradient_of_weight(grad_y, x, precision) if needs_W else None
        return grad_x, grad_W, grad_y.sum(0) if needs_b else None, None


def _rounds(x: Tensor, W: Tensor, precision: Precision) -> bool:
    return precision != "float32" and x.dtype == W.dtype == torch.float32


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
