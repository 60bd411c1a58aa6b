"""Files of a run: who wrote one, what it may hold, whether it has changed, and what may be written in its directory.

Only a configuration with this user's seal (HMAC), unedited, may name code outside rlmem (`rlmem.config.foreign`).
"""

import hashlib
import hmac
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from rlmem.core import received
from rlmem.core.errors import UserError

VARIABLE = "RLMEM_KEY"
"""The environment variable that holds the key, as any text, where machines share no home directory."""

MARK = re.compile(r"# sha256 ([0-9a-f]{64}) seal ([0-9a-f]{64}|none)")


def mark(text: str) -> str:
    """A line with the hash of `text` and this user's seal of it, or `none` if the user can have no key."""
    key = _key(make=True)
    seal = "none" if key is None else _seal(key, text)
    return f"# sha256 {hashlib.sha256(text.encode()).hexdigest()} seal {seal}"


def sealed(text: str) -> str:
    """`text` with its `mark` as the first line."""
    return f"{mark(text)}\n{text}"


def is_changed(text: str) -> bool:
    """Whether a text that `sealed` made was edited since; False for a text without a mark."""
    first, _, rest = text.partition("\n")
    match = MARK.fullmatch(first)
    return match is not None and match[1] != hashlib.sha256(rest.encode()).hexdigest()


def is_own(text: str) -> bool:
    """Whether `sealed` made this text with this user's key, and nobody has edited it since."""
    first, _, rest = text.partition("\n")
    match, key = MARK.fullmatch(first), _key(make=False)
    return match is not None and key is not None and hmac.compare_digest(match[2], _seal(key, rest))


def key_file() -> Path:
    """The file with the key of this user, which is used unless RLMEM_KEY holds one."""
    configured = os.environ.get("XDG_CONFIG_HOME")
    return (Path(configured) if configured else Path("~/.config").expanduser()) / "rlmem" / "key"


def _seal(key: bytes, text: str) -> str:
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def _key(make: bool) -> bytes | None:
    """The key of this user, drawn if there is none and `make`; None without a key, or if others can read its file."""
    if secret := os.environ.get(VARIABLE):
        return os.fsencode(secret)
    try:
        path = key_file()
        if make and not path.exists():
            _make_key(path)
        if path.stat().st_mode & 0o077:
            return None
        return path.read_bytes().strip() or None
    except (OSError, RuntimeError):  # no home directory, or one that cannot be read or written
        return None


def _make_key(path: Path) -> None:
    """Draw a key. If several processes do so at once, the first wins, since a link can be made only once."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    drawn = path.with_name(f"key.{secrets.token_hex(8)}")
    descriptor = os.open(drawn, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "w") as file:
            file.write(secrets.token_hex(32) + "\n")
        with suppress(FileExistsError):
            os.link(drawn, path)
    finally:
        drawn.unlink()


SUFFIXES = (".jsonl", ".json", ".yaml", ".txt", ".pt", ".sha256", ".partial", ".lock")
"""The endings of the names of a run's own files."""


def require_plain(path: Path) -> None:
    """Raise UserError if a run directory holds a link, a pipe, a device, or a folder with the name of a file.

    Writing through them could do harm. The directory itself may be a link, which its user made.
    """
    root = Path(os.path.realpath(path))

    def failed(error: OSError) -> None:
        raise UserError(f"{error.filename}: cannot be read ({error.strerror})") from error

    for folder, folders, files in os.walk(root, onerror=failed if root.exists() else None):
        for name in [*folders, *files]:
            entry = Path(folder) / name
            inside, problem = entry.relative_to(root), None
            try:
                mode = entry.lstat().st_mode
            except FileNotFoundError:  # deleted meanwhile by a run that is training
                continue
            if inside.parts[-2:] == ("wandb", "settings"):
                problem = "would tell W&B another server"
            elif stat.S_ISLNK(mode):
                # W&B makes links to its newest run, and in the folders of runs that have ended to logs elsewhere.
                within = Path(os.path.realpath(entry)).is_relative_to(root)
                if "wandb" not in inside.parts[:-1] or not (within or "/" in inside.as_posix().rpartition("wandb/")[2]):
                    problem = "is a link"
            elif stat.S_ISDIR(mode) and (entry.suffix in SUFFIXES or name in SUFFIXES):
                problem = "is a folder"
            elif not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
                problem = "is no regular file"
            if problem:
                plain = "a run directory may hold only plain files and folders where rlmem writes"
                raise UserError(f"{path / inside}: {problem}; {plain}; e.g. remove it")


SUPER_JOURNAL = bytes.fromhex("d9d505f920a163d7")
"""The end of an SQLite journal of several databases, which names a file to be deleted."""


def require_plain_database(path: Path, most: int) -> None:
    """Raise UserError for files that SQLite would follow, or delete others for, when it opens `path`.

    most: bytes of each of its files at most
    """
    for file in (path, *(path.with_name(path.name + ending) for ending in ("-journal", "-wal", "-shm"))):
        if file.is_symlink():
            raise UserError(f"{file}: is no regular file; expected a sweep's manifest or a place for one")
        if not file.exists():
            continue
        with received.opened(file, most) as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - len(SUPER_JOURNAL)))
            if file.name.endswith("-journal") and stream.read() == SUPER_JOURNAL:
                raise UserError(f"{file}: is of several databases, which no sweep writes; e.g. remove it")


MAX_VALUES = 100_000
"""The most values in a file that describes a run. With aliases, a short YAML file may hold very many."""


def is_data(tree: Any) -> bool:
    """True if `tree` holds only text, numbers, lists and mappings from names, and few enough of them.

    There may be MAX_VALUES values in DEEPEST levels, and integers up to LARGEST.
    """
    try:
        return all(map(_is_plain, received.nodes(tree, MAX_VALUES)))
    except ValueError:
        return False


def _is_plain(node: Any) -> bool:
    if isinstance(node, dict):
        return all(isinstance(key, str) for key in node)
    if isinstance(node, int):
        return abs(node) <= received.LARGEST
    return node is None or isinstance(node, str | float | list)


def hashed(path: Path, most: int | None = None) -> tuple[Any, int, bytes]:
    """The SHA-256 of the first `most` bytes of a file (None: of all), how many there are, and the last one."""
    digest, size, last = hashlib.sha256(), 0, b""
    with received.opened(path) as file:
        while block := file.read(1 << 20 if most is None else min(max(most - size, 0), 1 << 20)):
            digest.update(block)
            size, last = size + len(block), block[-1:]
    return digest, size, last


@contextmanager
def synced(path: Path, mode: str) -> Iterator[IO[Any]]:
    """A file that is open for writing inside, and on the disk afterwards; text has escapes for lone surrogates."""
    how: dict[str, Any] = {} if "b" in mode else {"encoding": "utf-8", "errors": "backslashreplace"}
    with open(path, mode, **how) as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
