"""The process pool: one loop in the main thread starts, watches and stops several jobs at once; CUDA MPS for them."""

import os
import platform
import re
import secrets
import shutil
import signal
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from itertools import takewhile
from multiprocessing.process import BaseProcess
from pathlib import Path
from time import monotonic, sleep, time

from rlmem.config.overrides import assignment
from rlmem.core import processes
from rlmem.core.command import NOTICE, REQUEUE, STOP_SIGNALS, stopping_politely
from rlmem.core.hardware import cores
from rlmem.jobs.manifest import Job, Manifest
from rlmem.jobs.status import View, log_file, objective, tail
from rlmem.record import rundir

TICK, LOOK = 0.1, 2.0
"""Seconds between checks of the processes, and checks of the manifest for work."""

STOPPED = {REQUEUE, 130} | {-number for number in STOP_SIGNALS}
"""Exit codes of a run that was asked to stop; one that was still starting had nothing to save."""


@dataclass(frozen=True)
class Options:
    """Settings of the work on a sweep, which may differ every time.

    places: jobs at once; None: as many as there are cores for
    gpus: devices to spread the jobs over
    per_gpu: jobs at once on each of these devices
    retries: failures of a job after which it is tried again
    retry_failed: whether failed jobs get all their attempts again
    trials: jobs of a search in all; None: as many as before
    trust: whether jobs that another user wrote are accepted
    only: configuration hashes of the jobs to work on; None: all
    again: the command that continues this work, in messages; None: `rlmem sweep DIR`
    """

    places: int | None = None
    gpus: tuple[str, ...] = ()
    per_gpu: int = 1
    retries: int = 1
    retry_failed: bool = False
    trials: int | None = None
    trust: bool = False
    only: frozenset[str] | None = None
    again: str | None = None


@dataclass(frozen=True)
class Child:
    """A running job, its process, and its GPU."""

    job: Job
    process: BaseProcess
    gpu: str | None


@dataclass
class Pool:
    """Works on the jobs of a manifest until none is left, including those that other machines give up.

    Results are in the manifest before the next job starts, so that the sweep itself may be killed at any moment.

    places: jobs at once
    more: adds a job to the manifest if there is one to add, and returns whether it did
    """

    manifest: Manifest
    view: View
    options: Options
    places: int
    more: Callable[[], bool] = lambda: False
    owner: str = field(default_factory=lambda: secrets.token_hex(8))
    children: list[Child] = field(default_factory=list)
    stop: BaseException | None = None
    asked: bool = False
    next_look: float = 0.0
    trouble: str = ""

    def run(self) -> None:
        """Work until no job is left. Raises `Stopped` after a signal; the jobs save, or are killed by a second one."""
        with self.manifest.working(self.owner):
            try:
                with stopping_politely(self):
                    while not self._round_or_retry():
                        sleep(TICK)
            except BaseException as error:
                self._abandon(kill=isinstance(error, KeyboardInterrupt))
                raise
        if self.stop is not None and self.manifest.left(self.options.only):
            raise self.stop

    def _round_or_retry(self) -> bool:
        """A round; if a full disk or a slow network keeps it from the manifest, the next one tries again."""
        try:
            return self._round()
        except sqlite3.OperationalError as error:
            if str(error) != self.trouble:
                self.trouble = str(error)
                self.view.say(f"{self.manifest.path}: {error}; trying again")
            return False

    def _round(self) -> bool:
        """Check processes and manifest once; returns whether nothing is left to do."""
        ended = self._reap()
        if self.stop is not None:
            self._ask_to_stop()
            return not self.children
        if ended or monotonic() >= self.next_look:
            self._fill()
            self.next_look = monotonic() + LOOK
            if not self.children and not self.manifest.left(self.options.only):
                return True
        self.view.refresh()
        return False

    def _fill(self) -> None:
        at_work = {child.job.number for child in self.children}
        for claimed in self.manifest.claimed(self.owner):
            if claimed.number not in at_work:  # an error after its claim kept it from starting
                self.manifest.release(claimed)
        while self.stop is None and len(self.children) < self.places:
            job = self.manifest.claim(self.owner, self._busy, self.options.only)
            if job is not None:
                self._start(job)
            elif not self.more():
                return

    def _busy(self, name: str) -> bool:
        return rundir.is_locked(self.manifest.folder / name)

    def _start(self, job: Job) -> None:
        gpu = min(self.options.gpus, key=[child.gpu for child in self.children].count, default=None)
        log, threads = log_file(self.manifest.folder, job.name), str(job.threads or cores())
        variables = os.environ | {"OMP_NUM_THREADS": threads} | ({} if gpu is None else {"CUDA_VISIBLE_DEVICES": gpu})
        place = assignment("run_dir", str(self.manifest.folder / job.name))
        arguments = ["train", *job.overrides, place, "on_exists=resume"]
        try:
            log.parent.mkdir(exist_ok=True)
            with open(log, "a", encoding="utf-8") as out:
                now = datetime.now().isoformat(sep=" ", timespec="seconds")
                print(f"{HEADER} attempt {job.attempts} on {platform.node()}, {now}", file=out)
            process = processes.start(processes.rlmem, arguments, str(log), variables=variables, fresh=threads != "1")
            self.children.append(Child(job, process, gpu))
        except OSError as error:
            self._failed(job, 1, f"cannot be started: {error}")

    def _reap(self) -> bool:
        """Record the processes that have ended; returns whether any has."""
        ended = [child for child in self.children if child.process.exitcode is not None]
        for child in ended:
            job, code, run_dir = child.job, child.process.exitcode or 0, self.manifest.folder / child.job.name
            if code == 0:
                result = objective(run_dir)
                self.manifest.finish(job, result)
                returned = "no return" if result is None else f"return {result:.3f}"
                self.view.done(job, f"{returned}, {time() - (job.started or 0):.0f} s")
            elif code in STOPPED or (code == 2 and rundir.is_locked(run_dir)):
                self.manifest.release(job)
                self.view.say(f"{job.name}: stopped, to go on later")
            else:
                self._failed(job, code, reason_of_failure(code, log_file(self.manifest.folder, job.name)))
            self.children.remove(child)
        return bool(ended)

    def _failed(self, job: Job, code: int, error: str) -> None:
        last = self.manifest.fail(job, code, error, self.options.retries)
        self.view.say(f"{job.name}: {error}; {'given up' if last else 'to be tried again'}")

    def _ask_to_stop(self) -> None:
        """Ask the jobs, once, to save and stop.

        Jobs that the signal has reached directly, as signals of Slurm and systemd do, are skipped: a second request
        would end them before they save. Requests within `command.SAME` seconds count as one.
        """
        for child in [] if self.asked else self.children:
            if NOTICE.strip() not in lines_since_start(log_file(self.manifest.folder, child.job.name)):
                child.process.terminate()
        self.asked = True

    def _abandon(self, kill: bool) -> None:
        """End the jobs with the sweep: they save, or after a second signal (`kill`) they are killed."""
        for child in self.children:
            child.process.kill() if kill else child.process.terminate()
        for child in self.children if kill else ():
            child.process.join()
            with suppress(sqlite3.Error):
                self.manifest.release(child.job)


HEADER, MARK = "===", re.compile("rlmem: (error|failed): ")
"""Beginnings of the lines in a log that say when a process started, and why it failed."""


def reason_of_failure(code: int, log: Path) -> str:
    """Why a job failed: the signal that killed it, or the last line that it wrote."""
    if code < 0:
        name = signal.Signals(-code).name
        return f"killed by {name}{', perhaps for want of memory' if code == -signal.SIGKILL else ''}"
    lines = [line.strip() for line in lines_since_start(log) if line.strip()]
    named = [line for line in lines if MARK.match(line)]
    line = (named or lines or ["(it wrote nothing)"])[-1]
    return line[match.end() :] if (match := MARK.match(line)) else line


def lines_since_start(log: Path) -> list[str]:
    """The last lines that a job has written since its latest start."""
    return [*takewhile(lambda line: not line.startswith(HEADER), reversed(tail(log)))][::-1]


MPS = "nvidia-cuda-mps-control"
"""The program of NVIDIA's Multi-Process Service: kernels of several processes run on a GPU at the same time."""
PIPES, LOGS = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"
SECONDS = 20
"""For the daemon to start, and to end."""


@contextmanager
def shared_gpus(per_gpu: int, say: Callable[[str], None]) -> Iterator[None]:
    """Within, processes that are started share GPUs by an MPS daemon of their own.

    Nothing is started for a single job on a GPU, where MPS is not installed, or where the user has a daemon: its folder
    is in CUDA_MPS_PIPE_DIRECTORY, or the default one exists.
    """
    program = shutil.which(MPS)
    if per_gpu < 2 or program is None or PIPES in os.environ or Path("/tmp/nvidia-mps/control").exists():
        yield
        return
    with tempfile.TemporaryDirectory(prefix="mps-") as folder:
        os.environ |= {PIPES: folder, LOGS: folder}
        try:
            subprocess.run([program, "-d"], check=True, capture_output=True, timeout=SECONDS)
        except (OSError, subprocess.SubprocessError) as error:
            say(f"jobs on one GPU take turns: {MPS} does not start ({error})")
            program = None
            del os.environ[PIPES], os.environ[LOGS]
        else:
            say("jobs on one GPU compute at the same time (CUDA MPS)")
        try:
            yield
        finally:
            if program is not None:
                with suppress(OSError, subprocess.SubprocessError):
                    subprocess.run([program], input=b"quit\n", capture_output=True, timeout=SECONDS)
                del os.environ[PIPES], os.environ[LOGS]
