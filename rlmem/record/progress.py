"""Live feedback: a bar on a terminal, plain lines in a pipe, and a copy of every line in the run directory."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from time import monotonic

from rich.console import Console, RenderableType
from rich.progress import Progress as Bar
from rich.progress import ProgressColumn, Task
from rich.progress_bar import ProgressBar
from rich.table import Table

LINE_EVERY = 10.0
"""Seconds between plain lines."""

BAR = 20
"""Columns of the bar."""

FIRST_TO_GO = ("split", "best", "bar", "rate", "score")
"""What a narrow terminal does not show, in this order. It always shows the steps, their total and the time left."""


class Fitting(ProgressColumn):
    """One line: as much of `task.fields["told"]`, texts by name, as the terminal has columns for."""

    def __init__(self, console: Console):
        super().__init__()
        self.console = console

    def render(self, task: Task) -> RenderableType:
        told = {"bar": " " * BAR, **task.fields["told"]}
        for name in FIRST_TO_GO:
            if len(" ".join(told.values())) <= self.console.width:
                break
            told.pop(name, None)
        line = Table.grid(padding=(0, 1))
        drawn = [ProgressBar(task.total, task.completed, width=BAR)] if told.pop("bar", None) else []
        line.add_row(*drawn, " ".join(told.values()))
        return line


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
            self.bar = Bar(Fitting(self.console), console=self.console, transient=True)
            begin = {"steps": self._counted(self.start), "left": "left -"}
            self.task = self.bar.add_task("", total=self.total, completed=self.start, told=begin)
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
        left = (self.total - steps) / max(rate, 1e-9)
        told = {
            "steps": self._counted(steps),
            "rate": f"{rate:,.0f}/s",
            "left": f"left {left:.0f}s",
            "score": f" {name} -" if score is None else f" {name} {score:.3f}",
            "best": f"best {self.best:.3f}" if name == "return" and self.best is not None else "",
            "split": " ".join(["", *(f"{part} {share:.0%}" for part, share in shares.items())]),
        }
        told = {part: text for part, text in told.items() if text}
        if self.bar is not None:
            told["left"] = f"left {clock(left)}"
            self.bar.update(self.task, completed=steps, told=told)
        elif monotonic() - self.last_line > LINE_EVERY or steps >= self.total:
            self.last_line = monotonic()
            self.say(" ".join(told.values()))

    def evaluated(self, steps: int, told: str) -> None:
        self.say(f"evaluation at {steps}: {told}")

    def _counted(self, steps: int) -> str:
        return f"{steps:>{len(str(self.total))}}/{self.total}"


def clock(seconds: float) -> str:
    """`12:34`, or `1:23:45` from an hour on."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
