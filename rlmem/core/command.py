"""A process that is one command: its signals, its standard streams and its exit code, from beginning to end."""

import errno
import io
import os
import select
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TextIO

from rlmem.core import signals
from rlmem.core.errors import Fault, UserError, brief, printable


def run_training(action: Callable[[], int], debug: bool = False) -> int:
    """Run `action`, which trains, as the whole of this process; returns the exit code.

    Signals are taken over for good. What cannot be written to a standard stream is dropped, since every run has a log.
    """
    requests = signals.Requests(of_command=True)
    try:
        signals.take_over(requests)
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
