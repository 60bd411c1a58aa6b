"""Checkpoints that survive a crash: written aside, synced, renamed, checksummed; the older go last."""

from __future__ import annotations

import hashlib
import os
import re
import warnings
from pathlib import Path
from typing import Any

import torch


class Checkpoints:
    """The checkpoints of one run, `checkpoints/step_<n>.pt` with the sha256 beside each.

    Contents are tensors, numbers, strings and containers of them; loading runs no code from the file.

    keep: newest checkpoints kept
    """

    def __init__(self, directory: Path, keep: int = 2):
        self.directory = directory
        self.keep = keep

    def save(self, step: int, state: dict[str, Any]) -> Path:
        """Write `state` as the checkpoint at `step`, then drop those before it beyond `keep`.

        Checkpoints of later steps stay: they are damaged ones that a resumed run will overwrite.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        path = self.directory / f"step_{step:012d}.pt"
        partial = path.with_suffix(".partial")
        with open(partial, "wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        digest = path.with_suffix(".sha256")
        with open(digest, "w") as file:
            file.write(_sha256(partial))
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
        _sync(self.directory)
        older = [other for other in self.paths() if other.name <= path.name]
        for old in older[: -self.keep]:
            old.unlink()
            old.with_suffix(".sha256").unlink(missing_ok=True)
        return path

    def paths(self) -> list[Path]:
        """Complete checkpoints, oldest first."""
        return sorted(p for p in self.directory.glob("step_*.pt") if re.fullmatch(r"step_\d+\.pt", p.name))

    def load(self) -> tuple[Path, dict[str, Any]]:
        """The newest checkpoint that is intact; a damaged one is passed over with a warning.

        Raises FileNotFoundError if there is none.
        """
        for path in reversed(self.paths()):
            try:
                return path, read(path)
            except ValueError as error:
                warnings.warn(f"{error}; falling back to the one before", stacklevel=2)
        raise FileNotFoundError(f"no intact checkpoint in {self.directory}")


def read(path: Path) -> dict[str, Any]:
    """One checkpoint, onto the CPU. Raises ValueError if the file is not what was written."""
    digest = path.with_suffix(".sha256")
    if not digest.exists() or digest.read_text() != _sha256(path):
        raise ValueError(f"checkpoint {path} is damaged (checksum differs)")
    return torch.load(path, map_location="cpu", weights_only=True, mmap=True)


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        digest = hashlib.sha256()
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _sync(directory: Path) -> None:
    """Make the renames in `directory` durable."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
