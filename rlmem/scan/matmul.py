"""Matrix products: in single precision on the CPU, by the faster of torch's two libraries (docs/design.md), or in bf16.

Products of few rows and gradients of weights are BLAS's, and large products those of `rlmem.system.products.library`.
Which precision a product has, its caller says: it belongs to an agent, whose modules carry it.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rlmem.scan import bf16, native
from rlmem.system import products

FEW = 256
"""Rows up to which products are BLAS's, and taken with transposed weights where these are constant."""

Precision = Literal["float32", "bf16"]
"""Of the inputs of products in single precision; sums, results and all else are float32. Doubles stay doubles."""

Kept = dict[tuple[str, int], tuple[Tensor, int, Any]]
"""What was derived and the identity of its weight -> the weight, its version, the value."""


class _Constant(threading.local):
    """What was derived in this thread while its weights are constant; None: they are not."""

    derived: Kept | None = None


_constant = _Constant()
Made = TypeVar("Made")


@contextmanager
def constant_weights(kept: Kept | None = None) -> Iterator[None]:
    """Within, weights do not change, as in acting: what is `derived` from them is computed once.

    On the CPU, products of few rows are then taken with transposed weights, by which BLAS multiplies faster.

    kept: what was derived before and is added to, for weights that stay constant from one `with` to the next
    """
    before, _constant.derived = _constant.derived, {} if kept is None else kept
    try:
        yield
    finally:
        _constant.derived = before


def derived(what: str, W: Tensor, make: Callable[[Tensor], Made]) -> Made:
    """The value of `make(W)`, which is kept where weights are constant and no gradient is recorded.

    what: the name of the value; `make` must be the same function of the same weights wherever it is used
    W: a weight; if it has changed in place nevertheless, the value is computed anew
    """
    kept = None if torch.compiler.is_compiling() else _constant.derived  # compiled code is not to depend on the latter
    if kept is None or torch.is_grad_enabled():
        return make(W)
    key = what, id(W)
    if key not in kept or kept[key][0] is not W or kept[key][1] != W._version:
        kept[key] = W, W._version, make(W)
    found: Made = kept[key][2]
    return found


def transposed(W: Tensor) -> Tensor | None:
    """W^T [D, H], contiguous, of a parameter W [H, D] on the CPU; None unless weights are constant."""
    if _constant.derived is None or torch.is_grad_enabled() or not W.is_cpu or not isinstance(W, nn.Parameter):
        return None
    return derived("transposed", W, _transpose)


def _transpose(W: Tensor) -> Tensor:
    return W.t().contiguous()


class Linear(nn.Linear):
    """`torch.nn.Linear`, computed by `linear`."""

    precision: Precision = "float32"

    def forward(self, input: Tensor) -> Tensor:
        return linear(input, self.weight, self.bias, self.precision)


def linear(x: Tensor, W: Tensor, b: Tensor | None = None, precision: Precision = "float32") -> Tensor:
    """x W^T + b for x [..., D], W [H, D], b [H]; differentiable."""
    if _rounds(x, W, precision):
        if torch.compiler.is_compiling():  # exported, too: a file must not depend on the hardware that it was made on
            return F.linear(bf16.rounded(x), bf16.rounded(W), b)
        return _by_rows(x, W, b, precision)
    if torch.compiler.is_compiling():  # the compiler chooses, and knows no operator of oneDNN by its own name
        return F.linear(x, W, b)
    if x.dim() == 2 and len(x) <= FEW and (Wt := transposed(W)) is not None:
        return x @ Wt if b is None else torch.addmm(b, x, Wt)
    if not _uses_onednn(x, W, b):
        return F.linear(x, W, b)
    return _by_rows(x, W, b, precision)


def _by_rows(x: Tensor, W: Tensor, b: Tensor | None, precision: Precision) -> Tensor:
    rows = x.reshape(-1, x.shape[-1])
    y = _Linear.apply(rows, W, b, precision) if torch.is_grad_enabled() else product(rows, W, b, precision)
    return y.view(*x.shape[:-1], len(W))


def product(x: Tensor, W: Tensor, b: Tensor | None = None, precision: Precision = "float32") -> Tensor:
    """`linear` for x [n, D], recording no gradient."""
    if _rounds(x, W, precision):
        constant = _constant.derived is not None and isinstance(W, nn.Parameter)
        if bf16.has_kernel(x) and not (constant and len(x) <= FEW):  # few rows do not pay for packing the weights
            return native.bf16_product(x, W, b)
        made = derived("bf16", W, bf16.prepared) if isinstance(W, nn.Parameter) else bf16.prepared(W)
        return bf16.multiply(x, made, b)
    if not _uses_onednn(x, W, b):
        return F.linear(x, W, b)
    return products.onednn_linear(x, W, b)


def gradient_of_weight(grad_y: Tensor, x: Tensor, precision: Precision = "float32") -> Tensor:
    """grad_y^T x [H, D], the gradient of W from that of y [n, H] and x [n, D]."""
    if _rounds(x, grad_y, precision):
        return linear(grad_y.t(), x.t(), None, precision)
    return grad_y.t() @ x  # by BLAS: oneDNN takes up to five times as long, copies included


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
    return precision == "bf16" and x.dtype == W.dtype == torch.float32


def _uses_onednn(x: Tensor, W: Tensor, b: Tensor | None = None) -> bool:
    """Whether to use oneDNN. Unusual or wrong arguments go to torch, whose error messages are clearer."""
    if x.dim() == 0 or x.numel() <= FEW * x.shape[-1] or not x.is_cpu or not W.is_cpu:
        return False
    plain = x.dtype == W.dtype == torch.float32 and x.shape[-1] == W.shape[1] and (b is None or b.is_contiguous())
    return plain and bool(torch.backends.mkldnn.enabled) and products.library() == "onednn"
