"""Single environments divided over worker processes, for physics that no array operation steps."""

import contextlib
import itertools
import os
import pickle
import signal
import subprocess
import sys
import traceback
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rlmem_envs.interface import Blame, begun, blame, raised, stepped

Arrays = tuple[NDArray[Any], ...]
Column = Sequence[Any] | NDArray[Any]

START = """
import sys
sys.path[:] = filter(None, sys.path)  # without the current folder, which may hold modules of these names
import pickle, signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
sys.path[:] = pickle.load(sys.stdin.buffer)
from rlmem_envs.occlusion.workers import serve
serve()
"""
"""What a worker runs. It leaves when its input ends; whether a signal is the end is for its parent to say."""

ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


class WorkerError(RuntimeError):
    """A worker process has died, or an environment in it has raised.

    blame: which environment it was, and what its author may see of it
    """

    def __init__(self, text: str, blame: Blame | None = None):
        super().__init__(text)
        self.blame = Blame(None, text, "") if blame is None else blame


class WorkerDied(WorkerError, ConnectionError):
    """A worker process is gone."""


class Share:
    """The environments of one worker, `number` of them, the first of which has the index `first` in the vector.

    `rows` [n] says which of them a method is for; it returns a tuple of arrays [n, ...]. What an environment raises
    says which one it was, and what it returns is held to Gymnasium's interface.
    """

    def __init__(self, make_env: Callable[[], gym.Env], number: int, first: int = 0):
        self.envs, self.first = [make_env() for _ in range(number)], first

    def begin(self, rows: Sequence[int], seeds: Column) -> Arrays:
        """The first observations of episodes with these seeds."""
        return (np.array([self._begin(j, int(seed)) for j, seed in zip(rows, seeds, strict=True)]),)

    def step(self, rows: Sequence[int], actions: NDArray[Any]) -> Arrays:
        """Observations, rewards, terminated, truncated."""
        results = [self._step(j, action) for j, action in zip(rows, actions, strict=True)]
        return tuple(np.array(column) for column in zip(*results, strict=True))

    def _begin(self, j: int, seed: int) -> Any:
        try:
            return begun(self.envs[j].reset(seed=seed), self.envs[j].observation_space)[0]
        except (Exception, SystemExit) as error:
            blame(error, self.first + j)
            raise

    def _step(self, j: int, action: Any) -> tuple[Any, ...]:
        try:
            return stepped(self.envs[j].step(action), self.envs[j].observation_space)[:4]
        except (Exception, SystemExit) as error:
            blame(error, self.first + j)
            raise

    def replay(self, rows: Sequence[int], seeds: Column, histories: Sequence[NDArray[Any]]) -> Arrays:
        """The last observations of episodes with these seeds after the actions of `histories`, [steps, ...] each."""
        (last,) = self.begin(rows, seeds)
        for k, (j, history) in enumerate(zip(rows, histories, strict=True)):
            for action in history:
                last[k] = self._step(j, action)[0]
        return (last,)

    def picture(self, rows: Sequence[int]) -> Arrays:
        """Images [n, height, width, 3]."""
        return (np.array([self.envs[j].render() for j in rows]),)

    def close(self) -> None:
        for env in self.envs:
            env.close()


class Crew:
    """`num_envs` environments from `make_env`, divided over worker processes; 0 workers: all in this process.

    A worker is a Python of its own that imports this module and whatever `make_env` needs; never the caller's script,
    and not torch. Its standard output goes to standard error. `close` kills it, and so does forgetting the crew; when
    this process is gone, however that came, its input ends and it leaves.

    make_env: a function of a module, or a `functools.partial` of one
    """

    def __init__(self, make_env: Callable[[], gym.Env], num_envs: int, workers: int):
        edges = np.linspace(0, num_envs, max(workers, 1) + 1).astype(int).tolist()
        self.shares = list(itertools.pairwise(edges))
        self.members: list[Here | Worker] = []
        self.close = weakref.finalize(self, _stop, self.members)
        for index, (first, last) in enumerate(self.shares):
            self.members.append(Worker(make_env, index, first, last) if workers else Here(make_env, num_envs))

    @property
    def closed(self) -> bool:
        return not self.close.alive

    def call(self, method: str, who: NDArray[np.intp], *columns: Column) -> Arrays:
        """What `Share.<method>` returns for environments `who` [n], in rising order, and columns with one row for each.

        Raises WorkerError if a worker dies or fails; the crew is closed after that, as after an interruption.
        """
        called = []
        try:
            for member, (first, last) in zip(self.members, self.shares, strict=True):
                here = slice(*np.searchsorted(who, [first, last]))
                if here.start < here.stop:
                    member.send(method, (who[here] - first).tolist(), *(column[here] for column in columns))
                    called.append(member)
            replies = [member.receive() for member in called]
        except BaseException:
            self.close()
            raise
        return tuple(np.concatenate(parts) for parts in zip(*replies, strict=True))


class Here:
    """A share without a process."""

    def __init__(self, make_env: Callable[[], gym.Env], number: int):
        self.share = Share(make_env, number)
        self.reply: Arrays = ()

    def send(self, method: str, *args: Any) -> None:
        self.reply = getattr(self.share, method)(*args)

    def receive(self) -> Arrays:
        return self.reply

    def stop(self) -> None:
        self.share.close()


class Worker:
    """A share in a process of its own, spoken to through its standard input and output."""

    def __init__(self, make_env: Callable[[], gym.Env], index: int, first: int, last: int):
        self.name = f"worker {index} (environments {first} to {last - 1})"
        command = [sys.executable, "-c", START]
        environment = {**os.environ, **ONE_THREAD}
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        self.requests: Any = self.process.stdin
        self.replies: Any = self.process.stdout
        self._write(sys.path)
        self._write((make_env, last - first, first))

    def send(self, method: str, *args: Any) -> None:
        self._write((method, args))

    def receive(self) -> Arrays:
        try:
            reply = pickle.load(self.replies)
        except (EOFError, pickle.UnpicklingError):
            raise self._died() from None
        if isinstance(reply, Blame):
            raise WorkerError(f"{self.name} failed:\n{reply.traceback or reply.line}", reply)
        return tuple(reply)

    def stop(self) -> None:
        """A worker holds nothing that would have to be put in order."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.requests, self.replies):
            with contextlib.suppress(OSError):  # what was not sent
                pipe.close()

    def _write(self, message: Any) -> None:
        try:
            pickle.dump(message, self.requests, pickle.HIGHEST_PROTOCOL)
            self.requests.flush()
        except BrokenPipeError:
            raise self._died() from None

    def _died(self) -> WorkerDied:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(5)
        self.stop()
        code = self.process.returncode
        by = f" ({signal.Signals(-code).name})" if code < 0 else ""
        return WorkerDied(f"{self.name}, process {self.process.pid}, died with exit code {code}{by}")


def _stop(members: list[Here | Worker]) -> None:
    for member in members:
        member.stop()


def serve() -> None:
    """Be a worker: answer the messages of standard input until it ends."""
    requests, replies = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    with contextlib.suppress(EOFError, BrokenPipeError, pickle.UnpicklingError):
        share = None
        make_env, number, first = pickle.load(requests)
        for method, args in _messages(requests):
            reply: Arrays | Blame
            try:
                share = share or Share(make_env, number, first)
                reply = getattr(share, method)(*args)
            except (Exception, SystemExit) as error:
                reply = _told(error)
            pickle.dump(reply, replies, pickle.HIGHEST_PROTOCOL)
            replies.flush()


def _told(error: BaseException) -> Blame:
    """What this process says of an exception to the one that asked."""
    blame = getattr(error, "blame", Blame(None))
    if blame.line is not None:
        return blame
    return blame._replace(line=raised(error), traceback=traceback.format_exc())


def _messages(requests: Any) -> Iterator[Any]:
    while True:
        yield pickle.load(requests)
