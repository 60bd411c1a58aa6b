"""When to report the progress of something that may take long."""

from time import monotonic

FIRST = 10.0
"""Seconds until the first report."""


class Patience:
    """Says when to report: after FIRST seconds, and again whenever the time waited has doubled."""

    def __init__(self) -> None:
        self.began, self.pause = monotonic(), FIRST

    def is_due(self) -> bool:
        """Whether a report is due; if so, the next one is due after twice the time."""
        if monotonic() - self.began < self.pause:
            return False
        self.pause *= 2
        return True
