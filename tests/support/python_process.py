"""Processes of Python for tests, which begin with torch and rlmem imported."""

import os
import runpy
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import Any

from rlmem.core import processes


class Python:
    """`subprocess.Popen` of this Python, from the server of `rlmem.core.processes`.

    args: the interpreter, and `-m MODULE`, `-c CODE` or FILE, with arguments
    """

    def __init__(
        self, args: Sequence[str], *, env: Mapping[str, str] | None = None, text: bool = False, **streams: Any
    ):
        self.args, self.returncode = args, None
        pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"))
        files = []
        for number, name in enumerate(pipes):
            stream = streams.pop(name, None)
            if stream == subprocess.PIPE:
                ends = os.pipe()
                theirs, ours = ends if number == 0 else ends[::-1]
                pipes[name] = os.fdopen(ours, ("w" if number == 0 else "r") + ("" if text else "b"))
            elif stream == subprocess.DEVNULL:
                theirs = os.open(os.devnull, os.O_RDWR)
            elif stream == subprocess.STDOUT:
                theirs = os.dup(files[1].fileno())
            else:
                theirs = os.dup(number if stream is None else stream if isinstance(stream, int) else stream.fileno())
            files.append(Connection(theirs))
        folder = os.path.abspath(streams.pop("cwd", None) or ".")
        assert args[0] == sys.executable and not streams, streams
        self.process = processes.start(
            become, [*map(os.fspath, args[1:])], files, folder, variables=os.environ if env is None else env
        )
        self.pid, self.kill, self.terminate = self.process.pid, self.process.kill, self.process.terminate
        self.stdin, self.stdout, self.stderr = pipes.values()
        for file in files:
            file.close()

    def poll(self) -> int | None:
        self.returncode = self.process.exitcode
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        self.process.join(timeout)
        if (code := self.poll()) is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.process.pid or 0, number)

    def communicate(self, input: Any = None, timeout: float | None = None) -> tuple[Any, Any]:
        if self.stdin is not None:
            with self.stdin as file:
                file.write(input)
        with ThreadPoolExecutor(2) as pool:
            readers = [stream and pool.submit(stream.read) for stream in (self.stdout, self.stderr)]
            try:
                out, err = (reader and reader.result(timeout) for reader in readers)
                self.wait(timeout)
            except BaseException:
                self.kill()
                raise
        return out, err


def run_python(args: Sequence[str], *, timeout: float | None = None, check: bool = False, **how: Any) -> Any:
    """`subprocess.run` of this Python."""
    if how.pop("capture_output", False):
        how |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = Python(args, **how)
    done = subprocess.CompletedProcess(args, 0, *process.communicate(timeout=timeout))
    done.returncode = process.wait(timeout)
    if check:
        done.check_returncode()
    return done


def become(args: list[str], files: list[Connection], folder: str) -> None:
    """Run `python ARGS` with these standard streams. Its own processes come from the same server."""
    for number, file in enumerate(files):
        os.dup2(file.fileno(), number)
        file.close()
    sys.stdin = open(0, closefd=False)  # multiprocessing has put /dev/null there
    forkserver._forkserver.ensure_running = lambda: None  # type: ignore[attr-defined]
    os.chdir(folder)
    sys.path[:0] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    kind, *rest = args
    if kind == "-c":
        sys.argv = ["-c", *rest[1:]]
        program = sys.modules["__main__"] = ModuleType("__main__")
        exec(compile(rest[0], "<string>", "exec"), program.__dict__)
    elif kind == "-m":
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = args
        sys.path.insert(0, str(Path(kind).resolve().parent))
        runpy.run_path(kind, run_name="__main__")
