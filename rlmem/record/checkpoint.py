"""Checkpoints that survive a crash: each is written to another name, synced and renamed, with a checksum beside it."""

import errno
import os
import re
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from rlmem import __version__
from rlmem.core.errors import first_line
from rlmem.core.received import opened, text
from rlmem.record.provenance import FORMAT, is_number, require_readable
from rlmem.record.trust import hashed, is_data, synced

State = dict[str, Any]

BEST = "best.pt"
"""The file with the agent of the best evaluation so far, beside the checkpoints; no run can continue from it."""

DIGESTS = 1 << 12
"""Bytes of a file of checksums at most."""

PICKLE, PARTS, TAIL = 1 << 28, 1 << 24, 1 << 16
"""Bytes at most of the description of a checkpoint's tensors and of the list of its parts, which lies at the end."""

OBJECTS = 4_000_000
"""Lists, dictionaries and sets at most in that description. An object of a class counts as eight."""

REQUIRED = {"agent": dict, "experiment": dict, "step": int}
"""The keys that every checkpoint has, `best.pt` too, and their types."""


class Checkpoints:
    """The checkpoints of one run, `checkpoints/step_<n>.pt` with the sha256 beside each.

    Contents are tensors, numbers, strings and containers of them; loading runs no code from the file.

    directory: the folder of the checkpoints
    keep: how many of the newest are kept; None: all
    """

    def __init__(self, directory: Path, keep: int | None = None):
        self.directory = directory
        self.keep = keep

    def save(self, step: int, state: State) -> Path:
        """Write `state` as the checkpoint at `step`, and delete older checkpoints beyond the newest `keep`.

        Superfluous ones are deleted first, too, so that a smaller `keep` makes room on a full disk. Raises OSError if
        the checkpoint cannot be written; the newest earlier ones are intact then.
        """
        self.prune()
        path = self.write(f"step_{step:012d}.pt", state)
        self.prune()
        return path

    def prune(self) -> None:
        """Delete checkpoints beyond the newest `keep`, and incomplete files that a killed process left."""
        for old in self.paths()[: -self.keep] if self.keep else []:
            _delete(old)
        for path in self.directory.glob("*.partial"):
            path.unlink()
        for path in self.directory.glob("*.sha256"):
            if not path.with_suffix(".pt").exists():
                path.unlink()

    def drop_after(self, step: int) -> None:
        """Delete the checkpoints after `step`, from which a run continues, and incomplete files.

        They are of no use, damaged or without rows in the record, but might match the rows that are written next.
        """
        for path in self.paths():
            if step_of(path) > step:
                _delete(path)
        self.prune()

    def write(self, name: str, state: State) -> Path:
        """Write `state` to the file `name`, in place of what is there. Raises OSError as `save` does."""
        if self.directory.is_symlink():
            raise OSError(errno.ELOOP, "the folder of checkpoints is a link", str(self.directory))
        self.directory.mkdir(exist_ok=True)  # not its parents: a run directory that is missing was deleted
        path = self.directory / name
        partial, digest = path.with_suffix(".partial"), path.with_suffix(".sha256.partial")
        try:
            with synced(partial, "wb") as file:
                torch.save({"format": FORMAT, "rlmem": __version__, **state}, file)
            with synced(digest, "w") as file:
                file.write("\n".join([sha256(partial), *_digests(path)[:1]]))
        except (OSError, RuntimeError) as error:
            partial.unlink(missing_ok=True)
            digest.unlink(missing_ok=True)
            # torch's writer keeps the error of the system only as the context of its own error.
            cause = error if isinstance(error, OSError) else error.__context__
            raise cause if isinstance(cause, OSError) else OSError(first_line(error)) from error
        # Between these two lines, the checksums of both the old and the new checkpoint of this name are there.
        os.replace(digest, path.with_suffix(".sha256"))
        os.replace(partial, path)
        descriptor = os.open(self.directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)  # makes the renames durable
        finally:
            os.close(descriptor)
        return path

    def paths(self) -> list[Path]:
        """Complete checkpoints, oldest first."""
        files = (path for path in self.directory.glob("step_*.pt") if re.fullmatch(r"step_\d+\.pt", path.name))
        return sorted(path for path in files if path.is_file())

    def load(self, unfit: Callable[[State], str | None] = lambda state: None) -> tuple[Path, State]:
        """The newest checkpoint that is intact and usable; a warning names each one that is skipped.

        unfit: returns why a checkpoint cannot be used, or None if it can. FileNotFoundError is raised if none can.
        """
        for path in reversed(self.paths()):
            try:
                state = read(path)
                why = unfit(state)
            except ValueError as error:
                why = str(error)
            if why is None:
                return path, state
            warnings.warn(f"{why}; falling back to the one before", stacklevel=2)
        raise FileNotFoundError(f"no intact checkpoint in {self.directory}")


def _delete(path: Path) -> None:
    path.unlink()
    path.with_suffix(".sha256").unlink(missing_ok=True)


def step_of(path: Path) -> int:
    """The environment step of a checkpoint, by its name."""
    return int(path.stem.removeprefix("step_"))


def read(path: Path) -> State:
    """Read a checkpoint onto the CPU.

    Raises ValueError if the file was changed, or if it holds more than data, and OtherFormat, a UserError, for a format
    that this version cannot read.
    """
    try:
        with opened(path, folder=path.parents[1]):
            pass
    except OSError as error:
        raise ValueError(f"checkpoint {path} cannot be read ({first_line(error)})") from error
    if sha256(path) not in _digests(path):
        raise ValueError(f"checkpoint {path} is damaged (checksum differs)")
    try:
        _require_small(path)
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # a file that holds anything can break the reader in any way
        raise ValueError(f"checkpoint {path} cannot be read ({first_line(error)})") from error
    content = dict(state) if isinstance(state, dict) else {}
    number, version = content.pop("format", 0), content.pop("rlmem", None)
    wrong = [name for name, kind in REQUIRED.items() if not isinstance(content.get(name), kind)]
    if wrong or not is_data(content["experiment"]):
        raise ValueError(
            f"checkpoint {path} was not written by this version of rlmem (it has no {', '.join(wrong or REQUIRED)})"
        )
    if not is_number(number):
        raise ValueError(f"checkpoint {path} is damaged (format is no number of a format)")
    require_readable(number, f"checkpoint {path}", {"rlmem": version})
    return content


def _require_small(path: Path) -> None:
    """Raise ValueError for a checkpoint whose description, unlike its tensors, would take much memory.

    Tensors are mapped to memory as they lie in the file. Their description is read as a whole, and compressed it
    might become a thousand times as large.
    """
    with open(path, "rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
        end = file.read().rpartition(b"PK\x05\x06")[2]
    if len(end) >= 12 and int.from_bytes(end[8:12], "little") in range(PARTS, 0xFFFFFFFF):
        raise ValueError("it has too many parts")
    with zipfile.ZipFile(path) as archive:
        for part in archive.infolist():
            if part.compress_type != zipfile.ZIP_STORED:
                raise ValueError("it is compressed")
            if not part.filename.endswith(".pkl"):
                continue
            if part.file_size > PICKLE:
                raise ValueError(f"its description has {part.file_size:,} bytes")
            pickled = archive.read(part)
            objects = sum(map(pickled.count, (b"]", b"}", b"(", b"\x8f", b"\x85"))) + 8 * pickled.count(b"R")
            if objects > OBJECTS + part.file_size // 16:  # an upper bound; of numbers, one byte in 16 looks so
                raise ValueError("its description holds too many lists and objects")


def _digests(path: Path) -> list[str]:
    """The checksums beside a checkpoint: its own, and that of an earlier checkpoint of the same name."""
    try:
        return text(path.with_suffix(".sha256"), DIGESTS, errors="replace").split()
    except OSError:
        return []


def sha256(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    return hashed(path)[0].hexdigest()
