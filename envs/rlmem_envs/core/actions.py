"""Whether actions are in an action space, quickly; if not, which one is not, and why."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import Space, spaces
from gymnasium.error import InvalidAction
from numpy.typing import NDArray


def check_actions(actions: Any, space: Space, num_envs: int, ignored: NDArray[np.bool_]) -> NDArray[Any]:
    """`actions` [N, ...] as an array: int64 for a Discrete or MultiDiscrete space that counts from 0, as is for a Box.

    Finite numbers outside a Box are let through: every continuous task clips them, as its reference does.

    ignored: [N] environments whose action does not matter

    Raises InvalidAction, naming the first environment whose action is wrong.
    """
    array = np.asarray(actions)
    continuous = isinstance(space, spaces.Box)
    if array.dtype.kind not in ("fiu" if continuous else "iu"):
        kind = "numbers" if continuous else "integers"
        raise InvalidAction(f"environment 0: the action is of dtype {array.dtype}, but {space} takes {kind}")
    if array.shape != (expected := (num_envs, *(space.shape or ()))):
        lacking = array.ndim and len(array) < num_envs and array.shape[1:] == expected[1:]
        where = f"environment {len(array)} has no action" if lacking else "environment 0"
        raise InvalidAction(f"{where}: actions are of shape {array.shape}, expected {expected} for {space}")
    if continuous:
        valid = np.isfinite(array)
    else:
        array = array.astype(np.int64, copy=False)
        size = space.n if isinstance(space, spaces.Discrete) else space.nvec  # type: ignore[attr-defined]
        valid = array.view(np.uint64) < size  # a negative number is a huge one
    if valid.all():
        return array
    wrong = ~valid.reshape(num_envs, -1).all(-1) & ~ignored
    if wrong.any():
        i = int(np.flatnonzero(wrong)[0])
        raise InvalidAction(f"environment {i}: action {array[i]} is not in {space}")
    return np.where(valid, array, 0)
