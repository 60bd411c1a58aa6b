"""Several processes that train one run together: how they communicate, and how the first one starts the others.

It starts none where torchrun has started all of them.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

from rlmem.core.command import STOP_SIGNALS
from rlmem.core.errors import Fault, Lost, UserError, communicating
from rlmem.core.processes import start
from rlmem.core.types import Processes, _processes, processes

PATIENCE = timedelta(hours=1)
"""How long a process waits for another one, which may be evaluating, before it counts as lost."""


@dataclass(frozen=True)
class Place:
    """The place of a process among the `size` of its run; `local`: its number on this machine, which is its GPU's."""

    rank: int
    size: int
    local: int


def launched() -> Place | None:
    """The place of this process, if torchrun or the like started it; None otherwise."""
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
    return Place(*(int(os.environ[name]) for name in names)) if all(name in os.environ for name in names) else None


@contextmanager
def joined(
    place: Place, device: torch.device, store: dist.Store | None = None, witness: Callable[[], str | None] | None = None
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
    _processes.append(Processes(place.rank, place.size, witness))
    try:
        yield
    finally:
        _processes.pop()
        dist.destroy_process_group()


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
        self.processes = []
        for rank in map(str, range(1, size)):
            variables = os.environ | {"RANK": rank, "WORLD_SIZE": str(size), "LOCAL_RANK": rank}
            child = start(run_child, work, port, variables=variables, fresh=True, end=signal.SIGKILL)
            self.processes.append(child)

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
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
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
