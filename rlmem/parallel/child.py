"""What a process does that the first process of a run has started."""

from __future__ import annotations

import sys
from collections.abc import Callable

from rlmem.errors import Fault, UserError
from rlmem.parallel.group import Lost, launched


def main(work: Callable[[int], object], port: int) -> int:
    """Do this process's share of `work`; the exit code.

    A fault of its own is printed here. That another process is gone is reported by the first one, which may be it.

    work: trains beside the first process, given the port of its store
    port: where the first process waits on this machine
    """
    try:
        work(port)
    except KeyboardInterrupt as stop:
        return getattr(stop, "code", 130)
    except (Fault, UserError, Lost) as error:
        if not isinstance(error, Lost) and not isinstance(error.__cause__, Lost):
            there = launched()
            shown = error.traceback if isinstance(error, Fault) else ""
            print(f"{shown}rlmem: process {there.rank if there else '?'}: {error}", file=sys.stderr)
        return 1
    return 0
