"""Files that another user may have written, and JSON that every reader accepts: no NaN and no infinity.

A received file is opened as a regular file of bounded size, never through a link that leads out of its folder. All
files of runs, sweeps, populations, reproductions, data sets and published results are opened here.
"""

import csv
import gzip
import io
import json
import os
import stat
import sys
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from math import inf, isfinite, nan
from pathlib import Path
from typing import Any, BinaryIO

from rlmem.core.errors import UserError

LARGEST = 1e100
"""The largest number, in size, that counts as one in received data: its square and sums of such numbers are finite."""
DEEPEST = 64
"""The most levels of lists and mappings in received data."""
TOO_DEEP = f"lists and mappings in more than {DEEPEST} levels"


def loads(text: str | bytes) -> Any:
    """The value of a JSON text from anywhere. Raises ValueError for one that cannot be read, or has too many levels."""
    text = text if isinstance(text, str) else text.decode()
    try:
        value = json.loads(text)
    except RecursionError as error:
        raise ValueError(TOO_DEEP) from error
    if text.count("[") + text.count("{") > DEEPEST:  # rare; the rows of a record are short
        deque(nodes(value), 0)
    return value


def nodes(value: Any, most: float = inf) -> Iterator[Any]:
    """A value and all values in it. Raises ValueError for more than `most` of them, or more than DEEPEST levels."""
    levels: list[Iterator[Any]] = [iter((value,))]  # what is left of each, which takes no memory for many values
    number, end = 0, object()
    while levels:
        if (node := next(levels[-1], end)) is end:
            levels.pop()
            continue
        number += 1
        if number > most or len(levels) > DEEPEST + 1:
            raise ValueError(TOO_DEEP if len(levels) > DEEPEST + 1 else f"more than {most:,} values")
        yield node
        if isinstance(node, dict | list):
            levels.append(iter(node.values() if isinstance(node, dict) else node))


def number(value: object) -> float | None:
    """A value as a float; None for what is no number, and beyond LARGEST."""
    return float(value) if isinstance(value, int | float) and not abs(value) > LARGEST else None


def dumps(value: Any, **options: Any) -> str:
    """`json.dumps`, with null instead of every number that is not finite."""
    try:
        return json.dumps(value, allow_nan=False, **options)
    except ValueError:  # rare; a value without such numbers is traversed only once
        finite = lambda item: None if isinstance(item, float) and not isfinite(item) else item  # noqa: E731
        return json.dumps(map_values(finite, value), allow_nan=False, **options)


def row(line: str | bytes) -> dict[str, Any]:
    """A line of a `.jsonl` file, NaN where a number was not finite. Raises ValueError if it is not a JSON object."""
    read = loads(line)
    if not isinstance(read, dict):
        raise ValueError("a line is not an object of names and values")
    return {sys.intern(name): nan if value is None else value for name, value in read.items()}


def map_values(change: Callable[[Any], Any], node: Any) -> Any:
    """`node` with `change(value)` instead of every value in nested mappings and lists."""
    if isinstance(node, Mapping):
        return {key: map_values(change, value) for key, value in node.items()}
    if isinstance(node, list | tuple):
        return [map_values(change, value) for value in node]
    return change(node)


DESCRIPTION = 1 << 18
"""Bytes of a YAML file at most: the reader takes about a second for so many."""

DATA = 1 << 24
"""Bytes of a JSON file, a document or a picture at most."""

ROWS = 1 << 26
"""Bytes of a CSV file at most, once it is decompressed."""

LINE = 1 << 20
"""Bytes of a line of a `.jsonl` or CSV file at most."""

VALUES = 2_000_000
"""Values at most that are kept of a `.jsonl` or CSV file. A row counts as three values more, for its own size."""

ROOM, DENSITY = 1 << 28, 100
"""A file of more than ROOM bytes is refused if less than one byte in DENSITY was written. The tables of a data set may
take ROOM bytes of memory, or DENSITY for each byte on disk."""


class Unreadable(UserError, OSError):
    """A file that is not opened: it is not regular, a link leads out of its folder, or it is too large."""


def named(path: Path) -> Path:
    """A file that the user named on the command line. A link there is the user's own, so it is followed."""
    return Path(os.path.realpath(path)) if os.path.islink(path) else path


def inside(folder: Path, name: str) -> Path:
    """The path of `name` in `folder`. Raises Unreadable if `..` or a link leads out of the folder."""
    path, root = folder / name, Path(os.path.realpath(folder))
    if not Path(os.path.realpath(path)).is_relative_to(root):
        how = "is a link that leads" if path.is_symlink() else "leads"
        raise Unreadable(f"{path}: {how} out of {folder}; expected a file or folder in it; e.g. a copy of the target")
    return path


def opened(path: Path, most: float = inf, folder: Path | None = None) -> BinaryIO:
    """The file at `path`, open for reading bytes. Raises Unreadable, and OSError as `open` does.

    most: bytes of the file at most
    folder: the folder that no link may lead out of; None: that of the file
    """
    inside(folder or path.parent, os.path.relpath(path, folder) if folder else path.name)
    info = os.stat(path)  # before it is opened: opening a pipe waits permanently
    if not stat.S_ISREG(info.st_mode):
        raise Unreadable(f"{path}: is {'a folder' if stat.S_ISDIR(info.st_mode) else 'not a regular file'}")
    if info.st_size > most:
        raise Unreadable(f"{path}: has {info.st_size:,} bytes; expected at most {most:,}")
    file = open(path, "rb")
    if info.st_size > ROOM and _is_hollow(file, info.st_size):
        file.close()
        raise Unreadable(f"{path}: has {info.st_size:,} bytes, most of them never written; expected a whole file")
    return file


def _is_hollow(file: BinaryIO, size: int) -> bool:
    """True if less than a part in DENSITY of a file was written. All else are holes, which take no room on the disk."""
    written = end = 0
    with suppress(OSError):  # no data follow
        while written * DENSITY < size:
            begin = os.lseek(file.fileno(), end, os.SEEK_DATA)
            end = os.lseek(file.fileno(), begin, os.SEEK_HOLE)
            written += end - begin
    file.seek(0)
    return written * DENSITY < size


def content(path: Path, most: int = DATA) -> bytes:
    """All bytes of a file. Raises OSError."""
    with opened(path, most) as file:
        return file.read(most)


def text(path: Path, most: int = DATA, errors: str = "strict") -> str:
    """The text of a file, with line ends as `\\n`. Raises OSError and ValueError."""
    return io.TextIOWrapper(io.BytesIO(content(path, most)), encoding="utf-8", errors=errors).read()


def json_of(path: Path) -> Any:
    """The value in a JSON file. Raises OSError and ValueError."""
    return loads(text(path))


def json_rows(path: Path, begin: int = 0, values: float = inf) -> Iterator[dict[str, Any]]:
    """The rows of a `.jsonl` file from byte `begin` on, with NaN for null: a number that is not finite.

    values: how many values the rows may have together (see VALUES)

    An incomplete row at the end, which a killed process left, is ignored. Raises OSError, and ValueError for a line
    that is not a JSON object.
    """
    with opened(path) as file:
        file.seek(begin)
        for line in _lines(file, values):
            if line.endswith(b"\n"):
                yield row(line)


def csv_rows(path: Path, packed: bool = False) -> Iterator[dict[str, str]]:
    """The rows of a CSV file with a header, by the names of its columns. Raises OSError and ValueError.

    packed: whether the file is compressed by gzip
    """
    with opened(path, ROWS) as file, gzip.GzipFile(fileobj=file) if packed else file as unpacked:
        try:
            texts = (line.decode() for line in _lines(unpacked, VALUES, ROWS))
            reader = csv.DictReader(texts, restkey="")
            for line, cells in enumerate(reader, 2):
                if len(cells) != len(reader.fieldnames or ()) or None in cells.values():
                    raise ValueError(f"row {line} has other columns than the header")
                yield cells
        except (csv.Error, EOFError, zlib.error) as error:
            raise ValueError(str(error)) from error


def _lines(file: BinaryIO | gzip.GzipFile, values: float, most: float = inf) -> Iterator[bytes]:
    """The lines of a file. Raises ValueError beyond `values`, `most` bytes or, in a line, LINE bytes."""
    while line := file.readline(LINE + 1):
        values -= 3 + max(line.count(b","), len(line) // 64)
        most -= len(line)
        if len(line) > LINE:
            raise ValueError(f"a line has more than {LINE:,} bytes")
        if values < 0 or most < 0:
            raise ValueError("has more values than can be read")
        yield line
