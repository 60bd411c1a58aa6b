"""The current folder of environments, which may differ from that of rlmem."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any


class Folder:
    """The current folder of one vector of environments, which they may change; that of rlmem stays."""

    def __init__(self) -> None:
        self.path: str | None = None
        """None: that of rlmem."""

    @contextmanager
    def entered(self) -> Iterator[None]:
        """A context for calls of the environments."""
        ours = _current_folder()
        if self.path is not None:
            with suppress(OSError):
                os.chdir(self.path)
        try:
            yield
        finally:
            there = _current_folder()
            self.path = None if there == ours else there
            if ours is not None and there != ours:
                os.chdir(ours)


def folder_of(env: Any, first: Folder | None = None) -> Folder:
    """The folder of a vector, whatever wraps it; `first` if it has none yet."""
    return vars(getattr(env, "unwrapped", env)).setdefault("_current_folder", first or Folder())


def _current_folder() -> str | None:
    """The current folder; None if it was deleted."""
    try:
        return os.getcwd()
    except OSError:
        return None
