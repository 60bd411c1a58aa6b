"""Signals that ask a run to stop: it saves its state first."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from time import monotonic
from typing import Any, Protocol

PR_SET_PDEATHSIG = 1
REQUEUE = 75
"""Exit code of a run that something else stopped (EX_TEMPFAIL of sysexits.h): the same command goes on with it."""

ASKED = ("SIGINT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGHUP")
"""A keyboard; a scheduler; one that announces its end (Slurm's --signal=USR1@120); a terminal that is lost."""


NOTICE = "rlmem: saving, then stopping (once more: at once)\n"
"""What a run says when it has been asked."""


SAME = 0.5
"""Seconds within which further signals are the same request: a terminal and a sweep both pass one on, and the kernel
tells of a parent's end once for each of its threads."""


class Stopped(KeyboardInterrupt):
    """A signal asked for the end and the state has been saved; `code` is the exit code."""

    def __init__(self, signum: int):
        super().__init__(f"stopped by {signal.Signals(signum).name}")
        self.signum = signum
        self.code = 130 if signum == signal.SIGINT else REQUEUE


class Stoppable(Protocol):
    """What saves its state and raises `stop` when that is set."""

    stop: BaseException | None


@contextmanager
def stopping_politely(loop: Stoppable) -> Iterator[None]:
    """Let signals save a checkpoint after the present update or round; a second one, later than SAME, stops at once.

    A signal that is ignored stays ignored, as SIGHUP under nohup.
    """

    asked = inf

    def handle(signum: int, frame: Any) -> None:
        nonlocal asked
        if monotonic() > asked + SAME:
            raise Stopped(signum)
        asked = min(asked, monotonic())
        if loop.stop is not None:
            return
        loop.stop = Stopped(signum)
        # Not through `progress`: a signal may interrupt a write to the same stream, which must not be re-entered.
        os.write(2, NOTICE.encode())

    if threading.current_thread() is not threading.main_thread():  # only there may handlers be set
        yield
        return
    numbers = [getattr(signal, name) for name in ASKED if hasattr(signal, name)]
    before = {number: signal.getsignal(number) for number in numbers}
    taken = {number: old for number, old in before.items() if old not in (signal.SIG_IGN, None)}
    for number in taken:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number, old in taken.items():
            signal.signal(number, old)


def die_with(parent: int, number: int = signal.SIGTERM) -> None:
    """On Linux, be sent a signal when `parent` ends, however it ends; elsewhere only if it has ended already."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        raise SystemExit(REQUEUE)
