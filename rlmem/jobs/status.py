"""The state of a sweep: the table of `rlmem sweep status`, and what a sweep prints while it runs."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from rlmem.core import received
from rlmem.core.errors import LONGEST_LINE, brief, printable
from rlmem.jobs.manifest import Job, Manifest
from rlmem.record.facts import OBJECTIVES

RETURNS = (*OBJECTIVES, "train/return_last_100", "train/accuracy_smoothed")
"""Metrics that are shown as a job's return: the first of them that it has."""

TAIL = 1 << 16
"""Bytes at the end of a metrics.jsonl or a log in which the newest lines are looked for."""

COLOURS = {"waiting": "dim", "running": "cyan", "interrupted": "yellow", "done": "green", "failed": "red"}
"""The states that a table shows, and the colour of each."""

UNBROKEN, REFRESH = 1000, 2.0
"""Width of a table in a file or a pipe, where lines are not broken; seconds between updates of a live table."""


@dataclass(frozen=True)
class JobRow:
    """A job with its environment steps so far and its newest return.

    Its state is that of the manifest, or `interrupted` if the process that ran it is gone.
    """

    job: Job
    state: str
    steps: int
    score: float | None


def rows(manifest: Manifest) -> list[JobRow]:
    """The jobs of a sweep, with their progress."""
    job_rows = []
    for job in manifest.jobs():
        state, steps, score = manifest.state(job), job.total_steps or 0, job.result
        if state != "done" or any("evaluation.stop_at=" in line for line in job.overrides):  # else known unread
            steps, score = steps_and_return(manifest.folder / job.name) if job.attempts else (0, None)
        job_rows.append(JobRow(job, state, steps, score))
    return job_rows


def log_file(folder: Path, name: str) -> Path:
    """The file with the output of a job, of all its attempts."""
    return folder / "logs" / f"{name}.txt"


def objective(run_dir: Path) -> float | None:
    """The greedy evaluation return at the end of a run, or the score of a supervised one."""
    return next((row[key] for row in newest_rows(run_dir) for key in OBJECTIVES if key in row), None)


def newest_rows(run_dir: Path) -> Iterator[dict[str, Any]]:
    """The last rows of a run's metrics, the newest first, without one that is being written."""
    for line in reversed(tail(run_dir / "metrics.jsonl")):
        with suppress(ValueError):
            row = received.row(line)
            if all(received.number(row.get(key, 0)) is not None for key in ("step", *RETURNS)):
                yield row


def steps_and_return(run_dir: Path) -> tuple[int, float | None]:
    """Environment steps of a run by its newest metrics, and its newest return, if it has any."""
    newest = list(newest_rows(run_dir))
    steps = next((row["step"] for row in newest if "step" in row), 0)
    return steps, next((row[key] for key in RETURNS for row in newest if key in row), None)


def tail(path: Path) -> list[str]:
    """The last lines of a file; none if it cannot be read."""
    try:
        with received.opened(path) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
            return file.read(TAIL).decode(errors="replace").splitlines()
    except OSError:
        return []


def as_json(folder: Path) -> str:
    """{"sweep", "counts": {state: jobs}, "jobs": [{...}, ...]}"""
    job_rows = rows(Manifest(folder))
    about = {"sweep": str(folder), "counts": Counter(row.state for row in job_rows)}
    return received.dumps(about | {"jobs": [_as_dict(row, row.job, folder) for row in job_rows]}, indent=2)


def _as_dict(row: JobRow, job: Job, folder: Path) -> dict[str, Any]:
    return {
        **{key: getattr(job, key) for key in ("number", "name", "overrides", "config_hash", "total_steps")},
        **{key: getattr(job, key) for key in ("host", "attempts", "failures", "exit_code", "error")},
        "state": row.state,
        "steps": row.steps,
        "return": row.score,
        "run_dir": str(folder / job.name),
        "log": str(log_file(folder, job.name)),
    }


def counts(job_rows: Sequence[JobRow]) -> Text:
    """`12 jobs: 7 done, 2 running, 3 waiting`, coloured."""
    count = Counter(row.state for row in job_rows)
    parts = [Text(f"{count[state]} {state}", style) for state, style in COLOURS.items() if count[state]]
    return Text(f"{len(job_rows)} jobs{': ' if parts else ''}") + Text(", ").join(parts)


def empty_table(*columns: str) -> Table:
    """A table without lines; the columns whose names end in `>` are flush right."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(name.rstrip(">"), justify="right" if name.endswith(">") else "left", overflow="fold")
    return table


def table(job_rows: Sequence[JobRow]) -> Table:
    drawn = empty_table("job", "state", "steps>", "return>", "host", "attempts>", "last error")
    for column in drawn.columns[1:-1]:  # names and errors may be long
        column.no_wrap = True
    for row in job_rows:
        job = row.job
        steps = f"{row.steps:,}" if job.total_steps is None else f"{row.steps:,}/{job.total_steps:,}"
        score = "" if row.score is None else f"{row.score:.3f}"
        state = Text(row.state, COLOURS[row.state])
        attempts = str(job.attempts or "")
        host, error = (Text(brief(printable(text or ""), LONGEST_LINE)) for text in (job.host, job.error))
        drawn.add_row(Text(job.name), state, steps, score, host, attempts, error)
    return drawn


def print_table(folder: Path) -> None:
    job_rows, width = rows(Manifest(folder)), None if Console().is_terminal else UNBROKEN
    Console(width=width).print(table(job_rows), counts(job_rows), sep="\n")


class View:
    """Lines while a sweep runs; on a terminal also the running jobs, which `live` keeps up to date below them."""

    def __init__(self, console: Console, manifest: Manifest):
        self.console, self.manifest, self.next = console, manifest, 0.0
        self.live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None

    def say(self, line: str) -> None:
        with suppress(OSError):  # a full disk does not end the sweep
            self.console.print(printable(line, keep="\n"), markup=False, highlight=False, soft_wrap=True)
            self.console.file.flush()

    def done(self, job: Job, text: str) -> None:
        """Say that a job is done, and how many are."""
        states = [job.state for job in self.manifest.jobs()]
        self.say(f"{states.count('done')}/{max(len(states), self.manifest.trials())} {job.name}: {text}")

    def refresh(self) -> None:
        """Draw the running jobs again, at most every REFRESH seconds."""
        if self.live is not None and monotonic() >= self.next:
            job_rows = rows(self.manifest)
            active = [row for row in job_rows if row.state in ("running", "interrupted")]
            self.live.update(Group(counts(job_rows), *([table(active)] if active else [])), refresh=True)
            self.next = monotonic() + REFRESH
