"""Several processes that train one run together: how they communicate, and how the first one starts the others.

It starts none where torchrun has started all of them.
"""

import io
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from rlmem.core.command import STOP_SIGNALS
from rlmem.core.errors import Fault, UserError
from rlmem.core.processes import start
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


HERE, ANNOUNCED = "127.0.0.1", "announced"
"""The address of this machine, and the key of a store that counts the processes which have announced themselves."""


@contextmanager
def team(work: Callable[[int], object], devices: int, device: torch.device) -> Iterator[None]:
    """Inside, this is one of several processes that train together; the first starts the others unless torchrun has.

    Raises Lost if one of them ends before all have joined.

    work: what another process does, given the port of the first one's store; picklable
    devices: how many processes there are, including this one
    device: the kind of device that each of them computes on
    """
    if devices == 1:
        yield
    elif there := launched():
        with joined(there, device):
            yield
    else:
        store = dist.TCPStore(HERE, 0, devices, is_master=True, wait_for_workers=False, timeout=PATIENCE)
        with closing(Crew(work, devices, store.port)) as crew:
            crew.wait_for(store)
            with joined(Place(0, devices, 0), device, store, crew.lost), ExitStack() as stack:
                if device.type == "cuda":  # NCCL, unlike gloo, hangs if a process dies for which this one waits
                    stack.callback((finished := threading.Event()).set)
                    threading.Thread(target=end_if_hanging, args=(crew, finished), daemon=True).start()
                yield


def announce(port: int, place: Place) -> dist.Store:
    """Announce the process at `place` to the first one, whose store has this port of the machine; returns the store."""
    with communicating():
        store = dist.TCPStore(HERE, port, place.size, is_master=False, timeout=PATIENCE)
        store.add(ANNOUNCED, 1)
    return store


class Crew:
    """The processes 1 .. size - 1 of a run, which do `work` as in `team`; they can be killed at any time."""

    def __init__(self, work: Callable[[int], object], size: int, port: int):
        self.size = size
        self.processes = [
            start(
                run_child,
                work,
                port,
                variables=os.environ | {"RANK": rank, "WORLD_SIZE": str(size), "LOCAL_RANK": rank},
                fresh=True,
                end=signal.SIGKILL,
            )
            for rank in map(str, range(1, size))
        ]

    def wait_for(self, store: dist.Store) -> None:
        """Wait until every process has announced itself at the store. Raises Lost if one ends before."""
        while store.add(ANNOUNCED, 0) < len(self.processes):
            if lost := self.lost(0):
                raise Lost(lost)
            time.sleep(0.02)

    def lost(self, patience: float = 5) -> str | None:
        """Which process has ended, and how, if one ends within `patience` seconds; None otherwise."""
        end = time.monotonic() + patience
        while True:
            for rank, process in enumerate(self.processes, 1):
                if (code := process.exitcode) is not None:
                    by = f" ({signal.Signals(-code).name})" if code < 0 else ""
                    return f"process {rank} of {self.size} (pid {process.pid}) died with exit code {code}{by}"
            if time.monotonic() >= end:
                return None
            time.sleep(0.02)

    def close(self) -> None:
        """Kill the processes."""
        for process in self.processes:
            process.kill()
            process.join()


def end_if_hanging(crew: Crew, finished: threading.Event, grace: float = 30) -> None:
    """End this process if another one has died and this one is not `finished` within `grace` seconds."""
    while not finished.wait(1):
        if (lost := crew.lost(0)) and not finished.wait(grace):
            os.write(2, f"rlmem: failed: {lost}\n".encode())
            crew.close()
            os._exit(1)


def run_child(work: Callable[[int], object], port: int) -> int:
    """Do `work`, which trains beside the first process, given the port of its store; returns the exit code.

    It ignores signals, since the first process decides whether to stop. Its own faults are printed here, and what it
    prints goes to stderr. That another process is gone is reported by the first one.
    """
    for name in STOP_SIGNALS:
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    os.dup2(2, 1)
    try:
        work(port)
    except KeyboardInterrupt as stop:
        return getattr(stop, "code", 130)
    except (Fault, UserError, Lost) as error:
        if not isinstance(error, Lost) and not isinstance(error.__cause__, Lost):
            shown = error.traceback if isinstance(error, Fault) else ""
            print(f"{shown}rlmem: process {os.environ.get('RANK', '?')}: {error}", file=sys.stderr)
        return 1
    return 0
