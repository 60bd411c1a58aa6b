"""Processes of Python that begin with torch and rlmem imported, for whoever starts many short ones.

A new interpreter spends four seconds of CPU time on these imports. `Popen` is that of `subprocess`, but `python -m
...`, `python -c ...` and `python FILE ...` come from a fork server: a process that has imported everything and run
nothing. What they start is a child of the caller in every respect (its parent, its exit status, the signal that it gets
when the caller dies), since the server clones it with CLONE_PARENT, so that a server may also be killed without harm.
It has one thread for linear algebra, as its processes have then. Elsewhere than on Linux, for any other command, and
where no server answers, these are plain `subprocess`.
"""

import atexit
import ctypes
import gc
import io
import os
import pickle
import platform
import runpy
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from rlmem.system.signals import STOP_SIGNALS

PRELOADED: tuple[str, ...] = (
    "torch._dynamo",  # which optimisers import
    "torch.optim",
    "rich.progress",
    "rlmem.commands.cli",
    "rlmem.commands.train",
    "rlmem.run.train",
    "rlmem_envs.registration",
    "rlmem_envs.vector",
)
"""What nearly every run imports: modules of which importing starts no thread."""

CLONE = {"x86_64": 56, "aarch64": 220}.get(platform.machine())
"""The number of clone(2), which is called directly, as the C library offers no fork with flags."""

CLONE_PARENT = 0x8000

TAKEN = {"stdin", "stdout", "stderr", "env", "cwd", "start_new_session", "text", "encoding", "bufsize"}
"""The arguments of `subprocess.Popen` that a server knows; with another one it is not asked."""

AVAILABLE = sys.platform == "linux" and CLONE is not None

SERVER = """
import signal, sys
interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for whoever asks
sys.path[:] = [sys.argv.pop(1), *filter(None, sys.path)]
from rlmem.system import forked
forked.main(interrupt)
"""
"""The program of a server, which imports this very rlmem."""

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""The variables of a server, but for which a process has those that it is given: no threads."""

PATIENCE = 120.0
"""Seconds that a server may take to import everything and answer."""

_server: socket.socket | None = None
"""The connection of this process to its server."""

_refused = os.environ.get("RLMEM_FORK") == "off"
"""Whether this process asks no server: the user wants none, or one has not answered."""


class Popen(subprocess.Popen):
    """`subprocess.Popen`, from the fork server where that can be, which is in the main thread only.

    Linux gives a child to the thread that started the server, and a child that asks for a signal at the end of its
    parent (`die_with`) gets it at the end of that thread; and two threads would read each other's answers.
    """

    def __init__(self, args: Any, *more: Any, **how: Any):
        able = AVAILABLE and not _refused and threading.current_thread() is threading.main_thread()
        self.forkable = able and _is_python(args) and how.keys() <= TAKEN
        super().__init__(args, *more, **how)

    def _execute_child(self, args, executable, preexec_fn, close_fds, pass_fds, cwd, env, *rest):
        if not (self.forkable and self._clone(args, cwd, env, rest[3:9], rest[14])):
            super()._execute_child(args, executable, preexec_fn, close_fds, pass_fds, cwd, env, *rest)  # type: ignore[misc]

    def _clone(self, args: Any, cwd: Any, env: Any, pipes: Any, start_new_session: Any) -> bool:
        """Whether a server has begun the process; if not, this process asks none any more."""
        p2cread, _, _, c2pwrite, _, errwrite = pipes
        told = {
            "args": [os.fsdecode(arg) for arg in args[1:]],
            "cwd": os.fspath(cwd or os.getcwd()),
            "env": dict(os.environ if env is None else env),
            "session": bool(start_new_session),
        }
        files = [own if given == -1 else given for own, given in enumerate((p2cread, c2pwrite, errwrite))]
        connection, held = server(), {getattr(signal, name) for name in STOP_SIGNALS}
        before = signal.pthread_sigmask(signal.SIG_BLOCK, held)  # nothing comes between a question and its answer
        try:
            socket.send_fds(connection, [pickle.dumps(told)], files)
            self.pid = pickle.loads(connection.recv(100))
            if self.pid < 0:
                raise BlockingIOError("no further process can be started")
        except (EOFError, OSError):  # it was killed, does not answer, or too much was said
            forget_server()
            return False
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]
        return True


def _is_python(args: Any) -> bool:
    """Whether a command is this interpreter with a module, code or a file to run."""
    if isinstance(args, (str, bytes)) or len(args) < 2 or os.fspath(args[0]) != sys.executable:
        return False
    return args[1] in ("-m", "-c") or not os.fspath(args[1]).startswith("-")


def forget_server() -> None:
    """Ask no server any more."""
    global _server, _refused
    if _server is not None:
        _server.close()
    _server, _refused = None, True


def _without_server() -> None:
    """Have this process, a fork of another one, start a server of its own when it needs one."""
    global _server
    if _server is not None:
        _server.close()
    _server = None


def server() -> socket.socket:
    """The connection to the fork server of this process, which is started now if there is none yet."""
    global _server
    if _server is None:
        _server, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        _server.settimeout(PATIENCE)
        with theirs:
            here = str(Path(__file__).parents[2])
            command = [sys.executable, "-c", SERVER, here, str(theirs.fileno()), *PRELOADED]
            null = subprocess.DEVNULL
            subprocess.Popen(
                command, pass_fds=[theirs.fileno()], env=ENVIRONMENT, stdin=null, stdout=null, cwd="/"
            ).returncode = 0  # it ends with its caller, who need not wait for it
    return _server


def serve_as_copy() -> None:
    """Have a copy of this process be its fork server, in the place of one that would have all to import.

    For a process that has imported what its children need, has run nothing yet and has no other thread.
    """
    global _server
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        ours.close()
        interrupt = signal.signal(signal.SIGINT, signal.SIG_IGN)
        with open(os.devnull, "r+b") as null:
            for number in range(3):
                os.dup2(null.fileno(), number)
        _become(*_serve(theirs, interrupt))
    theirs.close()
    _server = ours


def main(interrupt: Any = signal.default_int_handler) -> NoReturn:
    """Be a fork server, and then, in every process that is asked for, that process.

    interrupt: how these handle Ctrl-C, which the server ignores
    """
    connection = socket.socket(fileno=int(sys.argv[1]))
    for name in sys.argv[2:]:
        with suppress(Exception):  # whoever needs it will see why
            import_module(name)
    del sys.path[0]
    sys.modules.pop("__mp_main__", None)
    gc.collect()
    gc.freeze()
    _become(*_serve(connection, interrupt))


def _serve(connection: socket.socket, interrupt: Any) -> tuple[dict[str, Any], list[int]]:
    """Clone a process for every request, and return in it, with the request; the server ends with its caller."""
    if len(os.listdir("/proc/self/task")) > 1:  # of threads, a clone has but one, and what the others held stays held
        os._exit(1)
    while True:
        message, files, _, _ = socket.recv_fds(connection, 1_000_000, 3)
        if not message:
            os._exit(0)
        pid = _fork_sibling()
        if pid == 0:
            connection.close()
            signal.signal(signal.SIGINT, interrupt)
            return pickle.loads(message), files
        for file in files:
            os.close(file)
        try:
            connection.send(pickle.dumps(pid))
        except OSError:  # nobody knows of it
            if pid > 0:
                os.kill(pid, signal.SIGKILL)
            os._exit(0)


def _fork_sibling() -> int:
    """As `os.fork`, but the new process is a child of this one's parent."""
    python, system = ctypes.pythonapi, ctypes.PyDLL(None)
    python.PyOS_BeforeFork()
    pid = system.syscall(CLONE, CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        python.PyOS_AfterFork_Child()
    else:
        python.PyOS_AfterFork_Parent()
    return pid


def _become(request: dict[str, Any], files: list[int]) -> NoReturn:
    """Run what was asked for as the main program."""
    if request["session"]:
        os.setsid()
    for number, file in enumerate(files):
        os.dup2(file, number)
    for file in files:
        if file > 2:
            os.close(file)
    sys.stdout.reconfigure(line_buffering=os.isatty(1))  # type: ignore[union-attr]
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    for folder in reversed(os.environ.get("PYTHONPATH", "").split(os.pathsep)):
        if folder and folder not in sys.path:
            sys.path.insert(0, folder)
    if "numpy" in sys.modules:  # its own generator would be the same in all; that of `random` sees to itself
        sys.modules["numpy"].random.seed()
    code: Any = 0
    try:
        _run(*request["args"])
    except SystemExit as end:
        code = end.code
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        code = -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    _end(code)


def _run(kind: str, *rest: str) -> None:
    """`python KIND REST`."""
    program = ModuleType("__main__")
    if kind == "-c":
        sys.argv = ["-c", *rest[1:]]
        sys.path.insert(0, "")
        sys.modules["__main__"] = program
        exec(compile(rest[0], "<string>", "exec"), program.__dict__)
    elif kind == "-m":
        sys.argv = list(rest)
        sys.path.insert(0, os.getcwd())
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = [kind, *rest]
        sys.path.insert(0, str(Path(kind).resolve().parent))
        runpy.run_path(kind, run_name="__main__")


def _end(code: Any) -> NoReturn:
    """What an interpreter does at its end, but for clearing all modules, which takes half a second."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    if isinstance(code, str):
        print(code, file=sys.stderr)
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        code = 120
    ctypes.CDLL(None).fflush(None)  # what libraries in C have printed
    for left in gc.get_objects():  # files that nobody has closed; of those of the server none is open
        if type(left) in (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom) and not left.closed:
            with suppress(OSError):
                left.flush()
    if code == -signal.SIGINT:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(code if isinstance(code, int) else 0 if code is None else 1)


if AVAILABLE:
    os.register_at_fork(after_in_child=_without_server)
