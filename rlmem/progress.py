"""Live feedback: a bar on a terminal, plain lines in a pipe, and a copy of every line in the run directory."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from time import monotonic

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

LINE_EVERY = 10.0
"""Seconds between plain lines."""


class Progress:
    """Steps, steps per second, time left, return now and best, and where the time goes.

    total: environment steps;  log: file that receives every line as well
    """

    def __init__(self, total: int, log: Path, start: int = 0, console: Console | None = None):
        self.total, self.start = total, start
        self.console = console or Console(highlight=False, soft_wrap=True)
        self.log = open(log, "a", encoding="utf-8")
        self.began = self.last_line = monotonic()
        self.best: float | None = None
        self.bar: Bar | None = None

    def __enter__(self) -> Progress:
        if self.console.is_terminal:
            self.bar = Bar(
                BarColumn(20),
                MofNCompleteColumn(),
                TextColumn("{task.fields[rate]:,.0f}/s  left"),
                TimeRemainingColumn(compact=True),
                TextColumn("{task.fields[text]}"),
                console=self.console,
                transient=True,
            )
            self.task = self.bar.add_task("", total=self.total, completed=self.start, rate=0.0, text="")
            self.bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self.bar is not None:
            self.bar.stop()
        with suppress(OSError):  # what a full disk did not take
            self.log.close()

    def say(self, line: str) -> None:
        """A line of its own, above the bar. A full disk or a lost terminal, which cannot take it, stops nothing."""
        self.note(line)
        with suppress(OSError):
            self.console.print(line, markup=False)
            sys.stdout.flush()

    def note(self, line: str) -> None:
        """A line for the log alone."""
        with suppress(OSError):
            self.log.write(line + "\n")
            self.log.flush()

    def update(self, steps: int, score: float | None, shares: dict[str, float], name: str = "return") -> None:
        """`steps` counted so far, the recent score if there is one, and the split of the time.

        name: what the score is; the best return so far is shown beside the present one
        """
        if score is not None:
            self.best = score if self.best is None else max(self.best, score)
        rate = (steps - self.start) / max(monotonic() - self.began, 1e-9)
        best = f" best {self.best:.3f}" if name == "return" and self.best is not None else ""
        scores = f"{name} -" if score is None else f"{name} {score:.3f}{best}"
        split = " ".join(f"{name} {share:.0%}" for name, share in shares.items())
        if self.bar is not None:
            self.bar.update(self.task, completed=steps, rate=rate, text=f"{scores}  {split}")
        elif monotonic() - self.last_line > LINE_EVERY or steps >= self.total:
            self.last_line = monotonic()
            left = (self.total - steps) / max(rate, 1e-9)
            self.say(f"{steps:>{len(str(self.total))}}/{self.total} {rate:,.0f}/s left {left:.0f}s  {scores}  {split}")

    def evaluated(self, steps: int, told: str) -> None:
        self.say(f"evaluation at {steps}: {told}")
