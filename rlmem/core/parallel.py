"""Several processes that train one run together, and how they communicate."""

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

from rlmem.core.types import Processes, processes, trained_by

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


def launched() -> Place | None:
    """The place of this process, if torchrun or the like started it; None otherwise."""
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
    return Place(*(int(os.environ[name]) for name in names)) if all(name in os.environ for name in names) else None


@contextmanager
def joined(
    place: Place, device: torch.device, store: dist.Store | None = None, witness: Witness | None = None
) -> Iterator[None]:
    """Inside, this process is the one at `place`, connected to the others by gloo between CPUs and NCCL between GPUs.

    device: the kind of device to compute on; the GPU is number `place.local`
    store: through which the processes find each other; None: the one at MASTER_ADDR and MASTER_PORT
    """
    if device.type == "cuda":
        torch.cuda.set_device(place.local)
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    with communicating():
        dist.init_process_group(backend, store=store, rank=place.rank, world_size=place.size, timeout=PATIENCE)
    try:
        with trained_by(Joined(place, witness)):
            yield
    finally:
        dist.destroy_process_group()


@contextmanager
def communicating(witness: Witness | None = None) -> Iterator[None]:
    """Inside, failures of communication raise Lost."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        reason = re.sub(r"^\[[^]]*\] ", "", str(error).splitlines()[0]).partition(". ")[0]
        raise Lost((witness and witness()) or f"another process of this run is gone ({reason})") from error


class Joined(Processes):
    """Several processes, of which this is the one at `place`; see `joined`."""

    def __init__(self, place: Place, witness: Witness | None):
        self.rank, self.size, self.witness = place.rank, place.size, witness

    def summed(self, x: Tensor) -> Tensor:
        return _Sum.apply(x, self)

    def largest(self, x: Tensor) -> Tensor:
        return self.reduce(x.detach().clone(), dist.ReduceOp.MAX)

    def least(self, number: int) -> int:
        return int(self.reduce(torch.tensor(number), dist.ReduceOp.MIN))

    def totals(self, *numbers: float) -> tuple[float, ...]:
        return tuple(self.reduce(torch.tensor(numbers).double(), dist.ReduceOp.SUM).tolist())

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        gradients = []
        for parameter in parameters:
            if parameter.requires_grad:
                parameter.grad = gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                gradients.append(torch.view_as_real(gradient) if gradient.is_complex() else gradient)
        total = self.reduce(torch.cat([gradient.flatten() for gradient in gradients]), dist.ReduceOp.SUM)
        for gradient, part in zip(gradients, total.split([gradient.numel() for gradient in gradients]), strict=True):
            gradient.copy_(part.view_as(gradient))

    def of_first(self, value: T) -> T:
        box = [_packed(value) if self.rank == 0 else b""]
        with communicating(self.witness):
            dist.broadcast_object_list(box)
        return _unpacked(box[0])

    def gathered(self, value: T) -> list[T]:
        box = [b""] * self.size if self.rank == 0 else None
        with communicating(self.witness):
            dist.gather_object(_packed(value), box)
        return [_unpacked(packed) for packed in box or []]

    def reduce(self, x: Tensor, operation: dist.ReduceOp.RedOpType) -> Tensor:
        """x of all processes by one operation, element by element, in the memory of x."""
        with communicating(self.witness):
            dist.all_reduce(x, operation)
        return x


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, several: Joined) -> Tensor:
        return several.reduce(x.clone(), dist.ReduceOp.SUM)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None


def _packed(value: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def _unpacked(packed: bytes) -> Any:
    return torch.load(io.BytesIO(packed), map_location="cpu", weights_only=True)


def wait_for_first() -> None:
    """Wait until the first process has left: torchrun ends all as soon as one ends with an exit code other than 0."""
    with suppress(Lost):
        processes().least(0)
