"""Recordings of the papers' own models, and how ours are built and read to be held against them.

A record is an .npz of weights by symbol (`w.*`), inputs, outputs, states and gradients (`g.*`) with a JSON `meta`.
An adapter per `meta["model"]` says which of our models it is; a new recording of a known model needs no code.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlmem.core.types import State
from rlmem.memory.base import Memory

FOLDER = Path(__file__).parent.parent / "data" / "golden"


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
    """The option that reproduces `packed.*`, several episodes in a row, if it is another one."""
    forward_tolerance: float = 1e-11
    gradient_tolerance: float = 1e-10
    has_kinks: bool = False
    """Pre-activations so near a kink (ReLU, clamp, max) that float32 gradients may take the other side."""


ADAPTERS: dict[str, Adapter] = {}
"""By `meta["model"]`."""


def prepared(build, record: Record, dtype: torch.dtype) -> Memory:
    memory = build(record).to(dtype)
    memory.load_symbols(record.group("w", dtype))
    return memory


def assert_near(ours: Tensor, truth: Tensor, tolerance: float, what: str):
    """|difference| within tolerance x max(1, |truth|)."""
    assert ours.shape == truth.shape, f"{what}: {list(ours.shape)}, recorded {list(truth.shape)}"
    error = ((ours - truth).abs() / truth.abs().clamp(min=1)).max().item()
    assert error <= tolerance, f"{what}: off by {error:.1e}"


def assert_gradients(
    ours: dict[str, Tensor | None], truth: dict[str, Tensor], tolerance: float, what: str, zero: Collection[str] = ()
):
    """|difference| within tolerance x the largest entry; no gradient counts as zero. Those named in `zero` are zero but
    for rounding, and must be so within the tolerance."""
    assert truth.keys() <= ours.keys(), f"{what}: no gradient of {sorted(truth.keys() - ours.keys())}"
    for name, expected in truth.items():
        gradient = ours[name]
        error = (expected if gradient is None else gradient - expected).abs().max().item()
        largest = 1 if name in zero else expected.abs().max().item()
        assert error <= tolerance * largest, f"{what}.{name}: off by {error:.1e}"


def zeros(record: Record, group: str) -> set[str]:
    """The gradients of a group that are zero in exact arithmetic, and recorded as rounding."""
    named = record.meta.get("zero_grads", ())
    return {name.removeprefix(f"{group}.") for name in named if name.startswith(f"{group}.")}


def run(memory: Memory, record: Record, dtype: torch.dtype, start: str = "start", fresh: bool = False):
    """Outputs, final state arrays and gradients (weights by symbol, x, state0.*) of sum(y * r)."""
    adapter = ADAPTERS[record.meta["model"]]
    x = record.array("x", dtype).clone().requires_grad_()
    first = {} if fresh else {k: v.clone().requires_grad_() for k, v in record.group("state0", dtype).items()}
    state = adapter.to_state(first) if first else memory.initial_state(len(x))
    memory.zero_grad()
    y, final = memory(x, state, record.arrays[start])
    (y * record.array("r", dtype)).sum().backward()
    gradients = memory.symbols(lambda p: torch.zeros_like(p) if p.grad is None else p.grad) | {"x": x.grad}
    gradients |= {f"state0.{k}" if k else "state0": v.grad for k, v in first.items()}
    return y.detach(), {k: v.detach() for k, v in adapter.from_state(final).items()}, gradients
