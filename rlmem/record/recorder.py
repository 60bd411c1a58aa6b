"""The record of a run: `metrics.jsonl` and `episodes.jsonl`, loggers of their rows, and live progress with its log."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import Any, Protocol, runtime_checkable

from rich.console import Console
from rich.progress import Progress as Bar
from rich.progress import TextColumn

from rlmem.core import received
from rlmem.core.errors import Fault, UserError, first_line, printable
from rlmem.record.trust import hashed

LINE_EVERY = 10.0
"""Seconds between two plain lines of progress."""

BAR = 20
"""Width of the bar in characters."""

FIRST_TO_GO = ("split", "best", "bar", "rate", "score")
"""What a narrow terminal leaves out, in this order. It always shows the steps, their total and the time left."""


@runtime_checkable
class Logger(Protocol):
    """Shows the metrics of a run elsewhere. An exception that it raises is reported once and turns it off.

    The report ends with its attribute `later`, a sentence, if it has one.
    """

    def log(self, number: int, row: Mapping[str, float]) -> None:
        """Show row `number` of metrics.jsonl. Rows come in order from 0, each once, and all again in a resumed run."""

    def close(self, failed: bool) -> None:
        """Finish; `failed`: whether the run did not reach its end."""


class Recorder:
    """Appends rows to the two files of a run and shows the metrics to loggers.

    A row of metrics is {"step": environment steps, name: number, ...}. Names with the prefix `time/` are measurements
    of this machine; all other values are a function of the configuration and the seed.

    run_dir: the run directory
    say: called with each line for the user
    """

    def __init__(self, run_dir: Path, say: Callable[[str], None]):
        self.say, self.shown = say, 0
        self.loggers: dict[str, Logger] = {}
        self.description = [path for path in (run_dir / "config.yaml", run_dir / "run.json") if path.exists()]
        self.files = {name: RecordFile(run_dir / f"{name}.jsonl") for name in ("metrics", "episodes")}

    def attach(self, loggers: Mapping[str, Logger]) -> None:
        """Show every row so far and all rows to come to `loggers`, by name. A resumed run calls `rewind` first."""
        self.loggers = dict(loggers)
        for row in read_jsonl(self.files["metrics"].path) if loggers else []:
            self._show(row)

    def _show(self, row: Mapping[str, float]) -> None:
        for name, logger in list(self.loggers.items()):
            try:
                logger.log(self.shown, row)
            except Exception as error:  # a logger must never stop a run, whatever its library raises
                del self.loggers[name]
                with suppress(Exception):
                    logger.close(failed=True)
                problem = f"stopped: {_reason(logger, error)}; the run goes on, metrics.jsonl has every row"
                self.say(f"logger={name} {problem}")
        self.shown += 1

    def metrics(self, step: int, values: Mapping[str, float]) -> dict[str, float]:
        """Write a row of metrics, numbers or tensors of one, after `step` environment steps, and show and return it."""
        numbers = {name: value.item() if hasattr(value, "item") else value for name, value in values.items()}
        row = {"step": step, **numbers}
        self.files["metrics"].append([row])
        self._show(row)
        return row

    def episodes(self, rows: Iterable[dict[str, Any]]) -> None:
        self.files["episodes"].append(rows)

    def position(self) -> Position:
        """Write the files to disk; their sizes and hashes, for a checkpoint. Raises Fault if a file was changed."""
        self.require_intact()
        return {name: file.position() for name, file in self.files.items()}

    def require_intact(self) -> None:
        """Raise Fault if somebody deleted or changed a file of the record, or deleted the description of the run."""
        for file in self.files.values():
            file.require_intact()
        if gone := [path for path in self.description if not path.exists()]:
            raise Fault(f"{gone[0]} was deleted while the run was training")

    def rewind(self, position: Position) -> None:
        """Drop the rows after the `position` of a checkpoint, so that a resumed run neither repeats nor loses a row.

        Raises UserError if the rows before the checkpoint have changed.
        """
        for name, file in self.files.items():
            if problem := changed(file.path, position[name]):
                raise UserError(f"{problem} since the checkpoint; restore the file or start a new run")
        for name, file in self.files.items():
            file.cut(position[name]["bytes"])

    def close(self, failed: bool = False) -> None:
        """Close the files and the loggers; `failed`: whether the run did not reach its end."""
        for file in self.files.values():
            file.close()
        for name, logger in self.loggers.items():
            try:
                logger.close(failed)
            except Exception as error:  # as in `_show`
                self.say(f"logger={name} did not close: {_reason(logger, error)}; metrics.jsonl has every row")


def _reason(logger: Logger, error: Exception) -> str:
    """The text of a logger's error, and what it advises to do later."""
    return "; ".join(filter(None, [first_line(error), getattr(logger, "later", None)]))


Position = Mapping[str, Any]
"""For each file of the record, its size in `bytes` and the `sha256` of all its rows."""

START: Position = {name: {"bytes": 0, "sha256": hashlib.sha256().hexdigest()} for name in ("metrics", "episodes")}
"""The position in the record of a run that has not begun."""


class RecordFile:
    """A file to which rows are appended, with the hash of its contents; it is made if it does not exist."""

    def __init__(self, path: Path):
        self.path = path
        with self._writing():
            self.stream = open(path, "ab")
        self.digest, self.size, _ = hashed(path)

    def append(self, rows: Iterable[Mapping[str, Any]]) -> None:
        data = "".join(_json(row) + "\n" for row in rows).encode()
        with self._writing():
            self.stream.write(data)
            self.stream.flush()
        self.digest.update(data)
        self.size += len(data)

    def position(self) -> dict[str, Any]:
        with self._writing():
            os.fsync(self.stream.fileno())
        position = {"bytes": self.size, "sha256": self.digest.hexdigest()}
        if problem := changed(self.path, position):
            raise Fault(f"{problem} while the run was training")
        return position

    def close(self) -> None:
        with suppress(OSError):  # rows that did not fit on the disk, which was reported
            self.stream.close()

    def cut(self, size: int) -> None:
        self.stream.truncate(size)
        self.digest, self.size, _ = hashed(self.path)

    def require_intact(self) -> None:
        """Raise Fault unless the file that is written to still lies at its path and has the size that was written."""
        ours = os.fstat(self.stream.fileno())
        try:
            there = self.path.stat()
        except OSError:
            raise Fault(f"{self.path} was deleted while the run was training") from None
        if (there.st_dev, there.st_ino) != (ours.st_dev, ours.st_ino):
            raise Fault(f"{self.path} was replaced while the run was training")
        if ours.st_size != self.size:
            raise Fault(f"{self.path} was changed while the run was training: {ours.st_size} bytes, not {self.size}")

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Raise Fault where a row cannot be written; a resumed run drops the part of it that was."""
        try:
            yield
        except OSError as error:
            raise Fault(f"{self.path} cannot be written ({error.strerror})") from error


def changed(path: Path, position: Mapping[str, Any]) -> str | None:
    """What has happened to the rows before a position; None: nothing."""
    if not path.is_file():
        return f"{path} is missing"
    digest, size, last = hashed(path, position["bytes"])
    if size != position["bytes"]:
        return f"{path} lost rows"
    return None if digest.hexdigest() == position["sha256"] and last in (b"", b"\n") else f"{path} was changed"


def _json(row: Mapping[str, Any]) -> str:
    try:
        return json.dumps(row, allow_nan=False)
    except ValueError:  # rare: a number that is not finite
        return received.dumps(row)


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """The rows of a `.jsonl` file, with NaN for null: a number that is not finite.

    See `received.json_rows`, which reads one row after the other.
    """
    return list(received.json_rows(path, values=received.VALUES))


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
            line = TextColumn("{task.fields[line]}", markup=False)
            self.bar = Bar(line, console=self.console, transient=True)
            self.task = self.bar.add_task("", total=self.total, completed=self.start, line=self._counted(self.start))
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
        left = max(self.total - steps, 0) / max(rate, 1e-9)
        parts = {
            "bar": f"{'━' * round(BAR * steps / self.total):{BAR}}",
            "steps": self._counted(steps),
            "rate": f"{rate:,.0f}/s",
            "left": f"left {left:.0f}s" if self.bar is None else f"left {timedelta(seconds=round(left))}",
            "score": f" {name} -" if score is None else f" {name} {score:.3f}",
            "best": f"best {self.best:.3f}" if name == "return" and self.best is not None else "",
            "split": " ".join(["", *(f"{part} {share:.0%}" for part, share in shares.items())]),
        }
        if self.bar is not None:
            for part in FIRST_TO_GO:
                if len(" ".join(filter(None, parts.values()))) > self.console.width:
                    parts[part] = ""
            self.bar.update(self.task, completed=steps, line=" ".join(filter(None, parts.values())))
        elif monotonic() - self.last_line > LINE_EVERY or steps >= self.total:
            self.last_line, parts["bar"] = monotonic(), ""
            self.say(" ".join(filter(None, parts.values())))

    def _counted(self, steps: int) -> str:
        return f"{steps:>{len(str(self.total))}}/{self.total}"
