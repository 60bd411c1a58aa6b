"""Matrix products in single precision on the CPU, by the faster of torch's two libraries (docs/design.md).

Products of few rows and gradients of weights are BLAS's, and large products those of `rlmem.system.products.library`.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rlmem.system import products

FEW = 256
"""Rows up to which products are BLAS's, and taken with transposed weights where these are constant."""

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
    kept = _constant.derived
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

    def forward(self, input: Tensor) -> Tensor:
        return linear(input, self.weight, self.bias)


def linear(x: Tensor, W: Tensor, b: Tensor | None = None) -> Tensor:
    """x W^T + b for x [..., D], W [H, D], b [H]; differentiable."""
    if torch.compiler.is_compiling():  # the compiler chooses, and knows no operator of oneDNN by its own name
        return F.linear(x, W, b)
    if x.dim() == 2 and len(x) <= FEW and (Wt := transposed(W)) is not None:
        return x @ Wt if b is None else torch.addmm(b, x, Wt)
    if not _uses_onednn(x, W, b):
        return F.linear(x, W, b)
    return _Linear.apply(x.reshape(-1, x.shape[-1]), W, b).view(*x.shape[:-1], len(W))


def product(x: Tensor, W: Tensor, b: Tensor | None = None) -> Tensor:
    """`linear` for x [n, D], recording no gradient."""
    if not _uses_onednn(x, W, b):
        return F.linear(x, W, b)
    return products.onednn_linear(x, W, b)


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
        grad_W = grad_y.t() @ x if needs_W else None  # by BLAS: oneDNN takes up to five times as long, copies included
        return grad_x, grad_W, grad_y.sum(0) if needs_b else None


def _uses_onednn(x: Tensor, W: Tensor, b: Tensor | None = None) -> bool:
    """Whether to use oneDNN. Unusual or wrong arguments go to torch, whose error messages are clearer."""
    if x.dim() == 0 or x.numel() <= FEW * x.shape[-1] or not x.is_cpu or not W.is_cpu:
        return False
    plain = x.dtype == W.dtype == torch.float32 and x.shape[-1] == W.shape[1] and (b is None or b.is_contiguous())
    return plain and bool(torch.backends.mkldnn.enabled) and products.library() == "onednn"
