"""The record of a run: `metrics.jsonl` and `episodes.jsonl`, and the loggers that mirror them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TextIO

from rlmem.errors import UserError


class Logger(Protocol):
    """A view of the record elsewhere. Whatever it raises is said once and turns it off."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None: ...

    def close(self, failed: bool) -> None: ...


class Recorder:
    """Append rows to the run's two files and mirror the metrics to `loggers`.

    A metrics row is {"step": environment steps, name: number, ...}; names with the prefix `time/` are measurements of
    this machine, everything else is a function of the configuration and the seed.
    """

    def __init__(self, run_dir: Path, loggers: Sequence[tuple[str, Logger]], say: Any):
        self.loggers = list(loggers)
        self.say = say
        self.files: dict[str, TextIO] = {
            name: open(run_dir / f"{name}.jsonl", "a", encoding="utf-8") for name in ("metrics", "episodes")
        }

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        self._write("metrics", [{"step": step, **values}])
        for name, logger in list(self.loggers):
            try:
                logger.log(step, values)
            except Exception as error:  # a mirror must never stop a run, whatever its library raises
                self.loggers.remove((name, logger))
                self.say(f"logger={name} stopped: {error}; the run goes on, metrics.jsonl is complete")

    def episodes(self, rows: Iterable[dict[str, Any]]) -> None:
        self._write("episodes", rows)

    def _write(self, name: str, rows: Iterable[dict[str, Any]]) -> None:
        file = self.files[name]
        file.writelines(json.dumps(row) + "\n" for row in rows)
        file.flush()

    def position(self) -> dict[str, int]:
        """Sizes of the files in bytes, made durable: what a checkpoint remembers."""
        for file in self.files.values():
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
        for name, file in self.files.items():
            file.truncate(position[name])
            file.seek(0, os.SEEK_END)

    def close(self, failed: bool = False) -> None:
        """Close files and mirrors; `failed`: the run did not reach its end."""
        for file in self.files.values():
            file.close()
        for name, logger in self.loggers:
            try:
                logger.close(failed)
            except Exception as error:  # as above
                self.say(f"logger={name} did not close: {error}; metrics.jsonl is complete")


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]
