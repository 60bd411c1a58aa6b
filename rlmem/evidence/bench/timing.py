"""Time and peak memory of functions, measured so that a changing load of the machine favours no contestant."""

import ctypes
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import torch

from rlmem.core.errors import one_line

CPU = torch.device("cpu")
MIB = 2**20
PRELOAD = ["rlmem.run.assemble", "torch.fx.experimental.symbolic_shapes"]
"""Modules that a measurement of memory needs. torch imports the last one during a backward, which takes a second."""

Run = Callable[[], object]


@dataclass
class Times:
    """The seconds of one call in each round, and a note if fewer rounds or none were measured."""

    seconds: list[float] = field(default_factory=list)
    note: str = ""

    @property
    def median(self) -> float | None:
        return median(self.seconds) if self.seconds else None


@dataclass
class Stopwatch:
    """What measures functions within a budget.

    rounds: turns of each contestant
    budget: seconds for all turns of one contestant in one case; a slow one has fewer turns, or, if its first call took
        longer than that, this call as its only time
    device: where the functions compute
    """

    rounds: int = 5
    budget: float = 20.0
    device: torch.device = CPU

    def turns(self, contestants: dict[str, Run], at_least: float = 0.0) -> dict[str, Times]:
        """Call each contestant once to warm up (a fast one twice), then once in each round.

        One that raises has a note and no times; one that takes less than `at_least` seconds is repeated in its turn.
        """
        results = {name: Times() for name in contestants}
        repeats, turns = dict.fromkeys(contestants, 1), dict.fromkeys(contestants, 0)

        def call(name: str) -> float | None:
            try:
                return self.seconds(contestants[name], repeats[name])
            except Exception as error:
                turns[name], results[name].note = 0, one_line(error)
                return None

        for name, result in results.items():
            if (warm_up := call(name)) is None:
                continue
            if warm_up < at_least:  # a first call is a poor estimate of how often to repeat
                warm_up = call(name) or warm_up
            turns[name] = min(self.rounds, int(self.budget / warm_up))
            repeats[name] = max(1, ceil(min(at_least, self.budget / self.rounds) / warm_up))
            if turns[name] == 0:
                result.seconds, result.note = [warm_up], "measured once, without a warm-up"
            elif turns[name] < self.rounds:
                result.note = f"{turns[name]} of {self.rounds} rounds"
        for turn in range(self.rounds):
            for name, result in results.items():
                if turn < turns[name] and (time := call(name)) is not None:
                    result.seconds.append(time)
        return results

    def seconds(self, run: Run, repeats: int = 1) -> float:
        """The seconds of one call, as the mean of `repeats` calls: of the processor, if one thread of it computes."""
        clock = process_time if self.device.type == "cpu" and torch.get_num_threads() == 1 else perf_counter
        wait(self.device)
        began = clock()
        for _ in range(repeats):
            run()
        wait(self.device)
        return (clock() - began) / repeats

    def why_not(self, shorter: Callable[[int], Run]) -> str:
        """Why a task is not measured, or "": it raises, or by an estimate one call would exceed the budget.

        shorter: gives the part of the task that takes one n-th of the time, e.g. a quarter for 4
        """
        try:
            for part in (16, 4):
                run = shorter(part)
                expected = part * self.seconds(run)
                if expected > self.budget:  # a first call may take longer
                    expected = min(expected, part * self.seconds(run))
                if expected > self.budget:
                    return f"skipped: about {expected:,.0f} s a call, more than the budget of {self.budget:,.0f} s"
                if expected < self.budget / 4:
                    break
        except Exception as error:
            return one_line(error)
        return ""


def peak_bytes(make: Callable[..., tuple[Run, Run]], arguments: tuple[Any, ...], device: torch.device) -> int:
    """The memory that a function takes at its peak, beyond what was there before; benchmarks/README.md has the details.

    make: gives a small version of the function, called first to load what is loaded once, and the function
    arguments: those of `make`; on the CPU they are pickled for a process of its own, whose resident set is read

    Raises OSError if neither the bytes of CUDA nor the resident set can be read here.
    """
    if device.type == "cuda":
        small, whole = make(*arguments)
        small()
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        whole()
        return torch.cuda.max_memory_allocated(device) - before
    if os.name != "posix":
        raise OSError("the peak memory of a process can be read on Linux, macOS and CUDA only")
    context = multiprocessing.get_context("forkserver")  # forks a process that has imported everything and run nothing
    context.set_forkserver_preload(PRELOAD)
    with ProcessPoolExecutor(1, mp_context=context) as process:
        return process.submit(_growth, make, arguments, torch.get_num_threads()).result()


def _growth(make: Callable[..., tuple[Run, Run]], arguments: tuple[Any, ...], threads: int) -> int:
    from resource import RUSAGE_SELF, getrusage  # Unix only

    os.environ["RLMEM_MALLOC"] = "system"
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):
        mallopt(-3, 2**17)  # M_MMAP_THRESHOLD: glibc gives a freed tensor back at once, so that only live ones count
    torch.set_num_threads(threads)
    small, whole = make(*arguments)
    small()
    peak = lambda: getrusage(RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)  # noqa: E731
    now = Path("/proc/self/statm")
    before = int(now.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if now.exists() else peak()
    whole()
    return peak() - before


@contextmanager
def using_threads(number: int) -> Iterator[None]:
    """Let torch compute with this number of CPU threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def wait(device: torch.device) -> None:
    """Wait until CUDA has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
