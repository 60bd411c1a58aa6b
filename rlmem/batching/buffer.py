"""Whole episodes in a ring of slots, and batches of them."""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from rlmem.batching import Batching, Pieces, Rollout
from rlmem.batching.store import KeptState, Placement, Ring, Running
from rlmem.core.types import Batch, Inputs, Obs, State, on_host, to_device, with_host

LEAST_PRIORITY = 1e-6
"""The least priority, before its exponent, so that an episode without errors can still be drawn."""

FIELDS = ("obs", "action", "reward", "terminated", "mask")
"""The stored fields of slots. Previous action, previous reward and start flag follow from a slot's position.

Leaves of observations of several parts are stored apart, as `obs/` and their path.
"""

PARTS = ("slots", "states", "table", "running")
"""What a replay consists of, in a checkpoint."""


@dataclass
class Sample:
    """A batch of a replay's episodes.

    batch: with priorities, `batch.behaviour["weight"]` [B, T] holds the importance weights, the largest of which is 1
    episode: [B, T] long, the number of the episode that a slot belongs to; -1 in the padding, -2 - n where it is the
        episode that runs in environment n
    metrics: of the batch and of the replay
    """

    batch: Batch
    episode: Tensor
    metrics: dict[str, float]


class Replay:
    """A replay of whole episodes, the oldest of which make room for new ones.

    Slots are kept once: an episode of n transitions takes n + 1, and there is no next observation. Memory (or the
    mapped file) grows with what is stored. Episodes that are still running wait outside until they have ended; batching
    schemes that say so (`Batching.running`) are given their transitions, too.

    With priorities an episode is drawn in proportion to p = (0.9 max |td_error| + 0.1 mean |td_error|)^exponent over
    its slots in the last batch that showed it (R2D2, Kapturowski et al. 2019, section 2.3), and importance weights are
    (1 / p)^importance_exponent (Schaul et al. 2016, arXiv:1511.05952, section 3.4). New episodes get the largest p yet,
    as do running ones.

    capacity: transitions
    num_envs: environments that rollouts come from
    device: where batches go
    priority_exponent: 0 draws uniformly
    importance_exponent: see above; without effect where episodes are drawn uniformly
    directory: keep the slots in unnamed files there, mapped into memory, which vanish with the process
    initial_state: one row of the memory's initial state; None: the states that acting had are not kept
    """

    def __init__(
        self,
        capacity: int,
        num_envs: int,
        device: torch.device,
        priority_exponent: float = 0.0,
        importance_exponent: float = 0.4,
        directory: Path | None = None,
        initial_state: State | None = None,
    ):
        self.capacity, self.device = capacity, device
        self.priority_exponent, self.importance_exponent = priority_exponent, importance_exponent
        self.initial_state = initial_state
        self.slots, self.states = Ring(directory), Ring(directory)
        self.table = Ring()  # a row per episode: position of its first slot, transitions, kept states, weight
        self.running = Running(num_envs, capacity)
        self.transitions = 0
        self.largest_weight = 1.0

    @property
    def episodes(self) -> int:
        return self.table.count

    def holds(self, batching: Batching) -> bool:
        """Whether there is anything that a batch could be drawn from."""
        return bool(self.episodes or (batching.running and len(self.running.drawable)))

    def rewards(self, batching: Batching) -> Tensor:
        """[S] the rewards of all transitions that can be drawn; on the CPU."""
        complete = [(self.slots.live("reward"), self.slots.live("mask"))] if self.episodes else []
        ends = zip(self.running.drawable, self.running.drawable_transitions, strict=True) if batching.running else ()
        slots = self.running.slots
        running = [(slots["reward"][env, :n], slots["mask"][env, :n]) for env, n in ends]
        return torch.from_numpy(np.concatenate([reward[mask] for reward, mask in complete + running]))

    def add(self, rollout: Rollout) -> int:
        """Store the slots of a rollout, but for its bootstrap slot; returns how many episodes they completed.

        Rollouts follow each other in the same environments. Episodes that began before the first rollout, that a reset
        broke off, or in which no transition was counted are left out. Raises Fault if an episode has more transitions
        than the replay can hold.
        """
        streams = rollout.streams
        slots = _by_field({name: getattr(streams, name) for name in FIELDS})
        start = on_host(streams.start)
        all_states = self._kept_states(rollout)
        T = start.shape[1] - 1
        cuts = [0, *(t for t in np.flatnonzero(start.any(0)).tolist() if 0 < t < T), T]
        completed = 0
        for begin, end in pairwise(cuts):  # in between, no episode begins anywhere
            states = [state._replace(slot=state.slot - begin) for state in all_states if begin <= state.slot < end]
            here = {name: values[:, begin:end] for name, values in slots.items()}
            self.running.extend(start[:, begin], here, states)
            for env in np.flatnonzero(start[:, end] & self.running.on).tolist():
                completed += self._complete(env)
        return completed

    def _kept_states(self, rollout: Rollout) -> list[KeptState]:
        """The states that acting kept; slots are those of the rollout."""
        if self.initial_state is None or rollout.state_index is None:
            return []
        leaves = [leaf.cpu().numpy() for leaf in tree_leaves(rollout.states)]
        index = rollout.state_index[:, :-1].cpu().numpy() - len(rollout.state_index)
        places = np.argwhere(index >= 0).tolist()
        return [KeptState(env, slot, [leaf[index[env, slot]] for leaf in leaves]) for env, slot in places]

    def _complete(self, env: int) -> int:
        """Move the running episode of `env` into the ring; returns 1, or 0 if nothing counted in it."""
        slots, states = self.running.pop(env)
        length = len(slots["mask"]) - 1
        if not slots["mask"].any():
            return 0
        while self.transitions + length > self.capacity:  # drop the oldest episode
            oldest = {name: int(self.table.take(name, self.table.head)) for name in ("length", "states")}
            self.slots.head += oldest["length"] + 1
            self.states.head += oldest["states"]
            self.table.head += 1
            self.transitions -= oldest["length"]
        if self.initial_state is not None:
            slots["state"] = np.full(length + 1, -1)
            slots["state"][list(states)] = self.states.tail + np.arange(len(states))
            parts = zip(*states.values(), strict=True)
            self.states.append(len(states), {str(i): np.stack(part) for i, part in enumerate(parts)})
        row = {"begin": self.slots.tail, "length": length, "states": len(states), "weight": self.largest_weight}
        self.table.append(1, {name: np.asarray([value]) for name, value in row.items()})
        self.slots.append(length + 1, slots)
        self.transitions += length
        return 1

    def sample(self, batching: Batching, batch_size: int, generator: torch.Generator) -> Sample:
        """A random batch of `batch_size` transitions, or of as many rows as `batching` says.

        Raises ValueError if there is nothing to draw from (`holds`).
        """
        if not self.holds(batching):
            raise ValueError("the replay holds nothing to draw from yet")
        running = self.running.drawable_transitions if batching.running else self.running.drawable_transitions[:0]
        lengths = self._column("length", running)
        weight = None
        if self.priority_exponent:
            weight = self._column("weight", np.full(len(running), self.largest_weight))
        pieces = batching.draw(lengths, weight, batch_size, generator)
        drawn = None if weight is None else weight[pieces.episode].numpy()
        return self._read(pieces, drawn, batching)

    def _column(self, name: str, running: np.ndarray) -> Tensor:
        """A column of the table, with the values `running` of running episodes behind those of complete ones."""
        return torch.from_numpy(np.concatenate([self.table.live(name), running]) if self.episodes else running)

    def _read(self, pieces: Pieces, weight: np.ndarray | None, batching: Batching) -> Sample:
        row, episode, first, acted, prefix = (part.numpy() for part in pieces)
        number = self.table.head + episode
        layout = Placement(row, acted + 1, least=batching.width)
        fields = self._gather(layout, number, first)
        fields["mask"] &= layout.place(layout.offset < acted[layout.piece])
        behaviour = {}
        if weight is not None:
            importance = (weight.min() / weight) ** self.importance_exponent
            behaviour["weight"] = with_host(layout.place(importance.astype(np.float32)[layout.piece]), self.device)
        before = None
        if prefix.any():
            ahead = self._tensors(self._gather(Placement(row, prefix, right=True), number, first - prefix))
            before = Inputs(*(ahead[name] for name in Inputs._fields))
        heads = np.flatnonzero(np.diff(row, prepend=-1))
        batch = Batch(
            **self._tensors(fields),
            state0=self._states_at(number[heads], (first - prefix)[heads]),
            behaviour=behaviour,
            prefix=before,
            detach_every=batching.detach_every,
        )
        metrics = {
            "batch/rows": layout.rows,
            "batch/episodes": len(np.unique(episode)),
            "batch/transitions": int(np.count_nonzero(fields["mask"])),
            "batch/pad_fraction": layout.pad_fraction,
        }
        running = number >= self.table.tail
        number[running] = -2 - self._env(number[running])
        return Sample(batch, with_host(layout.place(number[layout.piece], -1), self.device), metrics)

    def _gather(self, layout: Placement, number: np.ndarray, first: np.ndarray) -> dict[str, np.ndarray]:
        """The fields of `Batch` in rows, of pieces that begin at slot `first` [P] of the episodes `number` [P].

        Leaves of observations are apart, as they are stored. A complete episode has the number of its row in `table`;
        running ones follow, in the order of `Running.drawable`.
        """
        slot = first[layout.piece] + layout.offset
        number, start = number[layout.piece], slot == 0
        fields = {name: layout.place(self._take(name, number, slot)) for name in self.running.slots}
        for name in ("action", "reward"):
            previous = self._take(name, number, slot - 1)
            previous[start] = 0
            fields[f"prev_{name}"] = layout.place(previous)
        return fields | {"start": layout.place(start)}

    def _take(self, name: str, number: np.ndarray, slot: np.ndarray) -> np.ndarray:
        """A field [S, ...] of the slots `slot` [S] of episodes `number` [S]; arbitrary before an episode's first."""
        running = number >= self.table.tail
        if not running.any():
            return self.slots.take(name, self.table.take("begin", number) + slot)
        live, ended = self.running.slots[name], ~running
        values = np.empty((len(slot), *live.shape[2:]), live.dtype)
        values[running] = live[self._env(number[running]), slot[running]]
        if ended.any():
            values[ended] = self.slots.take(name, self.table.take("begin", number[ended]) + slot[ended])
        return values

    def _env(self, number: np.ndarray) -> np.ndarray:
        """The environments of running episodes."""
        return self.running.drawable[number - self.table.tail]

    def _states_at(self, number: np.ndarray, slot: np.ndarray) -> State | None:
        """The states that acting had before slots `slot` [R] of the episodes `number` [R].

        Raises ValueError where acting kept no state.
        """
        if self.initial_state is None:
            return None
        leaves, structure = tree_flatten(self.initial_state)
        rows = [leaf.to(self.device).repeat(len(slot), *[1] * (leaf.dim() - 1)) for leaf in leaves]
        running = number >= self.table.tail
        ended = np.flatnonzero((slot > 0) & ~running)
        if len(ended):
            index = self.slots.take("state", self.table.take("begin", number[ended]) + slot[ended])
            if (index < 0).any():
                raise ValueError(f"acting kept no state before slot {slot[ended][index < 0][0]} of an episode")
            where = to_device(ended, self.device)
            for i, leaf in enumerate(rows):
                leaf[where] = with_host(self.states.take(str(i), index), self.device)
        for row in np.flatnonzero((slot > 0) & running).tolist():  # few rows are of running episodes
            states = self.running.states[self._env(number[row]).item()]
            if slot[row] not in states:
                raise ValueError(f"acting kept no state before slot {slot[row]} of an episode")
            for leaf, state in zip(rows, states[slot[row]], strict=True):
                leaf[row] = with_host(state, self.device)
        return tree_unflatten(rows, structure)

    def _tensors(self, fields: dict[str, np.ndarray]) -> dict[str, Any]:
        """Fields as tensors, in which the leaves of an observation are together again."""
        tensors = {name: with_host(values, self.device) for name, values in fields.items()}
        if "obs" in tensors:
            return tensors
        obs: Obs = {name.removeprefix("obs/"): leaf for name, leaf in tensors.items() if name.startswith("obs/")}
        return {name: value for name, value in tensors.items() if not name.startswith("obs/")} | {"obs": obs}

    def update_priorities(self, sample: Sample, td_error: Tensor) -> None:
        """Set the priorities of a sample's episodes from td_error [n], one for each slot of the batch's mask."""
        if not self.priority_exponent:
            return
        number = on_host(sample.episode)[on_host(sample.batch.mask)]
        error = td_error.detach().abs().double().cpu().numpy()
        here = (number >= self.table.head) & np.isfinite(error)  # the others are running, or have been dropped since
        if not here.any():  # as before the first episode has ended: the table has no columns yet
            return
        seen, index = np.unique(number[here], return_inverse=True)
        largest = np.zeros(len(seen))
        np.maximum.at(largest, index, error[here])
        mean = np.bincount(index, error[here], len(seen)) / np.bincount(index, minlength=len(seen))
        weight = np.maximum(0.9 * largest + 0.1 * mean, LEAST_PRIORITY) ** self.priority_exponent
        self.table.put("weight", seen, weight)
        self.largest_weight = max(self.largest_weight, float(weight.max()))

    def state_dict(self) -> dict[str, Any]:
        """Everything that the replay holds, as tensors and numbers."""
        parts = {name: getattr(self, name).state_dict() for name in PARTS}
        return parts | {"transitions": self.transitions, "largest_weight": self.largest_weight}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name in PARTS:
            getattr(self, name).load_state_dict(state[name])
        self.transitions, self.largest_weight = state["transitions"], state["largest_weight"]


def _by_field(slots: dict[str, Any]) -> dict[str, np.ndarray]:
    """Arrays by the names under which they are stored."""
    obs = slots.pop("obs")
    leaves = {f"obs/{name}": leaf for name, leaf in obs.items()} if isinstance(obs, dict) else {"obs": obs}
    return {name: on_host(leaf) for name, leaf in (leaves | slots).items()}
