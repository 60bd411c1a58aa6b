"""A process that is one command: signals that ask it to stop, its standard streams, and its exit code."""

import atexit
import errno
import io
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import parent_process
from time import monotonic
from typing import Any, Protocol, TextIO

from rlmem.core.errors import Fault, UserError, brief, printable

REQUEUE = 75
"""Exit code of a run that a signal other than Ctrl-C stopped (EX_TEMPFAIL of sysexits.h): run the command again."""

NAMES = ("SIGINT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGHUP")
STOP_SIGNALS = tuple(getattr(signal, name) for name in NAMES if hasattr(signal, name))
"""Signals that ask for a stop: Ctrl-C; a scheduler's; its warning (Slurm's --signal=USR1@120); a closed terminal."""

NOTICE = "rlmem: saving, then stopping (once more: at once)\n"
"""What a run prints when it is asked to stop."""

SAME = 1.0
"""Seconds within which further signals are the same request: a terminal and a sweep may both pass one on, and the
kernel sends one for each thread of a parent that ends."""


class Stopped(KeyboardInterrupt):
    """A signal asked for the end and the state has been saved; `code` is the exit code."""

    def __init__(self, signum: int):
        super().__init__(f"stopped by {signal.Signals(signum).name}")
        self.signum = signum
        self.code = 130 if signum == signal.SIGINT else REQUEUE


class Stoppable(Protocol):
    """An object that saves its state and raises `stop` once that is set."""

    stop: BaseException | None


class Requests:
    """The requests to stop that reach this process.

    At the first one, a process that is starting ends at once. One that trains finishes its update, saves its state and
    ends. One that is ending ignores it. The second one ends the process at once in any case.

    of_command: whether the process is a command from beginning to end
    """

    def __init__(self, of_command: bool = False) -> None:
        self.of_command, self.process = of_command, os.getpid()
        self.first: Stopped | None = None
        self.last = 0.0
        self.loop: Stoppable | None = None
        self.raised = False
        self.code: int | None = None

    def handle(self, signum: int, frame: Any) -> None:
        """The handler, which interrupts whatever runs: it raises nothing but `Stopped`.

        A terminal sends Ctrl-C to the processes that this one has forked, too, such as those of AsyncVectorEnv. They
        serve until the run, which has the same signal, ends them.
        """
        if os.getpid() != self.process and parent_process() is not None:
            if signum == signal.SIGTERM:  # by which Python ends them when it exits
                signal.signal(signum, signal.SIG_DFL)
                os.kill(os.getpid(), signum)
            return
        first, now = self.first is None, monotonic()
        if not first and now <= self.last + SAME:
            return
        self.first, self.last = self.first or Stopped(signum), now
        if first and self.loop is not None:
            self.pass_on()
            # Not through `progress`: a signal may interrupt a write to the same stream, which must not be re-entered.
            begin = "\n" if os.isatty(2) else ""  # the cursor stands behind the progress bar and the typed ^C
            with suppress(OSError):  # a closed terminal cannot take the notice; the run must still be saved
                os.write(2, f"{begin}{NOTICE}".encode())
        elif first and self.code is not None:
            return  # it ends anyway
        elif self.raised or self.code is not None:
            os._exit(Stopped(signum).code if self.code is None else self.code)
        else:
            self.raised = self.of_command
            raise Stopped(signum)

    def pass_on(self) -> None:
        """Pass the request on to the loop that trains."""
        if self.loop is not None and self.loop.stop is None:
            self.loop.stop = self.first

    def ends_with(self, code: int) -> int:
        """The exit code of a command that would end with `code`.

        `Stopped`, raised during an import, may come out of it as any other error; the signal is still the reason.
        """
        self.code = self.first.code if code and self.raised and self.first is not None else code
        return self.code


_process: Requests | None = None
"""The requests of this process if it is a command that trains."""


def take_over(requests: Requests) -> None:
    """Handle signals from now on to the end of this process, which is a command that trains."""
    global _process
    _process = requests
    numbers = _not_ignored()
    # The interpreter removes its handlers before it clears its modules, which takes a while. Exit handlers are called
    # in reverse order: this one is the last, and afterwards nothing can change the exit code.
    atexit.register(lambda: [signal.signal(number, signal.SIG_IGN) for number in numbers])
    _take(requests, numbers)
    # What a signal raises inside a destructor or another callback of the interpreter is lost there, with a traceback;
    # the request is not: the loop that trains asks for it when it begins.
    tell = sys.unraisablehook
    sys.unraisablehook = lambda lost: None if isinstance(lost.exc_value, Stopped) else tell(lost)


def taken_over() -> bool:
    """Whether this process is a command that handles its signals itself."""
    return _process is not None


def _not_ignored() -> dict[int, Any]:
    """The signals that are not ignored (as SIGHUP is under nohup), with their handlers."""
    handlers = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    return {number: handler for number, handler in handlers.items() if handler not in (signal.SIG_IGN, None)}


def _take(requests: Requests, numbers: Iterable[int]) -> None:
    """Handle these signals. They wait meanwhile: one that has a handler must not arrive before the others have one."""
    mask = getattr(signal, "pthread_sigmask", lambda how, numbers: ())  # not on Windows
    before = mask(signal.SIG_BLOCK, numbers)
    for number in numbers:
        signal.signal(number, requests.handle)
    mask(signal.SIG_SETMASK, before)


@contextmanager
def stopping_politely(loop: Stoppable) -> Iterator[None]:
    """Let signals save a checkpoint after the present update or round; a second one, later than SAME, stops at once."""
    if threading.current_thread() is not threading.main_thread():  # handlers can be set only there
        yield
        return
    requests = _process or Requests()
    requests.loop = loop
    requests.pass_on()  # an earlier one, if the code that it interrupted swallowed it
    taken = _not_ignored()
    _take(requests, taken)
    try:
        yield
    finally:
        requests.loop = None
        for number, old in taken.items():
            signal.signal(number, old)


def run_training(action: Callable[[], int], debug: bool = False) -> int:
    """Run `action`, which trains, as the whole of this process; returns the exit code.

    Signals are taken over for good. What cannot be written to a standard stream is dropped, since every run has a log.
    """
    requests = Requests(of_command=True)
    try:
        take_over(requests)
        protect(ends=False)
        return requests.ends_with(exit_code(action, debug))
    except BaseException:
        if not requests.raised:
            raise
        return requests.ends_with(1)


def run_printing(action: Callable[[], int], ends: bool, debug: bool = False) -> int:
    """Run `action`, which fails without its output, as the whole of this process; returns the exit code.

    ends: whether it does nothing but print, and ends well once its reader, such as `head`, has seen enough
    """
    protect(ends)
    try:
        code = exit_code(action, debug)
    except Unread:
        code = 0
    sys.stdout.flush()
    buffer = getattr(sys.stdout, "buffer", None)
    lost: OSError | None = getattr(getattr(buffer, "raw", buffer), "lost", None)
    if lost is None or lost.errno == errno.EPIPE or code != 0:  # EPIPE: the reader has left
        return code
    print(f"rlmem: failed: the output cannot be written ({lost.strerror})", file=sys.stderr)
    return 1


def exit_code(action: Callable[[], int], debug: bool = False) -> int:
    """Run `action` and return its exit code; an error or a stop becomes lines on stderr, with a traceback to `debug`.

    2: mistakes of the user; 1: a fault from outside, or a bug, which is raised; 130: Ctrl-C; 75: any other signal
    """
    try:
        _require_current_folder()
        return action()
    except (UserError, Fault) as error:
        if debug:
            import traceback

            traceback.print_exc()
        if isinstance(error, Fault):
            print(f"{error.traceback}rlmem: failed: {error}", file=sys.stderr)
            return 1
        lines = [f"rlmem: error: {problem}" for problem in error.problems]
    except KeyboardInterrupt as error:
        print(f"rlmem: {str(error) or 'interrupted'}", file=sys.stderr)
        return getattr(error, "code", 130)
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:  # a path on the command line is too long
            raise
        lines = [f"rlmem: error: {brief(printable(str(error.filename)))}: {error.strerror}"]
    print(*lines, sep="\n", file=sys.stderr)
    return 2


def _require_current_folder() -> None:
    try:
        os.getcwd()
    except OSError as error:
        raise UserError(f"the current folder cannot be used ({error.strerror}); e.g. cd ~") from error


def show(*texts: object, error: bool = False) -> None:
    """Print texts on stdout or stderr, each from a new line, with escapes for what could control a terminal.

    Commands print with it alone, since texts may repeat received data.
    """
    lines = (printable(str(text), keep="\n\t") for text in texts)
    print(*lines, sep="\n", file=sys.stderr if error else sys.stdout, flush=True)


class Unread(BaseException):
    """The output of a command that only prints cannot be written."""


class OutputStream(io.FileIO):
    """The stream of the file descriptor `number`, which drops what it cannot write and keeps the first error, `lost`.

    ends: whether that error is raised, as `Unread`
    """

    def __init__(self, number: int, ends: bool):
        super().__init__(number, "w", closefd=False)
        self.ends = ends
        self.lost: OSError | None = None

    def write(self, data: Any) -> int:
        try:
            while (written := super().write(data)) is None:  # a terminal or pipe that does not wait by itself
                select.select([], [self], [])
            return written
        except OSError as error:
            before, self.lost = self.lost, self.lost or error
            if self.ends and before is None:
                raise Unread from error
            return memoryview(data).nbytes


def protect(ends: bool) -> None:
    """From now on drop what a standard stream cannot take, in the whole process; with `ends`, raise `Unread` first."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:  # closed: the next file that is opened would take its number, and receive what is printed
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    sys.stdin = sys.stdin or open(0, encoding="utf-8", closefd=False)
    sys.stdout = _protected(sys.stdout, 1, ends)
    sys.stderr = _protected(sys.stderr, 2, ends=False)


def _protected(stream: TextIO | None, number: int, ends: bool) -> TextIO:
    if stream is None:
        return open(number, "w", encoding="utf-8", closefd=False)
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    inner = getattr(stream.buffer, "raw", stream.buffer)
    if not isinstance(inner, io.FileIO):  # a caller collects what is printed
        return stream
    with suppress(OSError):
        stream.flush()
    raw = OutputStream(number, ends)
    buffer: Any = raw if inner is stream.buffer else io.BufferedWriter(raw)
    raw.name = stream.name
    errors = "backslashreplace" if stream.errors == "strict" else stream.errors
    return io.TextIOWrapper(buffer, stream.encoding, errors, None, stream.line_buffering, stream.write_through)
