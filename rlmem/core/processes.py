"""Processes that begin with torch and rlmem imported, which takes seconds otherwise: forks of a server of Python's."""

import atexit
import gc
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from multiprocessing import get_context, parent_process, resource_tracker
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import ModuleType
from typing import Any

from rlmem.core.command import STOP_SIGNALS

PRELOADED = [
    "torch._dynamo",  # which optimisers import
    "torch.optim",
    "rich.progress",
    "rlmem.commands.cli",
    "rlmem.commands.train",
    "rlmem.run.train",
    "rlmem_envs.registration",
    "rlmem_envs.vector",
]
"""Modules that nearly every run imports. Importing them starts no thread."""

ROOT = str(Path(__file__).parents[2])
"""The folder of this very rlmem."""


def start(
    target: Callable[..., Any], *args: Any, variables: Mapping[str, str], fresh: bool = False, end: int = signal.SIGTERM
) -> BaseProcess:
    """Start `target(*args)` in a process and session of its own; its exit code is what `target` returns.

    target, args: picklable
    variables: its environment
    fresh: whether it imports everything again. It must if it shall have other threads for linear algebra than one.
    end: the signal that it gets when this process ends, however it ends

    Raises OSError if no process can be started.
    """
    fresh = fresh or sys.platform != "linux" or os.environ.get("RLMEM_FORK") == "off"
    context: Any = get_context("spawn" if fresh else "forkserver")
    context.set_forkserver_preload(PRELOADED)
    folder = os.getcwd()
    with _clean(variables if fresh else _server_variables()) as mask:
        process = context.Process(target=_run, args=(target, args, folder, dict(variables), mask, end))
        try:
            process.start()
        except EOFError as error:
            raise OSError("the server that forks processes has died") from error
    return process


def rlmem(arguments: Sequence[str], log: str) -> int:
    """The command `rlmem` as the `target` of a process, with its output at the end of the file `log`."""
    with open(log, "ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.argv = ["rlmem", *arguments]
    return import_module("rlmem.commands.cli").main()


def _server_variables() -> dict[str, str]:
    """The environment of the server of forks, which must have no other threads."""
    path = os.pathsep.join(filter(None, [ROOT, os.environ.get("PYTHONPATH")]))
    return os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": path}


@contextmanager
def _clean(variables: Mapping[str, str]) -> Iterator[set[int]]:
    """Inside, a Python that starts has these variables, and does not run the user's main program again.

    It finds nothing in the current folder, which may hold modules of any name. It holds back signals that ask for a
    stop: the server never acts on them, a process later. Yields the signals that were held back before.
    """
    environment, folder, main, path = dict(os.environ), os.getcwd(), sys.modules["__main__"], sys.path
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        os.chdir("/")
        os.environ |= variables
        sys.path = [*path, ROOT]
        sys.modules["__main__"] = ModuleType("__main__")
        resource_tracker.ensure_running()  # which lets signals through again
        signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        yield mask
    finally:
        sys.modules["__main__"], sys.path = main, path
        os.environ.clear()
        os.environ |= environment
        os.chdir(folder)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _run(
    target: Callable[..., Any], args: tuple[Any, ...], folder: str, variables: dict[str, str], mask: Any, end: int
) -> None:
    """The main function of a started process."""
    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ |= variables
    if "numpy" in sys.modules:  # its own generator would be the same in all forks
        sys.modules["numpy"].random.seed()
    threading.Thread(target=_end_with_parent, args=(end,), daemon=True).start()
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        code = target(*args)
    except KeyboardInterrupt:
        code = 130
    finally:  # what multiprocessing leaves out of the end of an interpreter
        atexit._run_exitfuncs()
        for file in gc.get_objects():
            if type(file) in (io.TextIOWrapper, io.BufferedWriter) and not file.closed:
                with suppress(OSError):
                    file.flush()
    sys.exit(code)


def _end_with_parent(number: int) -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), number)
