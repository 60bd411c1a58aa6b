"""The episodes of an open-loop task one after another, with their answers, for supervised learning."""

from typing import Any

import numpy as np

from rlmem_envs.core.open_loop import OpenLoopEnv
from rlmem_envs.temporal_order import Minibatch


class ScriptStream:
    """Rows of whole episodes without end, cut into windows.

    A label is the answer of a slot, and due where one is asked for. Episodes have no slot for the observation after
    their last answer. As all are equally long, row i first waits for a number of empty slots that is drawn for it, so
    that the windows of an update hold every part of an episode. Row i with seed s is the same for every number of rows,
    and its stream the same for every window.

    env: the task; its number of environments is that of the rows
    window: slots of a row in a minibatch
    """

    def __init__(self, env: OpenLoopEnv, window: int, seed: int):
        self._env, self.window = env, window
        env.reset(seed=seed)
        self._slot = -env.draws.integers(None, len(env.tape) - 1)  # of the present episode; negative while waiting

    def next(self, window: int | None = None) -> Minibatch:
        """The next window of every row; window: its slots, if not the usual number."""
        env, steps = self._env, len(self._env.tape) - 1
        shape, columns = (env.num_envs, window or self.window), np.arange(window or self.window)
        symbols = np.zeros((*shape, *env.tape.shape[2:]), np.int64)
        label, start, mask = np.zeros(shape, np.int64), np.zeros(shape, bool), np.zeros(shape, bool)
        filled = np.zeros(env.num_envs, np.int64)
        while (filled < shape[1]).any():  # write on in every row, to the end of the window or of the episode
            slot = self._slot[:, None] + columns - filled[:, None]
            row, column = np.nonzero((columns >= filled[:, None]) & (slot >= 0) & (slot < steps))
            at = slot[row, column]
            answers = env.answers[at, row]
            symbols[row, column] = env.tape[at, row]
            label[row, column], mask[row, column] = np.maximum(answers, 0), answers >= 0
            start[row, column] = at == 0
            written = np.minimum(shape[1] - filled, steps - self._slot)
            filled += written
            self._slot += written
            ended = self._slot == steps
            if ended.any():
                env.reset(options={"reset_mask": ended})
                self._slot[ended] = 0
        return Minibatch(symbols, start, label, mask)

    def state(self) -> dict[str, Any]:
        """Everything needed to go on exactly from here."""
        return self._env.state() | {"slot": self._slot.copy()}

    def restore(self, state: dict[str, Any]) -> None:
        """Bring a stream of as many rows of the same task to a saved `state`."""
        self._env.restore({name: value for name, value in state.items() if name != "slot"})
        self._slot = np.array(state["slot"])
