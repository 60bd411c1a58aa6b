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
        with suppress(OSError):
            self.log.write(line + "\n")
            self.log.flush()
        with suppress(OSError):
            self.console.print(line, markup=False)
            sys.stdout.flush()

    def update(self, steps: int, episode_return: float | None, shares: dict[str, float]) -> None:
        """`steps` counted so far, the recent return if an episode has ended, and the split of the time."""
        if episode_return is not None:
            self.best = episode_return if self.best is None else max(self.best, episode_return)
        rate = (steps - self.start) / max(monotonic() - self.began, 1e-9)
        returns = "return -" if episode_return is None else f"return {episode_return:.3f} best {self.best:.3f}"
        split = " ".join(f"{name} {share:.0%}" for name, share in shares.items())
        if self.bar is not None:
            self.bar.update(self.task, completed=steps, rate=rate, text=f"{returns}  {split}")
        elif monotonic() - self.last_line > LINE_EVERY or steps >= self.total:
            self.last_line = monotonic()
            left = (self.total - steps) / max(rate, 1e-9)
            self.say(f"{steps:>{len(str(self.total))}}/{self.total} {rate:,.0f}/s left {left:.0f}s  {returns}  {split}")

    def evaluated(self, steps: int, results: dict[str, dict[str, float]]) -> None:
        scores = ", ".join(f"{name} {r['return_mean']:.3f} ± {r['return_sem']:.3f}" for name, r in results.items())
        self.say(f"evaluation at {steps}: return {scores}")
