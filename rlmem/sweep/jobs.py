"""A job of a sweep: what is asked for, its row in the manifest, and the tables that hold these rows."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass
from typing import Any, Literal, get_type_hints

from rlmem.sweep.process import Owner

STALE = 300.0
"""Seconds without a heartbeat after which a process on another machine counts as dead; its clock may be off by some."""

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

    label: the readable part of its name
    overrides: the command line of its run, without its run directory
    config_hash: equal for equal configurations
    threads: of its training; None: all cores
    total_steps: environment steps of its run
    params: what a search drew, as JSON
    problem: why it cannot run, if it cannot
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
    """A row of the manifest, as it was when it was read.

    number: of the job in its sweep, from 1
    name: of its run directory
    host: the machine of the process that has it or had it last; `pid` and `start` say which process that is
    heartbeat: when that process was last heard of, in seconds since 1970, as are `started` and `ended`
    attempts: how often it was started
    failures: how many of the attempts failed
    exit_code: of its last process
    error: why that one failed
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
        """Raise ValueError for values that no sweep writes: other types, or a name that leaves the sweep."""
        json.loads(self.params or "null")
        for name, kind in _KINDS.items():
            if not isinstance(value := getattr(self, name), kind):
                raise ValueError(f"{name} of job {self.number!r} cannot be {value!r}")
        if not re.fullmatch(r"\w[\w.+-]*", self.name):
            raise ValueError(f"{self.name!r} is no name of a job")
        if not all(isinstance(line, str) and not line.startswith("-") for line in self.overrides):
            raise ValueError(f"the overrides of {self.name} are not all key=value")


_KINDS = get_type_hints(Job) | {"overrides": tuple, "state": str}
"""The types that `isinstance` can tell."""
