"""The episodes that have not ended yet."""

from typing import Any, NamedTuple

import numpy as np
import torch

from rlmem.errors import Fault


class KeptState(NamedTuple):
    """A memory state that acting had before a slot."""

    env: int
    """The index of the environment."""
    slot: int
    """The slot, counted from the first one that is being added, or from the episode's first once it is stored."""
    leaves: list[np.ndarray]
    """The state's leaves, one row of each."""


class Running:
    """The episodes that have not ended, one per environment.

    on: [N], whether the beginning of the running episode was stored
    length: [N], its slots so far
    """

    def __init__(self, num_envs: int, capacity: int):
        self.capacity = capacity
        self.on = np.zeros(num_envs, bool)
        self.length = np.zeros(num_envs, np.int64)
        self.slots: dict[str, np.ndarray] = {}
        self.states: list[list[KeptState]] = [[] for _ in range(num_envs)]

    def extend(self, start: np.ndarray, slots: dict[str, np.ndarray], states: list[KeptState]) -> None:
        """Begin episodes where `start` [N], and add slots [N, n, ...] to all, and the states before some of these n."""
        self.on |= start
        self.length[start] = 0
        for i in np.flatnonzero(start):
            self.states[i] = []
        env = np.flatnonzero(self.on)
        if not len(env):
            return
        n = slots["mask"].shape[1]
        for state in states:
            self.states[state.env].append(state._replace(slot=int(self.length[state.env]) + state.slot))
        longest = env[self.length[env].argmax()]
        needed = int(self.length[longest]) + n
        if needed > self.capacity + 1:
            raise Fault(
                f"an episode of environment {longest} has more transitions than the replay can hold ({self.capacity}), "
                f"which keeps whole episodes; a resumed run would fail again: begin another one, "
                f"e.g. with algo.capacity={10 * self.capacity}"
            )
        at = env[:, None], self.length[env][:, None] + np.arange(n)
        for name, values in slots.items():
            old = self.slots.get(name, values[:, :0])
            if old.shape[1] < needed:
                size = max(needed, 2 * old.shape[1])
                self.slots[name] = np.empty((len(self.on), size, *values.shape[2:]), values.dtype)
                self.slots[name][:, : old.shape[1]] = old
            self.slots[name][at] = values[env]
        self.length[env] += n

    def pop(self, env: int) -> tuple[dict[str, np.ndarray], list[KeptState]]:
        """The slots and states of the episode that has ended in `env`; valid until `extend`."""
        self.on[env] = False
        states, self.states[env] = self.states[env], []
        return {name: values[env, : self.length[env]] for name, values in self.slots.items()}, states

    def state_dict(self) -> dict[str, Any]:
        length = self.length * self.on
        taken = np.arange(length.max()) < length[:, None]
        live = {name: values[:, : taken.shape[1]][taken] for name, values in self.slots.items()}
        return {
            "on": torch.from_numpy(self.on.copy()),
            "length": torch.from_numpy(length),
            "slots": {name: torch.from_numpy(values) for name, values in live.items()},
            "states": [(s.env, s.slot, [torch.tensor(x) for x in s.leaves]) for kept in self.states for s in kept],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.on, self.length = state["on"].numpy().copy(), state["length"].numpy().copy()
        self.slots = {}
        taken = np.arange(self.length.max()) < self.length[:, None]
        for name, live in state["slots"].items():
            self.slots[name] = np.empty((*taken.shape, *live.shape[1:]), live.numpy().dtype)
            self.slots[name][taken] = live.numpy()
        self.states = [[] for _ in self.on]
        for env, slot, leaves in state["states"]:
            self.states[env].append(KeptState(env, slot, [leaf.numpy().copy() for leaf in leaves]))
