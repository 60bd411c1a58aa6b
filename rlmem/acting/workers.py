"""Worker processes of Gymnasium's AsyncVectorEnv, and an end of any vector that waits for no process that is gone."""

import queue
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import connection
from time import monotonic
from typing import Any, NoReturn

from gymnasium.vector import AsyncVectorEnv, VectorEnv

from rlmem.core.errors import bounded, one_line

PATIENCE = 5.0
"""Seconds until a worker that failed has reported or ended, and until a vector that failed is closed."""


class WorkerFailed(RuntimeError):
    """A worker process has died, or the environment in it has raised.

    blame: the index of its environment, a line on what happened, and the traceback of the worker; see `Guard`
    """

    def __init__(self, environment: int | None, line: str, trace: str = ""):
        super().__init__(line)
        self.blame = (environment, line, trace)


def raised(error: BaseException) -> str:
    """The name of an exception and the first line of its text."""
    text = str(error).strip().partition("\n")[0]
    return f"raised {type(error).__name__}{text and ': '}{text}"


class Reports:
    """The queue in which the workers of a vector report what they raised. Reading it raises WorkerFailed.

    Gymnasium waits for a report without a limit. An exception that cannot be pickled never arrives.
    """

    def __init__(self, vector: AsyncVectorEnv):
        self.vector, self.queue = vector, vector.error_queue

    def get(self) -> NoReturn:
        error: Exception | None = None
        until = monotonic() + PATIENCE
        while error is None:
            late = monotonic() > until or bool(_ended(self.vector))
            try:
                index, kind, value, trace = self.queue.get(timeout=0.2)
            except queue.Empty:
                error = queue.Empty() if late else None
            except Exception as failure:  # of the exception's class, which cannot be built again from its arguments
                error = failure
            else:
                if issubclass(kind, KeyboardInterrupt):
                    raise KeyboardInterrupt
                raise WorkerFailed(index, raised(value), trace)
        environment = next(iter(_ended(self.vector, PATIENCE)), None)
        why = "" if isinstance(error, queue.Empty) else f" ({one_line(error)})"
        problem = f"raised an exception that cannot be passed between processes{why}"
        raise WorkerFailed(environment, f"{problem}; expected one that pickle can copy, such as ValueError('text')")


def watch_workers(env: VectorEnv) -> None:
    """Have the workers of an AsyncVectorEnv report their exceptions as WorkerFailed, with an index and a traceback."""
    vector = _inner(env)
    if isinstance(vector, AsyncVectorEnv) and not isinstance(vector.error_queue, Reports):
        vector.error_queue = Reports(vector)  # type: ignore[assignment]


def death_of_worker(env: VectorEnv, error: BaseException) -> WorkerFailed | None:
    """The death of a worker process that explains an error of a vector; None if the error has its own explanation."""
    vector = _inner(env)
    if not isinstance(vector, AsyncVectorEnv) or hasattr(error, "blame"):
        return None
    lost_a_pipe = isinstance(error, EOFError | OSError)
    for environment, code in _ended(vector, PATIENCE if lost_a_pipe else 0.0).items():
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        return WorkerFailed(environment, f"its worker process {how}")
    return None


def closing_well(env: Any) -> Any:
    """`env`, whose `close` works once. What it raises, also an exit, is a warning, since nothing depends on it."""
    close: Callable[..., None] | None = env.close

    def once(*args: Any, **how: Any) -> None:
        nonlocal close
        if close is None:
            return
        from rlmem.acting.guard import folder_of  # which imports this module

        closes, close = close, None
        try:
            with folder_of(env).entered():
                closes(*args, **how)
        except (Exception, SystemExit) as error:  # third-party code, or a worker that is gone
            _kill_workers(env)
            with suppress(Exception):
                _inner(env).closed = True  # else it is closed again when it is deleted
            warnings.warn(f"close() of the environments {bounded(raised(error))}", stacklevel=2)

    env.close = once
    return env


@contextmanager
def closing(env: Any) -> Iterator[Any]:
    """Close a vector at the end. After an error it is closed within PATIENCE, so that the error is reported."""
    closing_well(env)
    try:
        yield env
    except BaseException as error:
        if isinstance(error, Exception):  # else, such as after Ctrl-C, its workers close their environments
            _kill_workers(env)
        with _at_most(PATIENCE):
            env.close()
        raise
    env.close()


def _kill_workers(env: Any) -> None:
    """End an AsyncVectorEnv in any state, without a wait for its workers."""
    vector = _inner(env)
    if isinstance(vector, AsyncVectorEnv) and not vector.closed:
        for process in vector.processes:
            process.kill()
        for process, pipe in zip(vector.processes, vector.parent_pipes, strict=True):
            process.join()
            if pipe is not None:
                pipe.close()
        vector.closed = True


@contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """Raise TimeoutError after so many seconds. Only the main thread has this limit."""

    def stop(signum: int, frame: Any) -> NoReturn:
        raise TimeoutError

    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return
    handler = signal.signal(signal.SIGALRM, stop)
    before = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *before)
        signal.signal(signal.SIGALRM, handler or signal.SIG_DFL)


def _inner(env: Any) -> Any:
    """The vector in all wrappers."""
    return getattr(env, "unwrapped", env)


def _ended(vector: AsyncVectorEnv, patience: float = 0.0) -> dict[int, int]:
    """The exit codes of the workers that have ended, by the indices of their environments.

    patience: seconds to wait for the first of them
    """
    ready = connection.wait([process.sentinel for process in vector.processes], patience)
    codes = {}
    for environment, process in enumerate(vector.processes):
        if process.sentinel in ready:
            process.join(PATIENCE)  # its pipes are closed a moment before its exit code is known
            codes[environment] = process.exitcode or 0
    return codes
