"""Live progress of a run: a bar on a terminal and, with ipywidgets, in a notebook, plain lines elsewhere; every line
is in the log of the run as well.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from time import monotonic

from rich.console import Console, RenderableType
from rich.progress import Progress as Bar
from rich.progress import ProgressColumn, Task
from rich.progress_bar import ProgressBar
from rich.table import Table

from rlmem.errors import printable

LINE_EVERY = 10.0
"""Seconds between two plain lines of progress."""

BAR = 20
"""Width of the bar in characters."""

FIRST_TO_GO = ("split", "best", "bar", "rate", "score")
"""What a narrow terminal leaves out, in this order. It always shows the steps, their total and the time left."""


class FittingColumn(ProgressColumn):
    """One line with as many of the texts in `task.fields["shown"]` as fit into the width of the terminal."""

    def __init__(self, console: Console):
        super().__init__()
        self.console = console

    def render(self, task: Task) -> RenderableType:
        shown, line = {"bar": " " * BAR, **task.fields["shown"]}, Table.grid(padding=(0, 1))
        for name in FIRST_TO_GO:
            if len(" ".join(shown.values())) > self.console.width:
                shown.pop(name, None)
        drawn = [ProgressBar(task.total, task.completed, width=BAR)] if shown.pop("bar", None) else []
        line.add_row(*drawn, " ".join(shown.values()))
        return line


class Progress:
    """Shows steps, steps per second, the time left, the present and the best return, and where the time goes.

    total: environment steps of the run
    log: a file to which every line is appended
    start: environment steps that the run has taken before
    console: where the lines are printed; None: standard output
    """

    def __init__(self, total: int, log: Path, start: int = 0, console: Console | None = None):
        self.total, self.start = total, start
        self.console = console or Console(highlight=False, soft_wrap=True)
        self.log = open(log, "a", encoding="utf-8")
        self.began = self.last_line = monotonic()
        self.best: float | None = None
        self.bar: Bar | None = None

    def __enter__(self) -> Progress:
        in_notebook = self.console.is_jupyter and find_spec("ipywidgets") is not None
        if not self.console.quiet and (self.console.is_terminal or in_notebook):
            self.bar = Bar(FittingColumn(self.console), console=self.console, transient=True)
            begin = {"steps": self._counted(self.start), "left": "left -"}
            self.task = self.bar.add_task("", total=self.total, completed=self.start, shown=begin)
            self.bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self.bar is not None:
            self.bar.stop()
        with suppress(OSError):  # what a full disk did not take
            self.log.close()

    def say(self, line: str) -> None:
        """Print a line above the bar and write it to the log. A full disk or a closed terminal is ignored."""
        line = printable(line, keep="\n\t")
        self.note(line)
        with suppress(OSError):
            self.console.print(line, markup=False)
            sys.stdout.flush()

    def note(self, line: str) -> None:
        """Write a line to the log alone."""
        with suppress(OSError):
            self.log.write(line + "\n")
            self.log.flush()

    def update(self, steps: int, score: float | None, shares: dict[str, float], name: str = "return") -> None:
        """Show the steps so far, the recent score (beside a return, also the best), and where the time went."""
        if score is not None:
            self.best = score if self.best is None else max(self.best, score)
        rate = (steps - self.start) / max(monotonic() - self.began, 1e-9)
        left = (self.total - steps) / max(rate, 1e-9)
        shown = {
            "steps": self._counted(steps),
            "rate": f"{rate:,.0f}/s",
            "left": f"left {left:.0f}s" if self.bar is None else f"left {clock(left)}",
            "score": f" {name} -" if score is None else f" {name} {score:.3f}",
            "best": f"best {self.best:.3f}" if name == "return" and self.best is not None else "",
            "split": " ".join(["", *(f"{part} {share:.0%}" for part, share in shares.items())]),
        }
        shown = {part: text for part, text in shown.items() if text}
        if self.bar is not None:
            self.bar.update(self.task, completed=steps, shown=shown)
        elif monotonic() - self.last_line > LINE_EVERY or steps >= self.total:
            self.last_line = monotonic()
            self.say(" ".join(shown.values()))

    def _counted(self, steps: int) -> str:
        return f"{steps:>{len(str(self.total))}}/{self.total}"


def clock(seconds: float) -> str:
    """`12:34`, or `1:23:45` from an hour on."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if minutes >= 60 else f"{minutes}:{rest:02}"
