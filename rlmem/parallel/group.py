"""The processes that train one run together, and what they tell each other. Alone, nothing is told.

Every function here that speaks to the others must be called by all of them, in the same order. Losses are of the batch
of all processes, since `rlmem.losses.reduce` sums over them; each process has the gradient of its own terms, and the
sum of these gradients is that of the loss.
"""

from __future__ import annotations

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
"""How long a process waits for another, which may be evaluating: one that is silent for longer counts as lost."""

T = TypeVar("T")


class Lost(ConnectionError):
    """Another process of the run is gone, or does not answer."""


@dataclass(frozen=True)
class Place:
    """Which of `size` processes this one is; `local`: its number on this machine, which is that of its GPU."""

    rank: int
    size: int
    local: int


ALONE = Place(0, 1, 0)


@dataclass(frozen=True)
class _Group:
    """What this process has joined; witness: says how another one died, if it did."""

    place: Place = ALONE
    witness: Callable[[], str | None] = lambda: None


_group = _Group()


def launched() -> Place | None:
    """This process's place, if torchrun or the like started it as one of several (or of one)."""
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
    return Place(*(int(os.environ[name]) for name in names)) if all(name in os.environ for name in names) else None


@contextmanager
def joined(
    place: Place,
    device: torch.device,
    store: dist.Store | None = None,
    witness: Callable[[], str | None] = lambda: None,
) -> Iterator[None]:
    """Be one of the processes: gloo between CPUs, NCCL between GPUs, of which this process takes number `place.local`.

    store: where they meet; None: at MASTER_ADDR and MASTER_PORT of the environment
    witness: says how another process died, if it did
    """
    global _group
    if device.type == "cuda":
        torch.cuda.set_device(place.local)
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    with speaking():
        dist.init_process_group(backend, store=store, rank=place.rank, world_size=place.size, timeout=PATIENCE)
    _group = _Group(place, witness)
    try:
        yield
    finally:
        _group = _Group()
        dist.destroy_process_group()


@contextmanager
def speaking() -> Iterator[None]:
    """What fails between processes becomes Lost."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        told = re.sub(r"^\[[^]]*\] ", "", str(error).splitlines()[0]).partition(". ")[0]
        raise Lost(_group.witness() or f"another process of this run is gone ({told})") from error


def place() -> Place:
    return _group.place


def alone() -> bool:
    return _group.place.size == 1


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
    """Replace every gradient by its sum over all processes, which hold the same sum afterwards, bit for bit."""
    if alone():
        return
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    for parameter in trained:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    flat = [_real(parameter.grad).flatten() for parameter in trained]  # type: ignore[arg-type]
    total = _all_reduce(torch.cat(flat), dist.ReduceOp.SUM)
    for parameter, part in zip(trained, total.split([len(part) for part in flat]), strict=True):
        gradient = _real(parameter.grad)  # type: ignore[arg-type]
        gradient.copy_(part.view_as(gradient))


def _real(x: Tensor) -> Tensor:
    return torch.view_as_real(x) if x.is_complex() else x


def _all_reduce(x: Tensor, op: dist.ReduceOp.RedOpType) -> Tensor:
    with speaking():
        dist.all_reduce(x, op)
    return x


def of_first(value: T) -> T:
    """What the first process gives, for all: tensors, which come to the CPU, numbers, strings and containers of them.

    What the others give does not matter.
    """
    if alone():
        return value
    box = [_packed(value) if _group.place.rank == 0 else b""]
    with speaking():
        dist.broadcast_object_list(box)
    return _unpacked(box[0])


def gathered(value: T) -> list[T]:
    """On the first process, what all give, in order, of the same kinds as for `of_first`; [] on the others."""
    if alone():
        return [value]
    box = [b""] * _group.place.size if _group.place.rank == 0 else None
    with speaking():
        dist.gather_object(_packed(value), box)
    return [_unpacked(given) for given in box or []]


def _packed(value: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def _unpacked(given: bytes) -> Any:
    return torch.load(io.BytesIO(given), map_location="cpu", weights_only=True)


def outlast() -> None:
    """Wait until the first process has left: torchrun ends all as soon as one ends with an exit code other than 0."""
    with suppress(Lost):
        least(0)
