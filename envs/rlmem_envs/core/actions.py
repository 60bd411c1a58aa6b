"""Whether actions are in an action space, quickly; if not, which one is not, and why."""

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
        self.kinds = "fiu" if self.continuous else "iu"
        self.size = np.array(getattr(space, "n", getattr(space, "nvec", 0)), np.uint64)  # compared faster than a number
        self.number = int(np.prod(self.shape))

    def __call__(self, actions: Any, ignored: NDArray[np.bool_]) -> NDArray[Any]:
        """`actions` as an array: int64 for a Discrete or MultiDiscrete space that counts from 0, as is for a Box.

        Finite numbers outside a Box are let through: every continuous task clips them, as its reference does.

        ignored: [N] environments whose action does not matter

        Raises InvalidAction, naming the first environment whose action is wrong.
        """
        try:
            array = received = np.asarray(actions)
        except ValueError:  # rows of different lengths
            array = received = np.empty(len(actions), object)
            array[:] = actions
        if array.dtype is not INT64 or array.shape != self.shape:
            array = self._convert(array, actions)
        # seen as unsigned, a negative number is a huge one
        valid = np.isfinite(array) if self.continuous else array.view(np.uint64) < self.size
        if np.count_nonzero(valid) == self.number:
            return array
        wrong = ~valid.reshape(self.num_envs, -1).all(-1) & ~ignored
        if wrong.any():
            i = int(np.flatnonzero(wrong)[0])
            raise InvalidAction(f"environment {i}: action {received[i]} is not in {self.space}")
        return np.where(valid, array, 0)

    def _convert(self, array: NDArray[Any], actions: Any) -> NDArray[Any]:
        if array.dtype.kind not in self.kinds:
            i = next((i for i, action in enumerate(actions) if not self._fits(action)), 0) if array.ndim else 0
            wanted = "numbers" if self.continuous else "integers"
            action = repr(actions[i]) if array.size else "nothing"
            raise InvalidAction(f"environment {i}: action {action} does not fit {self.space}, which takes {wanted}")
        if array.shape != self.shape:
            lacking = array.ndim and len(array) < self.num_envs and array.shape[1:] == self.shape[1:]
            where = f"environment {len(array)} has no action" if lacking else "environment 0"
            raise InvalidAction(f"{where}: actions are of shape {array.shape}, expected {self.shape} for {self.space}")
        if self.continuous:
            return array if array.dtype.kind == "f" else array.astype(np.float64)
        return array.astype(np.int64, copy=False)

    def _fits(self, action: Any) -> bool:
        """Whether one action has the type and the shape of its space."""
        try:
            array = np.asarray(action)
        except ValueError:  # rows of different lengths
            return False
        return array.dtype.kind in self.kinds and array.shape == self.shape[1:]
