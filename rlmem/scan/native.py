"""The `native` engine: C++ kernels for scans on the CPU, called through ctypes."""

import ctypes
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from itertools import chain, pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch._C._functorch import is_functorch_wrapped_tensor

from rlmem.scan.library import library
from rlmem.scan.library import missing as missing

PARALLEL_FROM = 1 << 16
"""Numbers in a scan below which a second thread costs more than it saves."""
MOST_SUMS = 8
"""Sums over slots that kernels make side by side, each of a part of them, so that they do not depend on threads."""
_PROCESS = os.getpid()
"""The process that loaded this module; what is forked from it may have lost torch's threads."""
PLAIN = (Tensor, nn.Parameter)
"""The types of tensors that kernels read; others have no address, or another meaning."""
MOST_SHARED = 256
"""Complex channels that one real input may drive inside the kernel (BLOCK / 2 of linear.cpp)."""


def forward(a: Tensor, b: Tensor, h0: Tensor, start: Tensor, reverse: bool) -> Tensor:
    """All states h [B, T, N]; see `rlmem.scan.linear._Scan` for shapes."""
    N, drivers = h0.shape[1], b.shape[2]
    each = N // drivers if drivers < N else 0
    if each > MOST_SHARED:
        b, each = b.repeat_interleave(each, 2).to(h0.dtype), 0
    h = torch.empty(*start.shape, N, dtype=h0.dtype, device=h0.device)
    _run("forward", (a, a.dim() == 1, b, each, h0, start, h), h, reverse, each)
    return h


def backward(
    a: Tensor, h: Tensor, h0: Tensor, start: Tensor, grad_h: Tensor, drivers: int, needs_a: bool, reverse: bool
) -> tuple[Tensor | None, Tensor, Tensor]:
    """(grad_a or None, grad_b, grad_h0)."""
    B, T, N = h.shape
    constant, each = a.dim() == 1, N // drivers if drivers < N else 0
    expanded = each > MOST_SHARED
    inside = 0 if expanded else each
    grad_a = torch.empty_like(h0 if constant else h) if needs_a else None
    grad_b = h.real.new_empty(B, T, drivers) if inside else torch.empty_like(h)
    grad_h0 = torch.empty_like(h0)
    _run("backward", (a, h, h0, start, grad_h, grad_a, grad_b, grad_h0, constant, inside), h, reverse, inside)
    if grad_a is not None and constant:
        grad_a = grad_a.sum(0)  # one sum per row
    return grad_a, grad_b.real.unflatten(2, (drivers, -1)).sum(-1) if expanded else grad_b, grad_h0


def _run(direction: str, arguments: tuple[Any, ...], h: Tensor, reverse: bool, each: int) -> None:
    """Run a kernel of the scan, shared by threads: by rows if there are enough, else by groups of `each` channels."""
    B, T, N = h.shape
    threads, group = threads_for(h.numel()), each or 1
    if threads <= B:
        parts = [(r0, r1, 0, N) for r0, r1 in shares(B, threads)]
    else:
        grain = 16 if 16 % group == 0 else group  # whole cache lines, whole groups
        cuts = [min(N, -(-N * k // (threads * grain)) * grain) for k in range(threads + 1)]
        parts = [(0, B, n0, n1) for n0, n1 in pairwise(cuts) if n0 < n1]
    kind = "complex" if h.is_complex() else "real"
    call_in_parallel(f"{kind}_{direction}", arguments, [(T, N, reverse, *part) for part in parts])


def advantages(reward: Tensor, value: Tensor, terminated: Tensor, mask: Tensor, gamma: float, decay: float) -> Tensor:
    """`rlmem.losses.on_policy.gae` in one pass, without gradients; decay is gamma * lambda."""
    tensors = [addressable(x) for x in (reward, value, terminated, mask)]
    A = torch.empty_like(tensors[0])
    B, T = mask.shape
    run_rows("advantages", (*tensors, float(gamma), float(decay), A), (T,), B, T)
    return A


def run_rows(name: str, arguments: tuple[Any, ...], sizes: tuple[int, ...], B: int, work: int) -> None:
    """Run a kernel whose rows are independent, shared by threads; see `call_in_parallel`.

    sizes: the first integers of a part; its rows (r0, r1) follow
    B: number of rows
    work: numbers per row, from which the number of threads follows
    """
    threads = max(1, min(threads_for(B * work), B))  # one also for no rows
    call_in_parallel(name, arguments, [(*sizes, *rows) for rows in shares(B, threads)])


def threads_for(work: int) -> int:
    """How many threads pay for so many numbers."""
    return torch.get_num_threads() if work >= PARALLEL_FROM else 1


def shares(B: int, threads: int) -> Iterator[tuple[int, int]]:
    """The rows (r0, r1) of each thread."""
    return pairwise(B * k // threads for k in range(threads + 1))


def call_in_parallel(name: str, arguments: tuple[Any, ...], parts: Sequence[tuple[int, ...]]) -> None:
    """Call a kernel whose parts are shared by torch's threads.

    name: of the kernel; its real type is that of the first tensor
    arguments: tensors, passed by address; None, passed as null; integers; floats, passed in that real type
    parts: a tuple of integers for each, the fields of the kernel's structure
    """
    dtype = next(x.dtype for x in arguments if isinstance(x, Tensor))
    kernel, real = kernel_of(name, dtype)
    kinds = {int: ctypes.c_int64, bool: ctypes.c_int64, float: real, type(None): ctypes.c_void_p}
    passed = [ctypes.c_void_p(x.data_ptr()) if isinstance(x, Tensor) else kinds[type(x)](x) for x in arguments]
    numbers = (ctypes.c_int64 * (len(parts) * len(parts[0])))(*chain.from_iterable(parts))
    threads = max(torch.get_num_threads(), len(parts))  # the former is less in tests alone
    kernel(*passed, _Work(ctypes.addressof(numbers), len(parts), threads, team()))


class _Work(ctypes.Structure):
    """`Work` of team.h."""

    _fields_ = [
        ("parts", ctypes.c_void_p),
        ("count", ctypes.c_int64),
        ("threads", ctypes.c_int64),
        ("team", ctypes.c_void_p),
    ]


@cache
def _gomp_parallel() -> int | None:
    for path in (None, torch._C.__file__):  # as torch finds it: what was loaded before all comes before its own
        with suppress(OSError, AttributeError, TypeError):
            return ctypes.cast(ctypes.CDLL(path).GOMP_parallel, ctypes.c_void_p).value
    return None


def team() -> int | None:
    """The address of what runs a function on the threads of torch's OpenMP. None where it has no entry for GNU's
    compiler, and in a forked process, which may have lost these threads: kernels then run alone.

    Kernels take a fraction of a millisecond: threads of another kind would have to wait for torch's, which do not sleep
    between two calls.
    """
    return _gomp_parallel() if os.getpid() == _PROCESS else None


@cache
def kernel_of(name: str, dtype: torch.dtype) -> tuple[Callable[..., None], type]:
    """The kernel for the real type of numbers of type `dtype`, and how floats are passed to it."""
    real, passed = ("float", ctypes.c_float) if dtype.to_real() == torch.float32 else ("double", ctypes.c_double)
    return getattr(library(real), name), passed


def addressable(x: Tensor) -> Tensor:
    """x as a kernel can read it by address: contiguous, with pending conjugations and negations carried out."""
    return x.resolve_conj().resolve_neg().contiguous()


def takes(*tensors: Tensor) -> bool:
    """Whether there are kernels, and they can read these tensors: on the CPU, of one real type, and with addresses.

    What is traced, transformed by `torch.func` or under autocast is torch's.
    """
    first = tensors[0].dtype
    if first not in (torch.float32, torch.float64) or torch.compiler.is_compiling() or torch.is_autocast_enabled("cpu"):
        return False
    for x in tensors:
        if type(x) not in PLAIN or x.dtype is not first or not x.is_cpu or is_functorch_wrapped_tensor(x):
            return False
    return missing() is None
