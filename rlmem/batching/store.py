"""What a replay stores: rows of numpy arrays in a ring that grows on demand, and the episodes that run; and the places
of what it stores in the rows of a batch."""

import os
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NamedTuple

import numpy as np
import torch

from rlmem.core.errors import Fault

BLOCK = 1 << 14
"""Rows copied at once when a ring grows."""


class Ring:
    """Rows with named fields, appended at the end and dropped at the front, both O(1) amortised.

    A row's position counts from the first row ever appended and never changes: head <= position < tail. To drop the
    oldest rows, move `head`.

    directory: hold the rows in unnamed files there, mapped into memory, which vanish with the process; OSError if the
        disk is full
    """

    def __init__(self, directory: Path | None = None):
        self.directory = directory
        self.head = self.tail = self.size = 0
        self.arrays: dict[str, np.ndarray] = {}

    @property
    def count(self) -> int:
        return self.tail - self.head

    def append(self, count: int, rows: Mapping[str, np.ndarray]) -> None:
        """Add `count` rows, every field [count, ...]; the first rows decide on shapes and types."""
        if self.count + count > self.size:
            self._grow(max(self.count + count, self.size + self.size // 4))
        for name in (name for name in rows if name not in self.arrays):
            self.arrays[name] = self._allocate(self.size, rows[name].shape[1:], rows[name].dtype)
        position = np.arange(self.tail, self.tail + count)
        self.tail += count
        for name, values in rows.items():
            self.put(name, position, values)

    def take(self, name: str, position: np.ndarray | int) -> np.ndarray:
        return self.arrays[name].take(position % self.size, axis=0)

    def put(self, name: str, position: np.ndarray, values: np.ndarray) -> None:
        self.arrays[name][position % self.size] = values

    def live(self, name: str) -> np.ndarray:
        """All rows of a field, oldest first; a view where they do not wrap."""
        spans = self._spans(name)
        return spans[0] if len(spans) == 1 else np.concatenate(spans)

    def state_dict(self) -> dict[str, Any]:
        """Views of the live rows, to be saved before the next one is added: a mapped ring may not fit into memory."""
        names = self.arrays if self.count else ()
        rows = {name: [torch.from_numpy(span) for span in self._spans(name)] for name in names}
        return {"head": self.head, "count": self.count, "rows": rows}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.arrays, self.size = {}, 0
        self.head = self.tail = state["head"]
        if not state["rows"]:
            self.append(state["count"], {})
        for spans in zip(*state["rows"].values(), strict=True):
            self.append(len(spans[0]), {n: rows.numpy() for n, rows in zip(state["rows"], spans, strict=True)})

    def _spans(self, name: str) -> list[np.ndarray]:
        array = self.arrays[name]
        first = self.head % self.size
        unwrapped = array[first : first + self.count]
        return [unwrapped] if len(unwrapped) == self.count else [unwrapped, array[: self.count - len(unwrapped)]]

    def _grow(self, size: int) -> None:
        for name, old in self.arrays.items():
            new = self._allocate(size, old.shape[1:], old.dtype)
            for begin in range(self.head, self.tail, BLOCK):
                position = np.arange(begin, min(begin + BLOCK, self.tail))
                new[position % size] = old[position % self.size]
            self.arrays[name] = new
        self.size = size

    def _allocate(self, size: int, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        if self.directory is None:
            return np.empty((size, *shape), dtype)
        self.directory.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=self.directory) as file:  # the mapping outlives it
            if hasattr(os, "posix_fallocate"):  # else a full disk would be a bus error, much later
                os.posix_fallocate(file.fileno(), 0, max(1, size * int(np.prod(shape)) * dtype.itemsize))
            return np.memmap(file, dtype, "w+", shape=(size, *shape))


class KeptState(NamedTuple):
    """A memory state that acting had before a slot of an environment: one row of each of its leaves.

    The slot counts from the first one that is being added.
    """

    env: int
    slot: int
    leaves: list[np.ndarray]


class Running:
    """The episodes that have not ended, one per environment.

    on: [N], whether the beginning of the running episode was stored
    length: [N], its slots so far
    states: for each environment, the leaves of the states that acting had, by the slot before which it had them
    """

    def __init__(self, num_envs: int, capacity: int):
        self.capacity = capacity
        self.on = np.zeros(num_envs, bool)
        self.length = np.zeros(num_envs, np.int64)
        self.slots: dict[str, np.ndarray] = {}
        self.states: list[dict[int, list[np.ndarray]]] = [{} for _ in range(num_envs)]

    @property
    def drawable(self) -> np.ndarray:
        """[R], the environments whose episode has a transition of which the next slot is stored, too."""
        return np.flatnonzero(self.on & (self.length > 1))

    @property
    def drawable_transitions(self) -> np.ndarray:
        """[R], how many of these the episodes of the environments `drawable` have."""
        return self.length[self.drawable] - 1

    def extend(self, start: np.ndarray, slots: dict[str, np.ndarray], states: list[KeptState]) -> None:
        """Begin episodes where `start` [N], and add slots [N, n, ...] to all, and the states before some of these n."""
        self.on |= start
        self.length[start] = 0
        for i in np.flatnonzero(start):
            self.states[i] = {}
        env = np.flatnonzero(self.on)
        if not len(env):
            return
        n = slots["mask"].shape[1]
        for state in states:
            self.states[state.env][int(self.length[state.env]) + state.slot] = state.leaves
        longest = env[self.length[env].argmax()]
        needed = int(self.length[longest]) + n
        if needed > self.capacity + 1:
            problem = f"an episode of environment {longest} has more transitions than the replay can hold"
            why = "which keeps whole episodes; a resumed run would fail again: begin another one"
            raise Fault(f"{problem} ({self.capacity}), {why}, e.g. with algo.capacity={10 * self.capacity}")
        at = env[:, None], self.length[env][:, None] + np.arange(n)
        for name, values in slots.items():
            old = self.slots.get(name, values[:, :0])
            if old.shape[1] < needed:
                size = max(needed, 2 * old.shape[1])
                self.slots[name] = np.empty((len(self.on), size, *values.shape[2:]), values.dtype)
                self.slots[name][:, : old.shape[1]] = old
            self.slots[name][at] = values[env]
        self.length[env] += n

    def pop(self, env: int) -> tuple[dict[str, np.ndarray], dict[int, list[np.ndarray]]]:
        """The slots and states of the episode that has ended in `env`; valid until `extend`."""
        self.on[env] = False
        states, self.states[env] = self.states[env], {}
        return {name: values[env, : self.length[env]] for name, values in self.slots.items()}, states

    def state_dict(self) -> dict[str, Any]:
        length = self.length * self.on
        taken = np.arange(length.max()) < length[:, None]
        slots = {name: torch.from_numpy(values[:, : taken.shape[1]][taken]) for name, values in self.slots.items()}
        return {
            "on": torch.from_numpy(self.on.copy()),
            "length": torch.from_numpy(length),
            "slots": slots,
            "states": [
                (env, slot, [torch.tensor(leaf) for leaf in leaves])
                for env, by_slot in enumerate(self.states)
                for slot, leaves in by_slot.items()
            ],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.on, self.length = state["on"].numpy().copy(), state["length"].numpy().copy()
        self.slots = {}
        taken = np.arange(self.length.max()) < self.length[:, None]
        for name, live in state["slots"].items():
            self.slots[name] = np.empty((*taken.shape, *live.shape[1:]), live.numpy().dtype)
            self.slots[name][taken] = live.numpy()
        self.states = [{} for _ in self.on]
        for env, slot, leaves in state["states"]:
            self.states[env][slot] = [leaf.numpy().copy() for leaf in leaves]


class Placement:
    """Where the slots of pieces go in rows [R, T]: one after another, padded on the right, or on the left if `right`.

    row: [P], the row of each piece, ascending from 0 without gaps
    shown: [P], slots of each piece, S in all
    least: the least width
    piece, offset: [S], the piece that each slot belongs to, and its number there
    rows, width: R and T
    """

    def __init__(self, row: np.ndarray, shown: np.ndarray, right: bool = False, least: int = 0):
        ends = np.cumsum(shown)
        self.piece = np.repeat(np.arange(len(row)), shown)
        self.offset = np.arange(ends[-1]) - (ends - shown)[self.piece]
        self.rows = int(row[-1]) + 1
        in_row = np.bincount(row, shown, self.rows).astype(np.int64)
        self.width = max(least, int(in_row.max()))
        self.pad_fraction = 1 - float(ends[-1]) / (self.rows * self.width)
        shift = np.arange(self.rows) * self.width - (np.cumsum(in_row) - in_row)
        if right:
            shift += self.width - in_row
        self.target = np.arange(ends[-1]) + shift[row[self.piece]]

    def place(self, values: np.ndarray, padding: int = 0) -> np.ndarray:
        """[S, ...] to [R, T, ...]."""
        if self.pad_fraction == 0:
            return values.reshape(self.rows, self.width, *values.shape[1:])
        placed = np.full((self.rows * self.width, *values.shape[1:]), padding, values.dtype)
        placed[self.target] = values
        return placed.reshape(self.rows, self.width, *values.shape[1:])
