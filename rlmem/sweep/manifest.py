"""The manifest of a sweep: one row per job, in an SQLite file that several machines may share.

A job belongs to the process that claimed it until that process gives it back, is known to be dead, or has not been
heard of for STALE seconds. Everything is one transaction: it has happened or it has not.
"""

from __future__ import annotations

import json
import re
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

from rlmem.config.messages import shell
from rlmem.errors import UserError
from rlmem.record.trust import is_own, mark
from rlmem.sweep.process import Owner
from rlmem.sweep.spec import Specification

FILE = "sweep.sqlite"
STALE = 300.0
"""Seconds without a heartbeat after which a process on another machine counts as dead; its clock may be off by some."""

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


@dataclass(frozen=True)
class NewJob:
    """A checked job.

    label: readable part of its name;  config_hash: equal for equal configurations
    threads: of its training, None for all cores;  params: what a search drew, as JSON
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
    """A row. Times in seconds since 1970; `attempts` counts starts, `failures` those that failed."""

    number: int
    name: str
    overrides: tuple[str, ...]
    config_hash: str
    threads: int | None
    total_steps: int | None
    params: str | None
    state: str
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

    @property
    def abandoned(self) -> bool:
        """Whether it counts as running although whoever ran it is gone."""
        if self.state != "running":
            return False
        alive = Owner(str(self.host), self.pid or 0, str(self.start)).alive()
        return time.time() - (self.heartbeat or 0) > STALE if alive is None else not alive


class Manifest:
    """DIR/sweep.sqlite. Raises UserError if it cannot be opened, or does not hold what a sweep writes."""

    def __init__(self, folder: Path):
        self.path = folder / FILE
        _require_harmless(folder)
        try:
            # SQLite's usual journal: the newer one, WAL, needs memory that machines do not share.
            self.connection = sqlite3.connect(self.path, timeout=60, isolation_level=None)
            self.connection.row_factory = sqlite3.Row
            if not self.connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'sweep'").fetchone():
                with self._transaction():
                    for statement in TABLES.split(";"):
                        self.connection.execute(statement)
            self._read_all()
        except (sqlite3.Error, ValueError, TypeError, KeyError) as error:
            why = f"lacks {error}" if isinstance(error, KeyError) else error
            raise UserError(f"{self.path}: {why}; expected a sweep's manifest or a place for one") from error

    def _read_all(self) -> None:
        """Raise what makes the manifest useless: a missing table, broken JSON, a name that leaves the sweep."""
        self.specification(), self.trials()
        kinds = get_type_hints(Job)
        kinds["overrides"] = tuple
        for job in self.jobs():
            json.loads(job.params or "null")
            wrong = [name for name, kind in kinds.items() if not isinstance(getattr(job, name), kind)]
            if wrong:
                raise ValueError(f"{wrong[0]} of job {job.number!r} cannot be {getattr(job, wrong[0])!r}")
            if not re.fullmatch(r"\w[\w.+-]*", job.name):
                raise ValueError(f"{job.name!r} is no name of a job")
            if not all(isinstance(line, str) and not line.startswith("-") for line in job.overrides):
                raise ValueError(f"the overrides of {job.name} are not all key=value")

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Alone among all processes that write."""
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.connection.execute("COMMIT")
        except BaseException:
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
            raise

    def specification(self) -> Specification | None:
        text = self._value("specification")
        return None if text is None else Specification.from_json(text)

    def trials(self) -> int:
        return int(self._value("trials") or 0)

    def set_trials(self, trials: int) -> None:
        with self._transaction():
            self._set("trials", str(trials))

    def jobs(self) -> list[Job]:
        return [_job(row) for row in self.connection.execute("SELECT * FROM jobs ORDER BY number")]

    def submit(self, spec: Specification, jobs: Sequence[NewJob]) -> int:
        """Make `spec` the specification, and add those of its jobs that are not there yet; returns how many.

        Raises UserError if a job that is there is none of `jobs`, or if the sweep is a search of something else.
        """
        with self._transaction():
            before, known = self.specification(), {job.config_hash: job for job in self.jobs()}
            foreign = [job for key, job in known.items() if key not in {new.config_hash for new in jobs}]
            if before is not None and before.canonical != spec.canonical:
                folder = self.path.parent
                other = f"`rlmem sweep {shell(folder)}` goes on with what is there, --dir takes another directory"
                if before.direction or spec.direction:
                    raise UserError(f"{folder}: holds another sweep ({_told(before)}); {other}")
                if foreign:
                    names = " ".join(foreign[0].overrides) or "(no overrides)"
                    what = f"holds {len(foreign)} jobs that are not asked for now, such as {names}"
                    raise UserError(f"{folder}: {what}; jobs can be added, not taken away; {other}")
            fresh = [new for new in jobs if new.config_hash not in known]
            for new in fresh:
                self._insert(new)
            self._set("specification", text := spec.to_json())
            self._set("seal of specification", mark(text))
        return len(fresh)

    def foreign(self) -> list[str]:
        """The overrides that another user wrote, of jobs that are not done and of the specification."""

        def is_ours(key: str, text: str | None) -> bool:
            return is_own(f"{self._value(key)}\n{text}")

        found: list[str] = []
        for job in self.jobs():
            if job.state != "done" and not is_ours(f"seal {job.number}", json.dumps(job.overrides)):
                found += job.overrides
        spec = self.specification()
        if spec is not None and not is_ours("seal of specification", self._value("specification")):
            found += [*spec.overrides, *(line for pair in spec.pairs for line in pair)]
        return found

    def draw(self, limit: int, propose: Callable[[list[Job]], NewJob | None]) -> bool:
        """Add what `propose` makes of the jobs so far, if they are fewer than `limit`; whether there was a job."""
        with self._transaction():
            jobs = self.jobs()
            new = propose(jobs) if len(jobs) < limit else None
            if new is None:
                return False
            self._insert(new)
        return True

    def claim(self, owner: Owner, busy: Callable[[str], bool]) -> Job | None:
        """Take a job that nobody works on: new ones first, then those that failed before.

        busy: whether a process still trains in the run directory of this name, whatever the manifest says
        """
        query = "SELECT * FROM jobs WHERE state IN ('waiting', 'running') ORDER BY failures, number"
        if not any(_free(_job(row)) for row in self.connection.execute(query)):
            return None
        with self._transaction():
            for job in map(_job, self.connection.execute(query).fetchall()):
                if _free(job) and not busy(job.name):
                    values = {"attempts": job.attempts + 1, "started": time.time(), "heartbeat": time.time()}
                    self._update(job, values | _owned(owner) | {"state": "running", "ended": None, "exit_code": None})
                    return _job(self.connection.execute("SELECT * FROM jobs WHERE number = ?", [job.number]).fetchone())
        return None

    def beat(self, owner: Owner) -> list[Job]:
        """Say that `owner` is alive; the jobs that it has."""
        mine, who = "WHERE state = 'running' AND host = ? AND pid = ? AND start = ?", _owned(owner)
        self.connection.execute(f"UPDATE jobs SET heartbeat = ? {mine}", [time.time(), *who.values()])
        return [_job(row) for row in self.connection.execute(f"SELECT * FROM jobs {mine}", [*who.values()])]

    def finish(self, job: Job, result: float | None) -> None:
        self._end(job, {"state": "done", "exit_code": 0, "error": None, "result": result})

    def release(self, job: Job) -> None:
        """Give a job back that was stopped, which is nobody's failure."""
        self._end(job, {"state": "waiting"})

    def fail(self, job: Job, exit_code: int, error: str, retries: int) -> bool:
        """Note a failure; whether it was the last that is allowed."""
        last = job.failures >= retries
        values = {"state": "failed" if last else "waiting", "failures": job.failures + 1}
        self._end(job, values | {"exit_code": exit_code, "error": error})
        return last

    def reopen(self, retries: int, afresh: bool) -> None:
        """Let failed jobs wait again that have attempts left; `afresh`: all of them, as if they had not failed."""
        again = "UPDATE jobs SET state = 'waiting', failures = ? WHERE state = 'failed'"
        if afresh:
            self.connection.execute(again, [0])
        else:
            self.connection.execute(again.replace("?", "failures") + " AND failures <= ?", [retries])

    def left(self) -> int:
        """Jobs that are neither done nor failed."""
        return self.connection.execute("SELECT COUNT(*) FROM jobs WHERE state IN ('waiting', 'running')").fetchone()[0]

    def _insert(self, new: NewJob) -> None:
        number = self.connection.execute("SELECT COALESCE(MAX(number), 0) + 1 FROM jobs").fetchone()[0]
        name = f"{number:03d}-{new.label}" if new.label else f"{number:03d}"
        values = {
            "number": number,
            "name": name,
            "overrides": json.dumps(new.overrides),
            "config_hash": new.config_hash,
            "threads": new.threads,
            "total_steps": new.total_steps,
            "params": new.params,
        }
        if new.problem:
            values |= {"state": "failed", "failures": 1, "exit_code": 2, "error": new.problem}
        self._set(f"seal {number}", mark(values["overrides"]))
        places = ", ".join("?" * len(values))
        self.connection.execute(f"INSERT INTO jobs ({', '.join(values)}) VALUES ({places})", [*values.values()])

    def _end(self, job: Job, values: Mapping[str, Any]) -> None:
        """Only by its owner: a job that was taken away after a long silence belongs to another process now."""
        owned = " AND state = 'running' AND host = ? AND pid = ? AND start = ?"
        self._update(job, {**values, "ended": time.time()}, owned, [job.host, job.pid, job.start])

    def _update(self, job: Job, values: Mapping[str, Any], condition: str = "", given: Sequence[Any] = ()) -> None:
        columns = ", ".join(f"{name} = ?" for name in values)
        statement = f"UPDATE jobs SET {columns} WHERE number = ?{condition}"
        self.connection.execute(statement, [*values.values(), job.number, *given])

    def _value(self, key: str) -> str | None:
        row = self.connection.execute("SELECT value FROM sweep WHERE key = ?", [key]).fetchone()
        return row and row["value"]

    def _set(self, key: str, value: str) -> None:
        self.connection.execute("INSERT OR REPLACE INTO sweep VALUES (?, ?)", [key, value])


SUPER_JOURNAL = bytes.fromhex("d9d505f920a163d7")
"""How SQLite's journal of a transaction over several databases ends, which names a file to be deleted."""


def _require_harmless(folder: Path) -> None:
    """UserError for files that SQLite would follow, or delete others for, when the manifest is opened."""
    for name in (FILE, f"{FILE}-journal", f"{FILE}-wal", f"{FILE}-shm"):
        path = folder / name
        if path.is_symlink() or (path.exists() and not path.is_file()):
            raise UserError(f"{path}: is no regular file; expected a sweep's manifest or a place for one")
        if name.endswith("-journal") and path.exists() and path.read_bytes().endswith(SUPER_JOURNAL):
            raise UserError(f"{path}: is of several databases, which no sweep writes; e.g. remove it")


def holds_sweep(folder: Path) -> bool:
    return (folder / FILE).is_file()


def _job(row: sqlite3.Row) -> Job:
    values = dict(row)  # a column that is missing is a KeyError here, as any that is too much is a TypeError
    return Job(**values | {"overrides": tuple(json.loads(values["overrides"]))})


def _free(job: Job) -> bool:
    return job.state == "waiting" or job.abandoned


def _owned(owner: Owner) -> dict[str, Any]:
    return {"host": owner.host, "pid": owner.pid, "start": owner.start}


def _told(spec: Specification) -> str:
    return " ".join([*spec.overrides, *(f"--pair '{' '.join(pair)}'" for pair in spec.pairs)])
