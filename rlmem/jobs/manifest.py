"""The manifest of a sweep: one row per job, in an SQLite file that several machines may share.

A job belongs to the process that claimed it until that process releases it or no longer holds its lock, a file beside
the manifest. Every method is one transaction: it has happened or it has not.
"""

import json
import os
import platform
import re
import sqlite3
import sys
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_type_hints

from rlmem.config.messages import shell
from rlmem.core.errors import UserError, brief, first_line
from rlmem.core.received import inside, loads
from rlmem.jobs.spec import SweepSpec
from rlmem.record import rundir
from rlmem.record.trust import is_own, mark, require_plain_database

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
class Job:
    """A job as the manifest has it at the time of reading, or a new one; times are seconds since 1970.

    `number` counts from 1, and `name` is that of the run directory; for a new job it is what follows the number there.
    `overrides` are the command line of its run without its run directory, `config_hash` is equal for equal
    configurations, `threads` None stands for all cores, and `params` is what a search drew, as JSON. `host` and `pid`
    are those of the process that has the job or had it last, `start` names its lock (`Manifest.working`), and exit code
    and error are its last ones. `heartbeat` is no longer written. `failures` are those of its `attempts` that failed,
    and `result` is the objective at the end of its run. A new job with an `error` cannot run.
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


FILE = "sweep.sqlite"
MOST, BYTES, TEXT = 100_000, 1 << 25, 1 << 20
"""Jobs of a sweep at most, bytes of each of its files, and bytes of a text in it."""

ACTIVE = "state IN ('waiting', 'running')"
MINE = "state = 'running' AND start = ?"
"""SQL conditions: jobs that are neither done nor failed, and jobs of the process with this lock."""


class Manifest:
    """DIR/sweep.sqlite. Raises UserError if it cannot be opened, or does not hold what a sweep writes."""

    def __init__(self, folder: Path):
        self.folder, self.path = folder, folder / FILE
        require_plain_database(self.path, BYTES)
        try:
            # SQLite's usual journal: the newer one, WAL, needs memory that machines do not share.
            self.connection = sqlite3.connect(self.path, timeout=60, isolation_level=None)
            self.connection.row_factory = sqlite3.Row
            if sys.version_info >= (3, 11):
                self.connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, TEXT)
            if not self.connection.execute("SELECT 1 FROM sqlite_master").fetchone():
                with self._transaction():
                    for statement in TABLES:
                        self.connection.execute(statement.replace("TABLE", "TABLE IF NOT EXISTS"))
            self._require_tables()
            self.specification(), self.trials()
            for job in self.jobs():
                job.require_sound()
                inside(folder, job.name)
        except UserError:
            raise
        except Exception as error:  # its tables and texts may hold anything
            why = f"lacks {error}" if isinstance(error, KeyError) else brief(first_line(error), 300)
            raise UserError(f"{self.path}: {why}; expected a sweep's manifest or a place for one") from error

    def _require_tables(self) -> None:
        """Raise ValueError for tables, views and triggers that no sweep has. A query of a view may never end."""
        query = "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL LIMIT 3"
        there = {row["name"]: " ".join(row["sql"].split()) for row in self.connection.execute(query)}
        tables = {name: " ".join(sql.split()) for name, sql in zip(("jobs", "sweep"), TABLES, strict=True)}
        for name in sorted(there.keys() | tables):
            if there.get(name) != tables.get(name):
                raise ValueError(f"{name} is not a table of a sweep" if name in there else f"no such table: {name}")

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Exclude all other processes that write."""
        with self.connection:  # commits, or rolls back after an exception
            self.connection.execute("BEGIN IMMEDIATE")
            yield

    def specification(self) -> SweepSpec | None:
        text = self._value("specification")
        return None if text is None else SweepSpec.from_json(text)

    def trials(self) -> int:
        return int(self._value("trials") or 0)

    def set_trials(self, trials: int) -> None:
        with self._transaction():
            self._set("trials", str(trials))

    def jobs(self, only: Container[str] | None = None, condition: str = "1 ORDER BY number") -> list[Job]:
        """The jobs, in the order of their numbers.

        only: configuration hashes of the jobs that are meant; None: all
        """
        return [job for job in self._select(condition) if only is None or job.config_hash in only]

    def submit(self, spec: SweepSpec, jobs: Sequence[Job]) -> int:
        """Make `spec` the specification, and add those of its jobs that are new; returns how many.

        Raises UserError if a stored job is not among `jobs`, or if the sweep is another search.
        """
        with self._transaction():
            before, known = self.specification(), {job.config_hash: job for job in self.jobs()}
            foreign = [job for key, job in known.items() if key not in {new.config_hash for new in jobs}]
            if before is not None and before.canonical != spec.canonical:
                other = f"`rlmem sweep {shell(self.folder)}` goes on with what is there, --dir takes another directory"
                if before.direction or spec.direction:
                    line = " ".join([*before.overrides, *(f"--pair '{' '.join(pair)}'" for pair in before.pairs)])
                    raise UserError(f"{self.folder}: holds another sweep ({line}); {other}")
                if foreign:
                    names = " ".join(foreign[0].overrides) or "(no overrides)"
                    problem = f"holds {len(foreign)} jobs that are not asked for now, such as {names}"
                    raise UserError(f"{self.folder}: {problem}; jobs can be added, not taken away; {other}")
            fresh = [new for new in jobs if new.config_hash not in known]
            for new in fresh:
                self._insert(new)
            self._set("specification", text := spec.to_json())
            self._set("seal of specification", mark(text))
        return len(fresh)

    def foreign(self) -> list[str]:
        """The overrides that another user wrote, in the specification and in jobs that are not done."""

        def is_ours(key: str, text: str | None) -> bool:
            return is_own(f"{self._value(key)}\n{text}")

        lines: list[str] = []
        for job in self.jobs():
            if job.state != "done" and not is_ours(f"seal {job.number}", json.dumps(job.overrides)):
                lines += job.overrides
        spec = self.specification()
        if spec is not None and not is_ours("seal of specification", self._value("specification")):
            lines += [*spec.overrides, *(line for pair in spec.pairs for line in pair)]
        return lines

    def draw(self, limit: int, propose: Callable[[list[Job]], Job | None]) -> bool:
        """Add the job that `propose` makes of the jobs so far, if they are under `limit`; returns whether it did."""
        with self._transaction():
            jobs = self.jobs()
            new = propose(jobs) if len(jobs) < limit else None
            if new is not None:
                self._insert(new)
        return new is not None

    def claim(self, owner: str, busy: Callable[[str], bool], only: Container[str] | None = None) -> Job | None:
        """Take a job that no process works on, for this one: new ones first, then those that failed before.

        owner: the name of this process's lock (`working`)
        busy: whether a process still trains in the run directory of this name, whatever the manifest says
        only: the configuration hashes of the jobs that may be taken; None: all
        """
        with self._transaction():
            for job in self.left(only):
                is_left = self.state(job) == "interrupted" and job.start != owner
                if (job.state == "waiting" or is_left) and not busy(job.name):
                    values: dict[str, Any] = {"host": platform.node(), "pid": os.getpid(), "start": owner}
                    values |= {"state": "running", "started": time.time(), "ended": None, "exit_code": None}
                    values |= {"attempts": job.attempts + 1}
                    self._update(values, "number = ?", job.number)
                    if is_left and (lock := self._lock_of(job)) and not self._select(MINE, job.start):
                        lock.unlink(missing_ok=True)  # of a process that is gone and has no jobs left
                    return replace(job, **values)
        return None

    def state(self, job: Job) -> str:
        """The state of a job; `interrupted` if it counts as running although its process no longer holds its lock."""
        if job.state != "running":
            return job.state
        try:
            held = (lock := self._lock_of(job)) is not None and rundir.is_held(lock)
        except OSError:  # the lock of another user, which cannot be seen
            held = True
        return "running" if held else "interrupted"

    def _lock_file(self, start: str) -> Path:
        return self.folder / f".{start}.lock"

    def _lock_of(self, job: Job) -> Path | None:
        """The lock of a job's process; None if the manifest, which may be another user's, names no lock."""
        start = job.start or ""
        return self._lock_file(start) if re.fullmatch("[0-9a-f]{16}", start) else None

    @contextmanager
    def working(self, owner: str) -> Iterator[None]:
        """Hold the lock `owner`, 16 hexadecimal digits, while the jobs that it claims are its own."""
        path = self._lock_file(owner)
        try:
            with rundir.lock(self.folder, path.name):
                yield
        finally:
            path.unlink(missing_ok=True)

    def claimed(self, owner: str) -> list[Job]:
        """The jobs that a process has."""
        return self._select(MINE, owner)

    def finish(self, job: Job, result: float | None) -> None:
        """Record that a job is done, with the objective at its end."""
        self._end(job, {"state": "done", "exit_code": 0, "error": None, "result": result})

    def release(self, job: Job) -> None:
        """Return a stopped job to the queue; that is not counted as a failure."""
        self._end(job, {"state": "waiting"})

    def fail(self, job: Job, exit_code: int, error: str, retries: int) -> bool:
        """Record that a job has failed; it waits again until it has failed more than `retries` times.

        Returns whether this was the last attempt.
        """
        last = job.failures >= retries
        values = {"state": "failed" if last else "waiting", "failures": job.failures + 1}
        self._end(job, values | {"exit_code": exit_code, "error": error})
        return last

    def reopen(self, retries: int, afresh: bool, only: Container[str] | None = None) -> None:
        """Let failed jobs wait again.

        retries: failures up to which a job has attempts left
        afresh: let all of them wait, and forget their failures
        only: configuration hashes of the jobs that are meant; None: all
        """
        values = {"state": "waiting"} | ({"failures": 0} if afresh else {})
        for job in self.jobs(only):
            if afresh or job.failures <= retries:
                self._update(values, "number = ? AND state = 'failed'", job.number)

    def left(self, only: Container[str] | None = None) -> list[Job]:
        """The jobs that are neither done nor failed, in the order in which they are taken; `only` as in `jobs`."""
        return self.jobs(only, f"{ACTIVE} ORDER BY failures, number")

    def _insert(self, new: Job) -> None:
        number = self.connection.execute("SELECT COALESCE(MAX(number), 0) + 1 FROM jobs").fetchone()[0]
        name = f"{number:03d}-{new.name}" if new.name else f"{number:03d}"
        values = {"number": number, "name": name, "overrides": json.dumps(new.overrides)}
        values |= {key: getattr(new, key) for key in ("config_hash", "threads", "total_steps", "params")}
        if new.error:
            values |= {"state": "failed", "failures": 1, "exit_code": 2, "error": new.error}
        self._set(f"seal {number}", mark(values["overrides"]))
        places = ", ".join("?" * len(values))
        self.connection.execute(f"INSERT INTO jobs ({', '.join(values)}) VALUES ({places})", [*values.values()])

    def _end(self, job: Job, values: Mapping[str, Any]) -> None:
        """Record an end, by the owner only: without its lock, the job may belong to another process."""
        self._update({**values, "ended": time.time()}, f"number = ? AND {MINE}", job.number, job.start)

    def _select(self, condition: str, *parameters: Any) -> list[Job]:
        stored = self.connection.execute(f"SELECT * FROM jobs WHERE {condition}", parameters).fetchmany(MOST + 1)
        if len(stored) > MOST:
            raise ValueError(f"has more than {MOST:,} jobs")
        rows = map(dict, stored)  # one after the other, for what is no job may take much memory
        return [Job(**row | {"overrides": tuple(loads(row["overrides"]))}) for row in rows]

    def _update(self, values: Mapping[str, Any], condition: str, *parameters: Any) -> None:
        columns = ", ".join(f"{name} = ?" for name in values)
        self.connection.execute(f"UPDATE jobs SET {columns} WHERE {condition}", [*values.values(), *parameters])

    def _value(self, key: str) -> str | None:
        row = self.connection.execute("SELECT value FROM sweep WHERE key = ?", [key]).fetchone()
        return row and row["value"]

    def _set(self, key: str, value: str) -> None:
        self.connection.execute("INSERT OR REPLACE INTO sweep VALUES (?, ?)", [key, value])


def holds_sweep(folder: Path) -> bool:
    return (folder / FILE).is_file()
