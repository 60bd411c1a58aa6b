"""Reading slots and states of a replay's episodes, whether they have ended or not."""

from collections.abc import Callable
from functools import partial
from operator import getitem

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
            return either(
                runs,
                lambda: self.slots.take(name, position + shift),
                lambda: self.running.slots[name][env, at + shift],
            )

        return take

    def states_before(self, number: np.ndarray, slot: np.ndarray) -> list[np.ndarray]:
        """The states that acting had before the slots `slot` [R] of the episodes `number` [R].

        Returns a leaf [R, ...] each. Raises ValueError where acting kept none.
        """
        runs = self.runs(number)
        index, kept = np.zeros(0, int), []
        if not runs.all():
            index = self.slots.take("state", self.table.take("begin", number[~runs]) + slot[~runs])
            missing(slot[~runs][index < 0])
        if runs.any():
            at = list(zip(self.env(number[runs]).tolist(), slot[runs].tolist(), strict=True))
            missing([t for env, t in at if t not in self.running.states[env]])
            kept = [np.stack(leaf) for leaf in zip(*(self.running.states[env][t] for env, t in at), strict=True)]
        leaves = range(len(kept) or len(self.states.arrays))
        return [either(runs, partial(self.states.take, str(i), index), partial(getitem, kept, i)) for i in leaves]


def either(runs: np.ndarray, ended: Callable[[], np.ndarray], running: Callable[[], np.ndarray]) -> np.ndarray:
    """Values [S, ...]: those of running episodes where `runs` [S], those of complete ones elsewhere.

    runs: [S]
    ended, running: give the values of either; not called if there are none
    """
    if not runs.any():
        return ended()
    if runs.all():
        return running()
    some, others = running(), ended()
    values = np.empty((len(runs), *some.shape[1:]), some.dtype)
    values[runs], values[~runs] = some, others
    return values


def missing(slots: np.ndarray | list[int]) -> None:
    """Raise ValueError if there are slots before which no state was kept."""
    if len(slots):
        raise ValueError(f"acting kept no state before slot {int(slots[0])} of an episode")
