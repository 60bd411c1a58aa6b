"""Starting the other processes of a run on this machine, unless torchrun has started all of them."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager

import torch
import torch.distributed as dist

from rlmem.core import processes
from rlmem.core.errors import Fault, UserError
from rlmem.core.parallel import PATIENCE, Lost, Place, communicating, joined, launched
from rlmem.core.signals import STOP_SIGNALS

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
            processes.start(
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
