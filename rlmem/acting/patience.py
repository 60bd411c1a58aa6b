"""When to give a sign of life from what may take long."""

from __future__ import annotations

from time import monotonic

FIRST = 10.0
"""Seconds until the first sign."""


class Patience:
    """Says when to speak: after FIRST seconds, and again whenever the time waited has doubled."""

    def __init__(self) -> None:
        self.began, self.pause = monotonic(), FIRST

    def is_due(self) -> bool:
        """Whether it is time to say something."""
        if monotonic() - self.began < self.pause:
            return False
        self.pause *= 2
        return True
