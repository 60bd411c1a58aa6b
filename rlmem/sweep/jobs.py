"""A job of a sweep: its specification, its row in the manifest, and the tables of these rows."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass
from typing import Any, Literal, get_type_hints

from rlmem.sweep.process import Owner

STALE = 300.0
"""Seconds without a heartbeat after which a process on another machine counts as dead; clocks may differ slightly."""

State = Literal["waiting", "running", "done", "failed"]

TABLES = """
CREATE TABLE IF NOT EXISTS jobs (
    number INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    overrides TEXT NOT NULL,
    config_hash TEXT NOT NULL,
    threads INTEGER,
    total_steps INTEGER,
    params TEXT,
    state TEXT NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'running', 'done', 'failed')),
    host TEXT,
    pid INTEGER,
    start TEXT,
    heartbeat REAL,
    attempts INTEGER NOT NULL DEFAULT 0,
    failures INTEGER NOT NULL DEFAULT 0,
    exit_code INTEGER,
    error TEXT,
    started REAL,
    ended REAL,
    result REAL
);
CREATE TABLE IF NOT EXISTS sweep (key TEXT PRIMARY KEY, value TEXT NOT NULL);
"""
"""The schema of a manifest: a row for every job, and texts by name about the sweep as a whole."""


@dataclass(frozen=True)
class NewJob:
    """A job that has been checked, and is in no manifest yet.

    label: the part of its name after the number
    overrides: the command line of its run, without its run directory
    config_hash: equal for equal configurations
    threads: CPU threads of its training; None: all cores
    total_steps: environment steps of its run
    params: what a search drew, as JSON
    problem: why it cannot run; None if it can
    """

    label: str
    overrides: tuple[str, ...]
    config_hash: str
    threads: int | None
    total_steps: int | None
    params: str | None = None
    problem: str | None = None


@dataclass(frozen=True)
class Job:
    """A row of the manifest at the time of reading. Times are seconds since 1970; the other fields are those of NewJob.

    number: number of the job in its sweep, from 1
    name: name of its run directory
    host: machine of the process that has it or had it last
    pid: number of that process
    start: start of that process, as `process.started` returns it
    heartbeat: time of the last sign of life of that process
    attempts: how often the job was started
    failures: how many of the attempts failed
    exit_code: exit code of its last process
    error: why that process failed
    started: time of its last start
    ended: time of its last end
    result: the objective at the end of its run
    """

    number: int
    name: str
    overrides: tuple[str, ...]
    config_hash: str
    threads: int | None
    total_steps: int | None
    params: str | None
    state: State
    host: str | None
    pid: int | None
    start: str | None
    heartbeat: float | None
    attempts: int
    failures: int
    exit_code: int | None
    error: str | None
    started: float | None
    ended: float | None
    result: float | None

    @classmethod
    def from_row(cls, row: Any) -> Job:
        """A row of the table. Raises KeyError for a column that is missing, TypeError for one too many."""
        values = dict(row)
        return cls(**values | {"overrides": tuple(json.loads(values["overrides"]))})

    @property
    def abandoned(self) -> bool:
        """Whether it counts as running although the process that ran it is gone."""
        if self.state != "running":
            return False
        alive = Owner(str(self.host), self.pid or 0, str(self.start)).alive()
        return time.time() - (self.heartbeat or 0) > STALE if alive is None else not alive

    @property
    def free(self) -> bool:
        """Whether any process may claim it."""
        return self.state == "waiting" or self.abandoned

    def require_sound(self) -> None:
        """Raise ValueError for values that no sweep writes: wrong types, or a name that leads out of the sweep."""
        json.loads(self.params or "null")
        for name, kind in _KINDS.items():
            if not isinstance(value := getattr(self, name), kind):
                raise ValueError(f"{name} of job {self.number!r} cannot be {value!r}")
        if not re.fullmatch(r"\w[\w.+-]*", self.name):
            raise ValueError(f"{self.name!r} is no name of a job")
        if not all(isinstance(line, str) and not line.startswith("-") for line in self.overrides):
            raise ValueError(f"the overrides of {self.name} are not all key=value")


_KINDS = get_type_hints(Job) | {"overrides": tuple, "state": str}
"""The types of the fields, in a form for `isinstance`."""
