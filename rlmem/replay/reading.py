"""Reading slots and states of a replay's episodes, whether they have ended or not."""

from collections.abc import Callable

import numpy as np

from rlmem.replay.store import Ring, Running


class Reader:
    """What complete and running episodes hold.

    A complete episode has the number of its row in `table`. Running ones follow, in the order of `Running.drawable`.

    table: a row per complete episode
    slots: of the complete episodes
    states: that acting had before some of these slots
    running: the running episodes
    """

    def __init__(self, table: Ring, slots: Ring, states: Ring, running: Running):
        self.table, self.slots, self.states, self.running = table, slots, states, running

    def runs(self, number: np.ndarray) -> np.ndarray:
        """Whether episodes are running."""
        return number >= self.table.tail

    def env(self, number: np.ndarray) -> np.ndarray:
        """The environments of running episodes."""
        return self.running.drawable[number - self.table.tail]

    def fields(self, number: np.ndarray, slot: np.ndarray) -> Callable[..., np.ndarray]:
        """`take(name, shift=0)`: a field [S, ...] of the slots `slot` + shift [S] of the episodes `number` [S].

        Before an episode's first slot, what it returns is arbitrary.
        """
        runs = self.runs(number)
        position = self.table.take("begin", number[~runs]) + slot[~runs] if not runs.all() else None
        env, at = self.env(number[runs]), slot[runs]

        def take(name: str, shift: int = 0) -> np.ndarray:
            parts = []
            if position is not None:
                parts.append((~runs, self.slots.take(name, position + shift)))
            if len(env):
                parts.append((runs, self.running.slots[name][env, at + shift]))
            return merge(parts)

        return take

    def states_before(self, number: np.ndarray, slot: np.ndarray) -> list[np.ndarray]:
        """The states that acting had before the slots `slot` [R] of the episodes `number` [R].

        Returns a leaf [R, ...] each. Raises ValueError where acting kept none.
        """
        runs, parts = self.runs(number), []
        if not runs.all():
            index = self.slots.take("state", self.table.take("begin", number[~runs]) + slot[~runs])
            missing(slot[~runs][index < 0])
            parts.append((~runs, [self.states.take(str(i), index) for i in range(len(self.states.arrays))]))
        if runs.any():
            at = list(zip(self.env(number[runs]).tolist(), slot[runs].tolist(), strict=True))
            missing([t for env, t in at if t not in self.running.states[env]])
            kept = zip(*(self.running.states[env][t] for env, t in at), strict=True)
            parts.append((runs, [np.stack(leaf) for leaf in kept]))
        return [merge([(where, leaves[i]) for where, leaves in parts]) for i in range(len(parts[0][1]))]


def merge(parts: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """Values [S, ...], from one or more parts: where [S] each belongs, and its values in order."""
    if len(parts) == 1:
        return parts[0][1]
    where, values = parts[0]
    merged = np.empty((len(where), *values.shape[1:]), values.dtype)
    for where, values in parts:
        merged[where] = values
    return merged


def missing(slots: np.ndarray | list[int]) -> None:
    """Raise ValueError if there are slots before which no state was kept."""
    if len(slots):
        raise ValueError(f"acting kept no state before slot {int(slots[0])} of an episode")
