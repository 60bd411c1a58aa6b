"""Recordings of the papers' own models, and how ours are built and read to be held against them.

A record is an .npz of weights by symbol (`w.*`), inputs, outputs, states and gradients (`g.*`) with a JSON `meta`.
An adapter per `meta["model"]` says which of our models it is; a new recording of a known model needs no code.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlmem.memory.base import Memory
from rlmem.types import State

FOLDER = Path(__file__).parent / "data" / "golden"


@dataclass
class Record:
    """One recording; arrays keep the names of the file."""

    name: str
    meta: dict[str, Any]
    arrays: dict[str, Tensor]

    @classmethod
    def read(cls, path: Path) -> Record:
        with np.load(path) as file:
            meta = json.loads(str(file["meta"])) if "meta" in file else {}
            return cls(path.stem, meta, {k: torch.from_numpy(file[k]) for k in file.files if k != "meta"})

    @property
    def kind(self) -> str:
        """The model, or for tables without one what the name begins with."""
        return self.meta.get("model") or re.sub(r"_(T\d+|\d+)$", "", self.name)

    def group(self, prefix: str, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
        """The arrays `prefix.NAME` by NAME (`""` for the array `prefix` itself), floating ones in `dtype`."""
        inside = [name for name in self.arrays if f"{name}.".startswith(f"{prefix}.")]
        return {name[len(prefix) :].removeprefix("."): self.array(name, dtype) for name in inside}

    def array(self, name: str, dtype: torch.dtype = torch.float64) -> Tensor:
        return _cast(self.arrays[name], dtype)


@cache
def recordings(folder: Path) -> list[Record]:
    """All recordings of a folder, read once: tests copy what they change."""
    return [Record.read(path) for path in sorted(folder.glob("*.npz"))]


def _cast(x: Tensor, dtype: torch.dtype) -> Tensor:
    if x.is_complex():
        return x.to(dtype.to_complex())
    return x.to(dtype) if x.is_floating_point() else x


def one_or_dict(arrays: dict[str, Tensor]) -> State:
    return arrays.get("", arrays)


def as_arrays(state: State) -> dict[str, Tensor]:
    return state if isinstance(state, dict) else {"": state}


@dataclass
class Adapter:
    """How a recorded model is built from its `meta`, and how its recorded states (by name) and ours correspond."""

    build: Callable[[Record], Memory]
    to_state: Callable[[dict[str, Tensor]], State] = one_or_dict
    from_state: Callable[[State], dict[str, Tensor]] = as_arrays
    published: Callable[[Record], Memory] | None = None
    """The named option that reproduces `pub.y` and `pub.g.*`, where the published code departs from the equation."""
    recorded: Callable[[dict[str, Tensor]], dict[str, Tensor]] = as_arrays
    """What `from_state` can give of the recorded final state."""
    packed: Callable[[Record], Memory] | None = None
    """The option that reproduces `packed.*`, if it is another one."""
    forward_tolerance: float = 1e-11
    gradient_tolerance: float = 1e-10
    has_kinks: bool = False
    """Pre-activations so near a kink (ReLU, clamp, max) that float32 gradients may take the other side."""


ADAPTERS: dict[str, Adapter] = {}
"""By `meta["model"]`."""
