"""Files that another user may have written: opened as regular files, through no link that leads out, of bounded size.

Every file of a run, sweep, population, reproduction or data set, and all published results, are opened here.
"""

import csv
import gzip
import io
import os
import stat
import zlib
from collections.abc import Iterator
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Any, BinaryIO

from rlmem.core import strictjson
from rlmem.core.errors import UserError

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
    found = os.stat(path)  # before it is opened: opening a pipe waits permanently
    if not stat.S_ISREG(found.st_mode):
        raise Unreadable(f"{path}: is {'a folder' if stat.S_ISDIR(found.st_mode) else 'not a regular file'}")
    if found.st_size > most:
        raise Unreadable(f"{path}: has {found.st_size:,} bytes; expected at most {most:,}")
    file = open(path, "rb")
    if found.st_size > ROOM and _is_hollow(file, found.st_size):
        file.close()
        raise Unreadable(f"{path}: has {found.st_size:,} bytes, most of them never written; expected a whole file")
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
    return strictjson.loads(text(path))


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
                yield strictjson.row(line)


def csv_rows(path: Path, packed: bool = False) -> Iterator[dict[str, str]]:
    """The rows of a CSV file with a header, by the names of its columns. Raises OSError and ValueError.

    packed: whether the file is compressed by gzip
    """
    with opened(path, ROWS) as file, gzip.GzipFile(fileobj=file) if packed else file as unpacked:
        try:
            texts = (line.decode() for line in _lines(unpacked, VALUES, ROWS))
            reader = csv.DictReader(texts, restkey="")
            for number, row in enumerate(reader, 2):
                if len(row) != len(reader.fieldnames or ()) or None in row.values():
                    raise ValueError(f"row {number} has other columns than the header")
                yield row
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
