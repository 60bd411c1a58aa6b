"""What a process of a run does that the first one has started."""

from __future__ import annotations

import sys
from typing import Any

from rlmem.errors import Fault, UserError
from rlmem.parallel.group import Lost, launched


def main(config: Any, port: int) -> int:
    """Train `config` with the first process, whose store is at `port`; the exit code.

    A fault of its own is said here. That another process is gone is said by the first, which may be it.
    """
    from rlmem.run.train import follow

    try:
        follow(config, port)
    except KeyboardInterrupt as stop:
        return getattr(stop, "code", 130)
    except (Fault, UserError, Lost) as error:
        if not isinstance(error, Lost) and not isinstance(error.__cause__, Lost):
            there = launched()
            shown = error.traceback if isinstance(error, Fault) else ""
            print(f"{shown}rlmem: process {there.rank if there else '?'}: {error}", file=sys.stderr)
        return 1
    return 0
