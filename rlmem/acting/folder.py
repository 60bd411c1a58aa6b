"""The current folder of environments, which may differ from that of rlmem."""

import os
from contextlib import suppress
from typing import ClassVar


class EnvironmentFolder:
    """A context for calls of environments, which may change their current folder; that of rlmem stays."""

    theirs: ClassVar[str | None] = None
    """Their current folder; None: that of rlmem."""

    def __enter__(self) -> None:
        self.ours = _current_folder()
        if self.theirs is not None:
            with suppress(OSError):
                os.chdir(self.theirs)

    def __exit__(self, *exception: object) -> None:
        there = _current_folder()
        EnvironmentFolder.theirs = None if there == self.ours else there
        if self.ours is not None and there != self.ours:
            os.chdir(self.ours)


def _current_folder() -> str | None:
    """The current folder; None if it was deleted."""
    try:
        return os.getcwd()
    except OSError:
        return None
