"""How long and how much memory: measured so that a machine's changing load is noise, never an advantage."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import statistics
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

CPU = torch.device("cpu")
MIB = 2**20

PRELOAD = ["rlmem.bench.memory", "rlmem.bench.figure3", "torch.fx.experimental.symbolic_shapes"]
"""Modules that a measurement of memory needs; the last is torch's own late import, of a second, for a backward."""

Run = Callable[[], object]


@dataclass
class Measured:
    """Seconds of one call in each round, and a note wherever they are not what was asked for."""

    seconds: list[float] = field(default_factory=list)
    note: str = ""

    @property
    def median(self) -> float | None:
        return statistics.median(self.seconds) if self.seconds else None


def in_turns(
    contestants: dict[str, Run], rounds: int, budget: float, device: torch.device = CPU, at_least: float = 0.0
) -> dict[str, Measured]:
    """One warm-up of each contestant (of a fast one two), then `rounds` rounds in which each has its turn.

    budget: seconds for one contestant's rounds; it runs fewer of them, or, if its warm-up alone took longer, none:
        then that call is its time. What raises is left out, with a note.
    at_least: seconds of one measurement; a faster call is repeated within it
    """
    results = {name: Measured() for name in contestants}
    repeats, turns = dict.fromkeys(contestants, 1), dict.fromkeys(contestants, 0)

    def call(name: str) -> float | None:
        try:
            return seconds(contestants[name], device, repeats[name])
        except Exception as error:
            turns[name], results[name].note = 0, reason(error)
            return None

    for name, result in results.items():
        warm_up = call(name)
        if warm_up is None:
            continue
        if warm_up < at_least:  # a first call says too little of how often to repeat
            warm_up = call(name) or warm_up
        turns[name] = min(rounds, int(budget / warm_up))
        repeats[name] = max(1, ceil(min(at_least, budget / rounds) / warm_up))
        if turns[name] == 0:
            result.seconds, result.note = [warm_up], "measured once, without a warm-up"
        elif turns[name] < rounds:
            result.note = f"{turns[name]} of {rounds} rounds"
    for turn in range(rounds):
        for name, result in results.items():
            if turn < turns[name] and (time := call(name)) is not None:
                result.seconds.append(time)
    return results


def seconds(run: Run, device: torch.device = CPU, repeats: int = 1) -> float:
    """Of one call."""
    wait(device)
    began = perf_counter()
    for _ in range(repeats):
        run()
    wait(device)
    return (perf_counter() - began) / repeats


def too_long(shorter: Callable[[int], Run], budget: float, device: torch.device = CPU) -> str:
    """Why the whole is not run, or "": what a sixteenth, and a quarter, of it takes says that it exceeds `budget`.

    shorter: part -> the whole's part-th in time, e.g. a quarter for 4
    """
    for part in (16, 4):
        run = shorter(part)
        expected = part * seconds(run, device)
        if expected > budget:  # a first call may take longer
            expected = min(expected, part * seconds(run, device))
        if expected > budget:
            return f"skipped: about {expected:,.0f} s a call, more than the budget of {budget:,.0f} s"
        if expected < budget / 4:
            break
    return ""


def peak_bytes(make: Callable[..., tuple[Run, Run]], arguments: tuple[Any, ...], device: torch.device) -> int:
    """Memory that the second of two functions `make(*arguments)` takes at its peak, beyond what was there before.

    The first is a small version of the second, called before it to load what is loaded once. On CUDA: the bytes that
    torch allocated (max_memory_allocated). On the CPU: in a process of its own, the highest resident set that the
    operating system saw (ru_maxrss) less the one before, with glibc told to return freed tensors at once. It counts
    what is alive: tensors, autograd's graph, buffers of libraries. It is some MiB above the tensors that
    torch.profiler counts, of which up to ten are libraries that only the whole makes load; repeats agree to 1 MiB.
    OSError where neither can be read.
    """
    if device.type == "cuda":
        small, whole = make(*arguments)
        small()
        wait(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        whole()
        wait(device)
        return torch.cuda.max_memory_allocated(device) - before
    if os.name != "posix":
        raise OSError("the peak memory of a process can be read on Linux, macOS and CUDA only")
    context = multiprocessing.get_context("forkserver")  # forks of a process that has imported all and run nothing
    context.set_forkserver_preload(PRELOAD)
    with ProcessPoolExecutor(1, mp_context=context) as process:
        return process.submit(_growth, make, arguments, torch.get_num_threads()).result()


def _growth(make: Callable[..., tuple[Run, Run]], arguments: tuple[Any, ...], threads: int) -> int:
    from resource import RUSAGE_SELF, getrusage  # Unix only

    os.environ["RLMEM_MALLOC"] = "system"
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(-3, 2**17)  # M_MMAP_THRESHOLD: glibc gives a freed tensor back at once, so that only live ones count
    torch.set_num_threads(threads)
    small, whole = make(*arguments)
    small()
    peak = lambda: getrusage(RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)  # noqa: E731
    now = Path("/proc/self/statm")
    before = int(now.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if now.exists() else peak()
    whole()
    return peak() - before


def reason(error: BaseException) -> str:
    """An exception in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:200]}" if text else type(error).__name__


def wait(device: torch.device) -> None:
    """For what CUDA has been asked to do."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
