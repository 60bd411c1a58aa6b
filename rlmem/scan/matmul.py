"""Matrix products in single precision on the CPU, by the faster of torch's two libraries (docs/design.md).

oneDNN's product has no public name for float32; where torch lacks the operator, and on processors that are not AMD's,
this is `torch.nn.functional.linear`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

ROWS = 16
"""Products with fewer rows are left to torch."""
FEW = 256
"""Rows up to which products are taken with transposed constant weights; beyond, BLAS gains nothing by it."""

_derived: dict[tuple[str, int], tuple[Tensor, int, Any]] | None = None
"""While weights are constant: what was derived and the identity of its weight -> the weight, its version, the value."""
Made = TypeVar("Made")


@contextmanager
def constant_weights() -> Iterator[None]:
    """Within, weights do not change, as in acting: what is `derived` from them is computed once.

    On the CPU, products of few rows are then taken with transposed weights, by which BLAS multiplies faster.
    """
    global _derived
    before, _derived = _derived, {}
    try:
        yield
    finally:
        _derived = before


def derived(what: str, W: Tensor, make: Callable[[Tensor], Made]) -> Made:
    """The value of `make(W)`, which is kept where weights are constant and no gradient is recorded.

    what: the name of the value; `make` must be the same function of the same weights wherever it is used
    W: a weight; if it has changed in place nevertheless, the value is computed anew
    """
    if _derived is None or torch.is_grad_enabled():
        return make(W)
    key = what, id(W)
    if key not in _derived or _derived[key][1] != W._version:
        _derived[key] = W, W._version, make(W)
    found: Made = _derived[key][2]
    return found


def transposed(W: Tensor) -> Tensor | None:
    """W^T [D, H], contiguous, of a parameter W [H, D] on the CPU; None unless weights are constant."""
    if _derived is None or torch.is_grad_enabled() or not W.is_cpu or not isinstance(W, nn.Parameter):
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
    if x.dim() == 2 and len(x) <= FEW and (Wt := transposed(W)) is not None:
        return x @ Wt if b is None else torch.addmm(b, x, Wt)
    if not _uses_onednn(x, W, b):
        return F.linear(x, W, b)
    return _Linear.apply(x.reshape(-1, x.shape[-1]), W, b).view(*x.shape[:-1], len(W))


def product(x: Tensor, W: Tensor, b: Tensor | None = None) -> Tensor:
    """`linear` for x [n, D], recording no gradient."""
    if not _uses_onednn(x, W, b):
        return F.linear(x, W, b)
    return torch.ops.mkldnn._linear_pointwise(x, W, b, "none", [], "")


def weight_gradients(grad_y: Tensor, x: Tensor, W: Tensor) -> tuple[Tensor, Tensor]:
    """dL/dW [H, D] and dL/db [H] of `product`, from grad_y [n, H] and x [n, D]."""
    if not _uses_onednn(x, W):
        return grad_y.t() @ x, grad_y.sum(0)
    grad_W, grad_b = torch.ops.aten.mkldnn_linear_backward_weights(grad_y.to_mkldnn(), x.to_mkldnn(), W, True)
    return grad_W.to_dense(), grad_b.to_dense()


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, W: Tensor, b: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, W)
        return product(x, W, b)

    @staticmethod
    def backward(ctx, grad_y: Tensor):
        x, W = ctx.saved_tensors
        needs_x, needs_W, needs_b = ctx.needs_input_grad
        if torch.is_grad_enabled():  # to be differentiated again
            return grad_y @ W, grad_y.t() @ x, grad_y.sum(0) if needs_b else None
        grad_x = product(grad_y, W.t()) if needs_x else None
        grad_W, grad_b = weight_gradients(grad_y.contiguous(), x, W) if needs_W or needs_b else (None, None)
        return grad_x, grad_W if needs_W else None, grad_b if needs_b else None


def _uses_onednn(x: Tensor, W: Tensor, b: Tensor | None = None) -> bool:
    """Whether to use oneDNN. Unusual or wrong arguments go to torch, whose error messages are clearer."""
    if not _onednn_is_faster():
        return False
    rows = x.numel() >= ROWS * x.shape[-1] > 0
    plain = x.dtype == W.dtype == torch.float32 and x.shape[-1] == W.shape[1] and (b is None or b.is_contiguous())
    on_cpu = x.device.type == W.device.type == "cpu"
    return rows and plain and on_cpu and bool(torch.backends.mkldnn.enabled)


@cache
def _onednn_is_faster() -> bool:
    info = Path("/proc/cpuinfo")
    operators = (torch.ops.mkldnn, "_linear_pointwise"), (torch.ops.aten, "mkldnn_linear_backward_weights")
    there = torch.backends.mkldnn.is_available() and all(hasattr(*operator) for operator in operators)
    return there and info.exists() and "AuthenticAMD" in info.read_text()
