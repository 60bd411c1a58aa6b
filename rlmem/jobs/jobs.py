"""A job of a sweep: its specification, its row in the manifest, and the process that it belongs to."""

from __future__ import annotations

import os
import platform
import re
import secrets
from dataclasses import dataclass
from typing import Literal, get_type_hints

from rlmem.core.strictjson import loads

State = Literal["waiting", "running", "done", "failed"]

TABLES = (
    """CREATE TABLE jobs (
    number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, overrides TEXT NOT NULL, config_hash TEXT NOT NULL,
    threads INTEGER, total_steps INTEGER, params TEXT,
    state TEXT NOT NULL DEFAULT 'waiting' CHECK (state IN ('waiting', 'running', 'done', 'failed')),
    host TEXT, pid INTEGER, start TEXT, heartbeat REAL,
    attempts INTEGER NOT NULL DEFAULT 0, failures INTEGER NOT NULL DEFAULT 0,
    exit_code INTEGER, error TEXT, started REAL, ended REAL, result REAL
)""",
    "CREATE TABLE sweep (key TEXT PRIMARY KEY, value TEXT NOT NULL)",
)
"""The schema of a manifest: a row for every job, and texts by name about the sweep as a whole."""


@dataclass(frozen=True)
class Owner:
    """A process of a machine that works on jobs; `start` names its lock (`Manifest.working`)."""

    host: str
    pid: int
    start: str

    @classmethod
    def me(cls) -> Owner:
        return cls(platform.node(), os.getpid(), secrets.token_hex(8))


@dataclass(frozen=True)
class Job:
    """A job as the manifest has it at the time of reading, or a new one; times are seconds since 1970.

    `number` counts from 1, and `name` is that of the run directory; for a new job it is what follows the number there.
    `overrides` are the command line of its run without its run directory, `config_hash` is equal for equal
    configurations, `threads` None stands for all cores, and `params` is what a search drew, as JSON. `host`, `pid` and
    `start` are the Owner that has the job or had it last, with its last sign of life (`heartbeat`), exit code and
    error. `failures` are those of its `attempts` that failed, and `result` is the objective at the end of its run. A
    new job with an `error` cannot run.
    """

    name: str
    overrides: tuple[str, ...]
    config_hash: str
    threads: int | None
    total_steps: int | None
    params: str | None = None
    error: str | None = None
    number: int = 0
    state: State = "waiting"
    host: str | None = None
    pid: int | None = None
    start: str | None = None
    heartbeat: float | None = None
    attempts: int = 0
    failures: int = 0
    exit_code: int | None = None
    started: float | None = None
    ended: float | None = None
    result: float | None = None

    def require_sound(self) -> None:
        """Raise ValueError for values that no sweep writes: wrong types, or a name that leads out of the sweep."""
        loads(self.params or "null")
        for name, kind in _KINDS.items():
            if not isinstance(value := getattr(self, name), kind):
                raise ValueError(f"{name} of job {self.number!r} cannot be {value!r}")
        if not re.fullmatch(r"\w[\w.+-]*", self.name):
            raise ValueError(f"{self.name!r} is no name of a job")
        if not all(isinstance(line, str) and not line.startswith("-") for line in self.overrides):
            raise ValueError(f"the overrides of {self.name} are not all key=value")


_KINDS = get_type_hints(Job) | {"overrides": tuple, "state": str}
"""The types of the fields, in a form for `isinstance`."""
