"""The processes that train one run together, and how they communicate; a single process sends nothing.

Every function here that communicates must be called by all processes, in the same order.
"""

import io
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

PATIENCE = timedelta(hours=1)
"""How long a process waits for another one, which may be evaluating, before it counts as lost."""

T = TypeVar("T")


class Lost(ConnectionError):
    """Another process of the run is gone, or does not answer."""


@dataclass(frozen=True)
class Place:
    """The place of a process among the `size` of its run; `local`: its number on this machine, which is its GPU's."""

    rank: int
    size: int
    local: int


Witness = Callable[[], str | None]
"""Says how another process died, if one did."""

ALONE = Place(0, 1, 0)

_place: Place = ALONE
_witness: Witness | None = None
"""The place of this process, and the witness of what it has joined."""


def launched() -> Place | None:
    """The place of this process, if torchrun or the like started it; None otherwise."""
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
    return Place(*(int(os.environ[name]) for name in names)) if all(name in os.environ for name in names) else None


@contextmanager
def joined(
    place: Place, device: torch.device, store: dist.Store | None = None, witness: Witness | None = None
) -> Iterator[None]:
    """Inside, this is one of the processes, connected by gloo between CPUs and NCCL between GPUs.

    device: the kind of device to compute on; the GPU is number `place.local`
    store: through which the processes find each other; None: the one at MASTER_ADDR and MASTER_PORT
    """
    global _place, _witness
    if device.type == "cuda":
        torch.cuda.set_device(place.local)
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    with communicating():
        dist.init_process_group(backend, store=store, rank=place.rank, world_size=place.size, timeout=PATIENCE)
    _place, _witness = place, witness
    try:
        yield
    finally:
        _place, _witness = ALONE, None
        dist.destroy_process_group()


@contextmanager
def communicating() -> Iterator[None]:
    """Inside, failures of communication raise Lost."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        reason = re.sub(r"^\[[^]]*\] ", "", str(error).splitlines()[0]).partition(". ")[0]
        raise Lost((_witness and _witness()) or f"another process of this run is gone ({reason})") from error


def place() -> Place:
    return _place


def alone() -> bool:
    return _place.size == 1


def summed(x: Tensor) -> Tensor:
    """The sum of x over all processes. Its gradient is that of this process's x alone: see `sum_gradients`."""
    return x if alone() else _Sum.apply(x)


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return _all_reduce(x.clone(), dist.ReduceOp.SUM)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient


def largest(x: Tensor) -> Tensor:
    """The largest x of all processes, element by element, without gradient."""
    return x if alone() else _all_reduce(x.detach().clone(), dist.ReduceOp.MAX)


def least(number: int) -> int:
    """The least number of all processes."""
    return number if alone() else int(_all_reduce(torch.tensor(number), dist.ReduceOp.MIN))


def totals(*numbers: float) -> tuple[float, ...]:
    """The sum over all processes of each number."""
    return numbers if alone() else tuple(_all_reduce(torch.tensor(numbers).double(), dist.ReduceOp.SUM).tolist())


def sum_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Replace every gradient by its sum over all processes, which hold the same sum afterwards, bit for bit.

    That is the gradient of the loss, a mean over the batch of all processes (`rlmem.algos.on_policy.mean`), of whose
    terms each process has its own.
    """
    if alone():
        return
    gradients = []
    for parameter in parameters:
        if parameter.requires_grad:
            parameter.grad = gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            gradients.append(torch.view_as_real(gradient) if gradient.is_complex() else gradient)
    total = _all_reduce(torch.cat([gradient.flatten() for gradient in gradients]), dist.ReduceOp.SUM)
    for gradient, part in zip(gradients, total.split([gradient.numel() for gradient in gradients]), strict=True):
        gradient.copy_(part.view_as(gradient))


def _all_reduce(x: Tensor, op: dist.ReduceOp.RedOpType) -> Tensor:
    with communicating():
        dist.all_reduce(x, op)
    return x


def of_first(value: T) -> T:
    """The first process's value, on every process; what the others pass is ignored.

    value: tensors (returned on the CPU), numbers, strings, and containers of them
    """
    if alone():
        return value
    box = [_packed(value) if _place.rank == 0 else b""]
    with communicating():
        dist.broadcast_object_list(box)
    return _unpacked(box[0])


def gathered(value: T) -> list[T]:
    """On the first process, the values that all pass, by rank; [] on the others. Values may be those of `of_first`."""
    if alone():
        return [value]
    box = [b""] * _place.size if _place.rank == 0 else None
    with communicating():
        dist.gather_object(_packed(value), box)
    return [_unpacked(given) for given in box or []]


def _packed(value: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def _unpacked(given: bytes) -> Any:
    return torch.load(io.BytesIO(given), map_location="cpu", weights_only=True)


def wait_for_first() -> None:
    """Wait until the first process has left: torchrun ends all as soon as one ends with an exit code other than 0."""
    with suppress(Lost):
        least(0)
