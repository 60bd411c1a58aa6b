"""The `native` engine, C++ kernels on the CPU that are called through ctypes, and the product of all layers, `linear`.

The kernels lie beside their operations; `rlmem.scan.library` compiles them.
"""

import ctypes
import os
import platform
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, wraps
from itertools import chain, pairwise
from typing import Any, Literal, TypeVar, cast, get_args

import torch
from torch import Tensor, nn
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.nn import functional as F

from rlmem.core.errors import UserError
from rlmem.core.types import watchers
from rlmem.scan import triton_scan
from rlmem.scan.library import library
from rlmem.scan.library import missing as missing

Engine = Literal["auto", "loop", "chunked", "native", "triton"]
"""What a scan runs on; "auto" is the fastest engine of the machine (docs/memory.md, "Scans and engines")."""
FEW = 16
"""Rows up to which packing a matrix for a single product costs more than it saves."""
LITTLE = 1 << 18
"""Multiplications up to which recording a gradient in Python costs more than the kernel saves."""
KERNEL_LEADS = platform.machine().lower() in ("x86_64", "amd64")
"""Elsewhere torch's library may use a unit for matrices, as on Apple's processors, which the kernel does not."""
PARALLEL_FROM = 1 << 16
"""Numbers in a scan below which a second thread costs more than it saves."""
MOST_SUMS = 8
"""Sums over slots that kernels make side by side, each of a part of them, so that they do not depend on threads."""
MOST_SHARED = 256
"""Complex channels that one real input may drive inside the kernel (BLOCK / 2 of linear.cpp)."""
PLAIN = (Tensor, nn.Parameter)
"""The types of tensors that kernels read; others have no address, or another meaning."""
_PROCESS = os.getpid()
"""The process that loaded this module; what is forked from it may have lost torch's threads."""
rounds_to_bf16 = False
"""Whether `linear` on CUDA rounds what it multiplies to bfloat16, in this process."""


def chosen_engine(engine: Engine, device: torch.device | str = "cpu") -> Engine:
    """The engine that a scan on `device` runs on. Raises UserError if the one asked for cannot run there."""
    if torch.compiler.is_compiling():  # a kernel of our own is no operator that a compiler knows
        return "loop" if engine == "loop" else "chunked"
    kind = torch.device(device).type
    best: Engine | None = {"cpu": "native", "cuda": "triton"}.get(kind)  # type: ignore[assignment]
    lacks = triton_scan.missing if best == "triton" else missing
    if engine == "auto":
        return best if best and lacks() is None else "chunked"
    if engine not in get_args(Engine):
        raise UserError(f"engine={engine}: no such engine; accepted: {', '.join(get_args(Engine))}; e.g. engine=auto")
    if engine in ("native", "triton"):
        why = f"does not run on a {kind.upper()} device" if engine != best else lacks()
        if why:
            raise UserError(f"engine={engine}: {why}; accepted on every machine: auto, loop, chunked; e.g. engine=auto")
    return engine


def check_flags(start: Tensor, B: int, T: int) -> None:
    """Raise ValueError unless `start` is bool [B, T]: kernels read it by address."""
    if start.dtype != torch.bool or start.shape != (B, T):
        raise ValueError(f"start: expected bool [{B}, {T}], got {start.dtype} {list(start.shape)}")


def linear(x: Tensor, W: Tensor, b: Tensor | None = None, panels: Callable[[], Tensor] | None = None) -> Tensor:
    """x W^T + b for x [..., D], W [H, D], b [H]; differentiable. By a kernel where it is faster, else by torch.

    panels: a method `of_weights` that returns W as `packed` does
    """
    if torch.compiler.is_compiling():  # exported, too: a file must not depend on the hardware that it was made on
        return F.linear(x, W, b)
    recorded, rounds = torch.is_grad_enabled(), _rounds(x, W)
    constant = not recorded and _thread.constants is not None and isinstance(W, nn.Parameter)
    if not (rounds or ((constant or _pays(x, W, recorded)) and _fits(x, W, b))):
        return F.linear(x, W, b)
    rows = x if x.dim() == 2 else x.flatten(0, -2) if x.dim() > 2 else x[None]
    if recorded:
        y: Tensor = _Linear.apply(rows, W, b)
    else:
        y = multiply(rows, W, b, panels() if panels is not None and constant and not rounds else None)
    return y if x.dim() == 2 else y.view(*x.shape[:-1], len(W))


def _pays(x: Tensor, W: Tensor, recorded: bool) -> bool:
    """Whether the kernel is faster than torch if it packs W, and by more than a gradient recorded in Python costs."""
    many = x.dim() > 0 and x.numel() > FEW * x.shape[-1]
    return _thread.rows_alike or (many and (not recorded or x.numel() * len(W) > LITTLE))


def _fits(x: Tensor, W: Tensor, b: Tensor | None) -> bool:
    """Whether the kernel can read these. Unusual or wrong arguments go to torch, whose error messages are clearer."""
    if x.dtype != torch.float32 or not KERNEL_LEADS or x.dim() == 0 or W.dim() != 2 or x.shape[-1] != W.shape[1]:
        return False
    return (b is None or b.shape == W.shape[:1]) and takes(x, W, *([] if b is None else [b]))


def _rounds(x: Tensor, W: Tensor) -> bool:
    return rounds_to_bf16 and x.is_cuda and x.dtype == W.dtype == torch.float32


def multiply(x: Tensor, W: Tensor, b: Tensor | None = None, panels: Tensor | None = None) -> Tensor:
    """x W^T + b [n, m] of x [n, k], W [m, k] and b [m], of one type and with any strides; records no gradient.

    A row of the result is to the bit what it is of that row of x alone (gemm.h).

    panels: W as `packed` returns it
    """
    if _rounds(x, W):
        y = torch.mm(x.bfloat16(), W.bfloat16().t(), out_dtype=torch.float32)
        return y if b is None else y + b
    (n, k), m = x.shape, len(W)
    if W.shape[1] != k or (b is not None and b.shape != (m,)):
        raise ValueError(f"x {list(x.shape)}, W {list(W.shape)} and b {b if b is None else list(b.shape)} do not fit")
    if x.is_neg() or W.is_neg() or (b is not None and (b.is_neg() or not b.is_contiguous())):
        x, W, b = x.resolve_neg(), W.resolve_neg(), None if b is None else addressable(b)
    y = x.new_empty(n, m)
    addresses = panels if panels is None else panels.data_ptr(), b if b is None else b.data_ptr(), y.data_ptr()
    _product(x.dtype)(
        x.data_ptr(), *x.stride(), W.data_ptr(), *W.stride(), *addresses, n, k, m, threads_for(n * k * m >> 4), team()
    )
    return y


@cache
def _product(dtype: torch.dtype) -> Callable[..., None]:
    """The kernel of products; called hundreds of times in a step of learning, it takes plain integers."""
    kernel: Any = kernel_of("product", dtype)[0]
    address, size = ctypes.c_void_p, ctypes.c_int64
    kernel.argtypes = [address, size, size] * 2 + [address] * 3 + [size] * 4 + [address]
    return cast(Callable[..., None], kernel)


def packed(W: Tensor) -> Tensor:
    """W [m, k] in the panels that kernels multiply from, a copy that pays if it is multiplied with more than once."""
    (m, k), lanes, W = W.shape, kernel_of("lanes", W.dtype)[0](), W.resolve_neg()
    P = W.new_empty(-(-m // lanes), k, lanes)
    call_in_parallel("panels", (W, *W.stride(), P), [(m, k)])
    return P


def gradient_of_weight(grad_y: Tensor, x: Tensor) -> Tensor:
    """grad_y^T x [H, D], the gradient of W from that of y [n, H] and x [n, D]."""
    if torch.is_grad_enabled() or _rounds(x, grad_y):
        return linear(grad_y.t(), x.t())  # which can be differentiated again
    return multiply(grad_y.t(), x.t(), None) if KERNEL_LEADS and takes(grad_y, x) else grad_y.t() @ x


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor, W: Tensor, b: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, W)
        return multiply(x, W, b)

    @staticmethod
    def backward(ctx, grad_y: Tensor):
        x, W = ctx.saved_tensors
        needs_x, needs_W, needs_b = ctx.needs_input_grad
        grad_x = linear(grad_y, W.t()) if needs_x else None
        grad_W = gradient_of_weight(grad_y, x) if needs_W else None
        return grad_x, grad_W, grad_y.sum(0) if needs_b else None


Constants = dict[nn.Module, dict[str, Any]]
"""A module whose weights are constant -> what was made `of_weights`, by the name of the method that made it."""


class _Thread(threading.local):
    """How this thread takes products.

    constants: the modules whose weights are constant; None: it is not within `constant_weights`
    rows_alike: whether it is within `rows_alike`
    """

    constants: Constants | None = None
    rows_alike = False


_thread = _Thread()
Made = TypeVar("Made")


@contextmanager
def constant_weights(network: Any, constants: Constants | None = None) -> Iterator[None]:
    """Within, the weights of a network do not change, as in acting: what is made `of_weights` is made once.

    network: a module, or what stands for one; without `modules()`, it has no weights
    constants: what was made before, which is added to; for weights that stay constant from one `with` to the next
    """
    constants = {} if constants is None else constants
    if not constants:
        constants |= {part: {} for part in getattr(network, "modules", tuple)()}
    before, _thread.constants = _thread.constants, constants
    try:
        yield
    finally:
        _thread.constants = before


def is_constant() -> bool:
    """True within `constant_weights`, where no gradient is recorded."""
    if torch.compiler.is_compiling() or watchers:  # what is compiled or recorded runs again, with other weights
        return False
    return _thread.constants is not None and not torch.is_grad_enabled()


def of_weights(make: Callable[[Any], Made]) -> Callable[[Any], Made]:
    """A method without arguments whose value depends on the weights of its module only; see `constant_weights`."""

    @wraps(make)
    def value(module: Any) -> Made:
        constants = _thread.constants
        if constants is None or module not in constants or not is_constant():
            return make(module)
        values = constants[module]
        if make.__name__ not in values:
            values[make.__name__] = make(module)
        constant: Made = values[make.__name__]
        return constant

    return value


@contextmanager
def rows_alike() -> Iterator[None]:
    """Within, float32 products of few rows are the kernel's, as those of many are, which make each row by itself."""
    before, _thread.rows_alike = _thread.rows_alike, True
    try:
        yield
    finally:
        _thread.rows_alike = before


class Linear(nn.Linear):
    """`torch.nn.Linear`, computed by `linear`."""

    @of_weights
    def panels(self) -> Tensor:
        """The weight as `packed` returns it."""
        return packed(self.weight)

    def forward(self, input: Tensor) -> Tensor:
        return linear(input, self.weight, self.bias, self.panels)


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
def kernel_of(name: str, dtype: torch.dtype) -> tuple[Callable[..., Any], type]:
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


def forward(a: Tensor, b: Tensor, h0: Tensor, start: Tensor, reverse: bool) -> Tensor:
    """All states h [B, T, N]; see `rlmem.scan.linear._Scan` for shapes."""
    N, drivers = h0.shape[1], b.shape[2]
    each = N // drivers if drivers < N else 0
    h = torch.empty(*start.shape, N, dtype=h0.dtype, device=h0.device)
    _run_channels("forward", (a, a.dim() == 1, b, each, h0, start, h), h, reverse, each)
    return h


def backward(
    a: Tensor, h: Tensor, h0: Tensor, start: Tensor, grad_h: Tensor, drivers: int, needs_a: bool, reverse: bool
) -> tuple[Tensor | None, Tensor, Tensor]:
    """(grad_a or None, grad_b, grad_h0)."""
    B, T, N = h.shape
    constant, each = a.dim() == 1, N // drivers if drivers < N else 0
    grad_a = torch.empty_like(h0 if constant else h) if needs_a else None
    grad_b = h.real.new_empty(B, T, drivers) if each else torch.empty_like(h)
    grad_h0 = torch.empty_like(h0)
    _run_channels("backward", (a, h, h0, start, grad_h, grad_a, grad_b, grad_h0, constant, each), h, reverse, each)
    if grad_a is not None and constant:
        grad_a = grad_a.sum(0)  # one sum per row
    return grad_a, grad_b, grad_h0


def _run_channels(direction: str, arguments: tuple[Any, ...], h: Tensor, reverse: bool, each: int) -> None:
    """Run a kernel of linear.cpp for states h [B, T, N], shared by rows if there are enough, else by channels.

    each: channels that one real input drives, which are not parted; 0: each has its own
    """
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
