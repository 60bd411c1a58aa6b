"""Whether actions are in an action space, quickly; if not, which one is not, and why."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import Space, spaces
from gymnasium.error import InvalidAction
from numpy.typing import NDArray

INT64 = np.dtype(np.int64)


class ActionCheck:
    """What actions [N, ...] of N environments must be: made once, since it is used at every step."""

    def __init__(self, space: Space, num_envs: int):
        self.space, self.num_envs = space, num_envs
        self.shape = (num_envs, *(space.shape or ()))
        self.continuous = isinstance(space, spaces.Box)
        self.size = np.array(getattr(space, "n", getattr(space, "nvec", 0)), np.uint64)  # compared faster than a number
        self.number = int(np.prod(self.shape))

    def __call__(self, actions: Any, ignored: NDArray[np.bool_]) -> NDArray[Any]:
        """`actions` as an array: int64 for a Discrete or MultiDiscrete space that counts from 0, as is for a Box.

        Finite numbers outside a Box are let through: every continuous task clips them, as its reference does.

        ignored: [N] environments whose action does not matter

        Raises InvalidAction, naming the first environment whose action is wrong.
        """
        array = np.asarray(actions)
        if array.dtype is not INT64 or array.shape != self.shape:
            array = self._convert(array)
        # seen as unsigned, a negative number is a huge one
        valid = np.isfinite(array) if self.continuous else array.view(np.uint64) < self.size
        if np.count_nonzero(valid) == self.number:
            return array
        wrong = ~valid.reshape(self.num_envs, -1).all(-1) & ~ignored
        if wrong.any():
            i = int(np.flatnonzero(wrong)[0])
            raise InvalidAction(f"environment {i}: action {array[i]} is not in {self.space}")
        return np.where(valid, array, 0)

    def _convert(self, array: NDArray[Any]) -> NDArray[Any]:
        if array.dtype.kind not in ("fiu" if self.continuous else "iu"):
            kind = "numbers" if self.continuous else "integers"
            raise InvalidAction(f"environment 0: the action is of dtype {array.dtype}, but {self.space} takes {kind}")
        if array.shape != self.shape:
            lacking = array.ndim and len(array) < self.num_envs and array.shape[1:] == self.shape[1:]
            where = f"environment {len(array)} has no action" if lacking else "environment 0"
            raise InvalidAction(f"{where}: actions are of shape {array.shape}, expected {self.shape} for {self.space}")
        return array if self.continuous else array.astype(np.int64, copy=False)
