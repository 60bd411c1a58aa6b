"""The strings of a regular language one after another, labelled, for supervised learning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from rlmem_envs.temporal_order import Minibatch

if TYPE_CHECKING:
    from rlmem_envs.languages.regular import RegularLanguage


class WordStream:
    """Rows of strings without end, cut into windows: a game that its oracle plays, seen from outside.

    A label is the class that the oracle names, and due where the game asks for an answer. Row i with seed s is the same
    for every number of rows.

    env: the game; its number of environments is that of the rows
    window: slots of a row in a minibatch
    """

    def __init__(self, env: RegularLanguage, window: int, seed: int):
        self._env, self.window = env, window
        env.reset(seed=seed)

    def next(self, window: int | None = None) -> Minibatch:
        """The next window of every row; window: its slots, if not the usual number."""
        env, shape = self._env, (window or self.window, self._env.num_envs)
        slots = Minibatch(*(np.zeros(shape, kind) for kind in (np.int64, bool, np.int64, bool)))
        for t in range(len(slots.symbols)):
            label = env.oracle()
            for array, now in zip(slots, (env._observe(), env.t == 0, label, env.asked()), strict=True):
                array[t] = now
            env.step(label)
            if env.over.any():  # no slot for the observation after the last answer
                env.reset(options={"reset_mask": env.over})
        return Minibatch(*(np.ascontiguousarray(array.T) for array in slots))  # type: ignore[arg-type]

    def state(self) -> dict[str, Any]:
        """Everything needed to go on exactly from here."""
        return self._env.state()

    def restore(self, state: dict[str, Any]) -> None:
        """Bring a stream of as many rows of the same language to a saved `state`."""
        self._env.restore(state)
