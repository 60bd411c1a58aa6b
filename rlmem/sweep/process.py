"""Which process a job belongs to, and whether that process is alive."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path


@dataclass(frozen=True)
class Owner:
    """A process of any machine.

    host: the name of the machine
    pid: the number of the process
    start: when it started, which distinguishes it from a later one with the same number
    """

    host: str
    pid: int
    start: str

    @classmethod
    def me(cls) -> Owner:
        return cls(platform.node(), os.getpid(), started(os.getpid()) or "")

    def alive(self) -> bool | None:
        """Whether it runs; None if that cannot be seen from this machine."""
        return started(self.pid) == self.start if self.host == platform.node() else None


def started(pid: int) -> str | None:
    """When a process of this machine started, as a text to compare; None if there is none or it is a zombie."""
    if sys.platform != "linux":
        shown = subprocess.run(["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True).stdout
        state, _, start = shown.strip().partition(" ")
        return start.strip() if state and not state.startswith("Z") else None
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()  # the name in brackets may hold anything
    return None if fields[0] in "ZX" else f"{_boot()} {fields[19]}"


@lru_cache
def _boot() -> str:
    """The id of this boot of the machine: start times count from the boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
