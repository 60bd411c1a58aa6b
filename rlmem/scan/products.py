"""Products of matrices by kernels of the native engine.

`rlmem.scan.matmul` says which products are theirs.
"""

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any, cast

import torch
from torch import Tensor

from rlmem.scan import native


def product(x: Tensor, W: Tensor, b: Tensor | None = None, panels: Tensor | None = None) -> Tensor:
    """x W^T + b [n, m] of x [n, k], W [m, k] and b [m], of one type and with any strides: see gemm.h.

    A row of the result is to the bit what it is of that row of x alone.

    panels: W as `packed` returns it
    """
    (n, k), m = x.shape, len(W)
    if W.shape[1] != k or (b is not None and b.shape != (m,)):
        raise ValueError(f"x {list(x.shape)}, W {list(W.shape)} and b {b if b is None else list(b.shape)} do not fit")
    if x.is_neg() or W.is_neg() or (b is not None and (b.is_neg() or not b.is_contiguous())):
        x, W, b = x.resolve_neg(), W.resolve_neg(), None if b is None else native.addressable(b)
    y = x.new_empty(n, m)
    addresses = panels if panels is None else panels.data_ptr(), b if b is None else b.data_ptr(), y.data_ptr()
    given = x.data_ptr(), *x.stride(), W.data_ptr(), *W.stride(), *addresses, n, k, m
    _product(x.dtype)(*given, native.threads_for(n * k * m >> 4), native.team())
    return y


def packed(W: Tensor) -> Tensor:
    """W [m, k] in the panels that `product` reads, a copy that pays if it is multiplied with more than once."""
    (m, k), lanes, W = W.shape, _lanes(W.dtype), W.resolve_neg()
    P = W.new_empty(-(-m // lanes), k, lanes)
    native.call_in_parallel("panels", (W, *W.stride(), P), [(m, k)])
    return P


@cache
def _product(dtype: torch.dtype) -> Callable[..., None]:
    """The kernel of products; called hundreds of times in a step of learning, it takes plain integers."""
    kernel: Any = native.kernel_of("product", dtype)[0]
    address, size = ctypes.c_void_p, ctypes.c_int64
    kernel.argtypes = [address, size, size] * 2 + [address] * 3 + [size] * 4 + [address]
    return cast(Callable[..., None], kernel)


@cache
def _lanes(dtype: torch.dtype) -> int:
    """Columns of a panel."""
    kernel: Any = native.kernel_of("lanes", dtype)[0]
    kernel.restype = ctypes.c_int64
    return int(kernel())
