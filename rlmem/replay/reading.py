"""Reading slots and states of a replay's episodes, whether they have ended or not."""

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

    def is_running(self, number: np.ndarray) -> np.ndarray:
        """Whether each of these episodes is running."""
        return number >= self.table.tail

    def env(self, number: np.ndarray) -> np.ndarray:
        """The environments of running episodes."""
        return self.running.drawable[number - self.table.tail]

    def take(self, name: str, number: np.ndarray, slot: np.ndarray) -> np.ndarray:
        """A field [S, ...] of the slots `slot` [S] of the episodes `number` [S].

        Before an episode's first slot, what it returns is arbitrary.
        """
        running = self.is_running(number)
        if not running.any():
            return self.slots.take(name, self.table.take("begin", number) + slot)
        own, ended = self.running.slots[name], ~running
        values = np.empty((len(slot), *own.shape[2:]), own.dtype)
        values[running] = own[self.env(number[running]), slot[running]]
        if ended.any():
            values[ended] = self.slots.take(name, self.table.take("begin", number[ended]) + slot[ended])
        return values

    def states_before(self, number: np.ndarray, slot: np.ndarray) -> list[np.ndarray]:
        """The states that acting had before the slots `slot` [R] of the episodes `number` [R].

        Returns each leaf as [R, ...]. Raises ValueError where acting kept no state.
        """
        if not (running := self.is_running(number)).any():
            index = self.slots.take("state", self.table.take("begin", number) + slot)
            if (index < 0).any():
                raise ValueError(no_state(slot[index < 0][0]))
            return [self.states.take(str(i), index) for i in range(len(self.states.arrays))]
        rows = [  # one by one: few rows are of running episodes
            self._running_state(self.env(n).item(), t.item())
            if runs
            else [leaf[0] for leaf in self.states_before(n, t)]
            for n, t, runs in zip(number[:, None], slot[:, None], running, strict=True)
        ]
        return [np.stack(leaf) for leaf in zip(*rows, strict=True)]

    def _running_state(self, env: int, slot: int) -> list[np.ndarray]:
        """The leaves of the state that acting had before a slot of the episode that runs in an environment."""
        kept = self.running.states[env]
        if slot not in kept:
            raise ValueError(no_state(slot))
        return kept[slot]


def no_state(slot: int) -> str:
    return f"acting kept no state before slot {slot} of an episode"
