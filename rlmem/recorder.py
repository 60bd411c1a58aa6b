"""The record of a run: `metrics.jsonl` and `episodes.jsonl`, and the loggers that mirror them."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol, TextIO

from rlmem import strictjson
from rlmem.errors import Fault, UserError


class Logger(Protocol):
    """A view of the record elsewhere. Whatever it raises is said once and turns it off."""

    def log(self, number: int, row: Mapping[str, float]) -> None:
        """Show row `number` of metrics.jsonl, which are counted from 0 and come in order, each once."""

    def close(self, failed: bool) -> None:
        """End; `failed`: the run did not reach its end."""


class Recorder:
    """Append rows to the run's two files and mirror the metrics to loggers.

    A metrics row is {"step": environment steps, name: number, ...}; names with the prefix `time/` are measurements of
    this machine, everything else is a function of the configuration and the seed.
    """

    def __init__(self, run_dir: Path, say: Callable[[str], None]):
        self.say = say
        self.loggers: list[tuple[str, Logger]] = []
        self.mirrored = 0
        self.cut: deque[dict[str, Any]] = deque()
        """Rows that were dropped by `rewind` and have not been written again."""
        self.files: dict[str, TextIO] = {
            name: open(run_dir / f"{name}.jsonl", "a", encoding="utf-8") for name in ("metrics", "episodes")
        }

    def mirror(self, loggers: Sequence[tuple[str, Logger]]) -> None:
        """Show every row so far, and each that comes, to `loggers`; a resumed run calls `rewind` before."""
        self.loggers = list(loggers)
        try:
            rows = read_jsonl(Path(self.files["metrics"].name)) if loggers else []
        except ValueError as error:
            self._turn_off(self.loggers, ValueError(f"metrics.jsonl is damaged ({error})"))
            return
        for row in rows:
            self._show(row)

    def _show(self, row: Mapping[str, float]) -> None:
        for name, logger in list(self.loggers):
            try:
                logger.log(self.mirrored, row)
            except Exception as error:  # a mirror must never stop a run, whatever its library raises
                self._turn_off([(name, logger)], error)
        self.mirrored += 1

    def _turn_off(self, loggers: Sequence[tuple[str, Logger]], error: Exception) -> None:
        for name, logger in list(loggers):
            self.loggers.remove((name, logger))
            with suppress(Exception):
                logger.close(failed=True)
            self.say(f"logger={name} stopped: {_told(error)}; the run goes on, metrics.jsonl has every row")

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        row = {"step": step, **values}
        self._write("metrics", [row])
        if self.cut and _reproducible(self.cut.popleft()) != _reproducible(row):
            self.cut.clear()
            self.say(
                f"step {step}: not the row that was here before the run was resumed, under other settings or on "
                f"another machine; metrics.jsonl holds the new rows, a server may keep the old"
            )
        self._show(row)

    def episodes(self, rows: Iterable[dict[str, Any]]) -> None:
        self._write("episodes", rows)

    def _write(self, name: str, rows: Iterable[dict[str, Any]]) -> None:
        file = self.files[name]
        with _writing(file):
            file.writelines(strictjson.dumps(row) + "\n" for row in rows)
            file.flush()

    def position(self) -> dict[str, int]:
        """Sizes of the files in bytes, made durable: what a checkpoint remembers."""
        for file in self.files.values():
            with _writing(file):
                os.fsync(file.fileno())
        return {name: file.tell() for name, file in self.files.items()}

    def rewind(self, position: Mapping[str, int]) -> None:
        """Drop rows written after a checkpoint was taken, so that a resumed run neither repeats nor loses a row.

        Raises UserError if a file is shorter than it was then.
        """
        for name, file in self.files.items():
            if os.fstat(file.fileno()).st_size < position[name]:
                raise UserError(
                    f"{file.name}: shorter than when the checkpoint was taken, so rows were lost; expected at least "
                    f"{position[name]} bytes; restore the file or start a new run"
                )
        with suppress(ValueError):  # rows that were being written when the machine went down
            self.cut = deque(read_jsonl(Path(self.files["metrics"].name), position["metrics"]))
        for name, file in self.files.items():
            file.truncate(position[name])
            file.seek(0, os.SEEK_END)

    def close(self, failed: bool = False) -> None:
        """Close files and mirrors; `failed`: the run did not reach its end."""
        for file in self.files.values():
            with suppress(OSError):  # rows that a full disk did not take, which was said
                file.close()
        for name, logger in self.loggers:
            try:
                logger.close(failed)
            except Exception as error:  # as above
                self.say(f"logger={name} did not close: {_told(error)}; metrics.jsonl has every row")


@contextmanager
def _writing(file: TextIO) -> Iterator[None]:
    """A row that cannot be written becomes a Fault; a resumed run drops what was written of it."""
    try:
        yield
    except OSError as error:
        raise Fault(f"{file.name} cannot be written ({error.strerror})") from error


def _told(error: Exception) -> str:
    return str(error) or type(error).__name__


def _reproducible(row: Mapping[str, float]) -> str:
    """What a row says about the run and not about the machine, comparable also where it holds NaN."""
    return strictjson.dumps({name: value for name, value in row.items() if not name.startswith("time/")})


def read_jsonl(path: Path, begin: int = 0) -> list[dict[str, Any]]:
    """The rows from byte `begin` on, with NaN for null, which stands for a number that is not finite.

    Half a row at the end, of a process that was killed, does not count.
    """
    with open(path, "rb") as file:
        file.seek(begin)
        return [strictjson.row(line) for line in file if line.endswith(b"\n")]
