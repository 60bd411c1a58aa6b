"""HDF5 files of recorded transitions, in the layout of D4RL (Fu et al. 2020, arXiv:2004.07219)."""

import hashlib
import os
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlmem.core.errors import UserError, extra, first_line
from rlmem.core.received import DENSITY, ROOM, named, opened

USUAL_LIMIT = 1000
"""The time limit of episodes, in steps, of files that do not say where one ended them."""

RATIO = 1032
"""The bytes that gzip makes of one at most."""

DEFLATE, SHUFFLE, CHECKSUM, LZF = 1, 2, 3, 32000
KNOWN = {DEFLATE, SHUFFLE, CHECKSUM, LZF}
"""The numbers of HDF5's filters that a table may have."""

REQUIRED = ("observations", "actions", "rewards", "terminals")
FIELDS = (*REQUIRED, "timeouts")


@dataclass
class Recording:
    """N transitions of whole episodes, one after another. Row t: an observation, the action there, and its result.

    observations: [N, D] float32
    actions: [N, A] float32, as the environment took them; a discrete action is its number, with A = 1
    rewards: [N] float32
    terminals: [N] bool, whether the environment ended the episode here
    timeouts: [N] bool, whether a time limit ended it here
    attrs: provenance: environment, versions, who played
    """

    observations: NDArray[np.float32]
    actions: NDArray[np.float32]
    rewards: NDArray[np.float32]
    terminals: NDArray[np.bool_]
    timeouts: NDArray[np.bool_]
    attrs: dict[str, Any] = field(default_factory=dict)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """[E] number of transitions of every episode."""
        return np.diff(np.flatnonzero(self.terminals | self.timeouts), prepend=-1)

    @property
    def returns(self) -> NDArray[np.float64]:
        """[E] undiscounted return of every episode."""
        return np.add.reduceat(self.rewards.astype(np.float64), self.lengths.cumsum() - self.lengths)

    def digest(self, *names: str) -> str:
        """SHA-256 of the bytes of some of the tables, one after another, in hexadecimal."""
        return hashlib.sha256(b"".join(getattr(self, name).tobytes() for name in names)).hexdigest()


def joined(parts: list[Recording]) -> Recording:
    """The transitions of several recordings, without their attributes."""
    whole = {name: np.concatenate([getattr(part, name) for part in parts]) for name in FIELDS}
    return Recording(**whole)  # type: ignore[arg-type]


def require_new_file(path: Path) -> None:
    """Raise UserError if `path` exists or h5py is missing."""
    _h5py()
    if path.exists():
        other = path.with_stem(f"{path.stem}_2")
        raise UserError(f"--out {path}: is there already; expected a new file; e.g. --out {other}")


def write(path: Path, recording: Recording) -> None:
    """Write a recording, all of it or nothing. Raises UserError if the file exists or cannot be written."""
    require_new_file(path)
    h5py, partial = _h5py(), path.with_name(f"{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with h5py.File(partial, "w") as file:
            for name in FIELDS:
                file.create_dataset(name, data=getattr(recording, name), compression="gzip", compression_opts=1)
            file.attrs.update(recording.attrs | {"sha256_observations": recording.digest("observations")})
        os.replace(partial, path)
    except OSError as error:
        with suppress(OSError):  # it was not made, or its folder is a file
            partial.unlink()
        raise UserError(f"--out {path}: cannot be written ({error.strerror or error}); e.g. --out data/mine") from error


def shapes(path: Path) -> tuple[int, int]:
    """The sizes D and A of a file, without reading its data. Raises UserError if it is not a recording."""
    with _opened(path) as file:
        return _shapes(path, _tables(path, file))


def _shapes(path: Path, tables: Mapping[str, Any]) -> tuple[int, int]:
    if missing := [name for name in REQUIRED if name not in tables]:
        problem = f"has no {', '.join(missing)}; expected the layout of D4RL: {', '.join(REQUIRED)}"
        raise UserError(f"{path}: {problem}")
    if any(tables[name].ndim != 2 for name in ("observations", "actions")):
        raise UserError(f"{path}: observations and actions must be tables [N, D] and [N, A] of numbers")
    return int(tables["observations"].shape[1]), int(tables["actions"].shape[1])


def read(path: Path) -> Recording:
    """Read the whole episodes of a file of this layout, whichever program wrote it.

    Rewards and flags may be columns [N, 1]. An episode ends at a terminal or a timeout; in a file without timeouts, at
    a terminal or after USUAL_LIMIT steps. What follows the last end is dropped. `next_observations`, `infos` and
    `metadata` are ignored. Raises UserError if it is not a recording.
    """
    with _opened(path) as file, np.errstate(over="ignore"):  # an infinity is refused below
        contents = _tables(path, file)
        _shapes(path, contents)
        tables = [contents[name][()].astype(np.float32) for name in ("observations", "actions")]
        columns = {name: contents[name][()] for name in ("rewards", "terminals", "timeouts") if name in contents}
        attrs = _attributes(file)
    number = len(tables[0])
    for name, column in columns.items():
        if column.shape not in ((number,), (number, 1)):
            raise UserError(f"{path}: {name} has shape {list(column.shape)}; expected [{number}] or [{number}, 1]")
    if len(tables[1]) != number:
        raise UserError(f"{path}: {number} observations and {len(tables[1])} actions; expected equally many")
    terminals = columns["terminals"].reshape(number).astype(bool)
    timeouts = columns["timeouts"].reshape(number).astype(bool) if "timeouts" in columns else _assumed(terminals)
    ends = np.flatnonzero(terminals | timeouts)
    if not ends.size:
        raise UserError(f"{path}: no episode ends in its {number} transitions; expected terminals or timeouts")
    whole = slice(0, int(ends[-1]) + 1)
    with np.errstate(over="ignore"):
        rewards = columns["rewards"].reshape(number).astype(np.float32)
    parts = [part[whole] for part in (*tables, rewards, terminals, timeouts)]
    if not all(np.isfinite(part).all() for part in parts[:3]):
        raise UserError(f"{path}: holds numbers that are not finite; expected a recording without them")
    return Recording(parts[0], parts[1], parts[2], parts[3], parts[4], attrs)


def _assumed(terminals: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Timeouts after every USUAL_LIMIT steps since the last terminal."""
    timeouts = np.zeros_like(terminals)
    bounds = np.concatenate([[-1], np.flatnonzero(terminals), [len(terminals)]])
    for before, end in pairwise(bounds):
        timeouts[before + USUAL_LIMIT : end : USUAL_LIMIT] = True
    return timeouts


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """The file, open for reading. Raises UserError for one that cannot be read, also while it is read."""
    h5py = _h5py()
    try:
        with opened(named(path)), h5py.File(path, "r") as file:
            yield file
    except UserError:
        raise
    except Exception as error:  # a file that holds anything can break the reader in any way
        why = "no such file" if not path.exists() else f"cannot be read ({first_line(error)})"
        raise UserError(f"{path}: {why}; expected an HDF5 file, as `rlmem dataset generate` writes it") from error


def _room(path: Path) -> int:
    """The bytes of memory that the tables of a file may take: more than compression and rounding explain."""
    return max(ROOM, DENSITY * os.stat(path).st_blocks * 512)


def _tables(path: Path, file: Any) -> dict[str, Any]:
    """The tables of a recording that a file has, by name.

    Raises UserError for a table that lies elsewhere, in this file or in another one, for one that does not hold
    numbers, and for tables that are much larger than the file.
    """
    h5py, by_name = _h5py(), dict[str, Any]()
    for name in FIELDS:
        link = file.get(name, getlink=True)
        if link is None:
            continue
        table = file[name] if isinstance(link, h5py.HardLink) else None
        if not isinstance(table, h5py.Dataset) or table.external or table.is_virtual:
            raise UserError(f"{path}: {name} is a link to other data; expected the data themselves, in this file")
        if table.dtype.kind not in "biuf":
            raise UserError(f"{path}: {name} holds {table.dtype}; expected numbers")
        filters = [
            table.id.get_create_plist().get_filter(k)[0] for k in range(table.id.get_create_plist().get_nfilters())
        ]
        if not {*filters} <= KNOWN or len({*filters}) < len(filters) or {*filters} >= {DEFLATE, LZF}:
            raise UserError(f"{path}: {name} is packed by unknown filters; expected gzip or none")
        by_name[name] = table
    size = sum(max(t.size, prod(t.chunks or ())) * (t.dtype.itemsize + 4) for t in by_name.values())
    if size > (room := _room(path)):
        raise UserError(f"{path}: its tables take {size:,} bytes of memory; expected at most {room:,} for such a file")
    for name, table in by_name.items():
        _require_sound_chunks(path, name, table)
    return by_name


def _require_sound_chunks(path: Path, name: str, table: Any) -> None:
    """Raise UserError if a part of a table, once decompressed, would be larger than the table says."""
    if table.compression != "gzip":
        return
    most = prod(table.chunks) * table.dtype.itemsize
    for number in range(table.id.get_num_chunks()):
        part = table.id.get_chunk_info(number)
        if part.size * RATIO <= ROOM:
            continue
        packed, unpacking = table.id.read_direct_chunk(part.chunk_offset)[1], zlib.decompressobj()
        try:
            sound = len(unpacking.decompress(packed, most + 1)) <= most
        except zlib.error:
            sound = False
        if not sound:
            raise UserError(f"{path}: {name} is damaged (a part is larger than it says); expected what was written")


def _attributes(file: Any) -> dict[str, Any]:
    """The attributes of a file that are single values."""
    names = [name for name in file.attrs if file.attrs.get_id(name).shape == ()]
    return {name: file.attrs[name] for name in names if file.attrs.get_id(name).get_storage_size() < ROOM}


def _h5py() -> Any:
    try:
        import h5py
    except ModuleNotFoundError as error:
        raise UserError(f"data sets need h5py, which is not installed; e.g. {extra('data')}") from error
    return h5py
