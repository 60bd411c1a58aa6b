"""Standard output and error that survive a closed terminal, a reader such as `head` that ends, or a full disk."""

import errno
import io
import os
import select
import sys
from contextlib import suppress
from typing import Any, TextIO


class Unread(BaseException):
    """The output of a command that only prints cannot be written."""


class Output(io.FileIO):
    """The stream of a file descriptor, which drops what it cannot write.

    number: the file descriptor
    ends: whether the first loss ends the command
    lost: the first error, if anything was dropped
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
    """From now on drop what a standard stream cannot take, in the whole process, instead of failing.

    ends: whether the command only prints, and ends where its output cannot be written
    """
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
    raw = Output(number, ends)
    buffer: Any = raw if inner is stream.buffer else io.BufferedWriter(raw)
    raw.name = stream.name
    errors = "backslashreplace" if stream.errors == "strict" else stream.errors
    return io.TextIOWrapper(buffer, stream.encoding, errors, None, stream.line_buffering, stream.write_through)


def flush_stdout() -> str | None:
    """Flush standard output; returns why some of it was lost, None if nothing was or if its reader has left."""
    sys.stdout.flush()
    buffer = getattr(sys.stdout, "buffer", None)
    lost = getattr(getattr(buffer, "raw", buffer), "lost", None)
    return None if lost is None or lost.errno == errno.EPIPE else lost.strerror
