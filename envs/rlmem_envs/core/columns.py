"""Values of spaces, and features, as rows of numbers."""

from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray


class Columns:
    """How values of a space are written into the columns of an observation: as they are, or each of them one-hot.

    bounds: lowest and highest number of each column
    """

    def __init__(self, space: Space, one_hot: bool):
        self.one_hot = one_hot and not isinstance(space, Box)
        if isinstance(space, Box):
            self.bounds = space.low.ravel(), space.high.ravel()
        else:
            self.start = np.cumsum([0, *sizes(space)[:-1]])
            self.bounds = np.zeros(sum(sizes(space))), np.ones(sum(sizes(space)))
        self.width = len(self.bounds[0]) if self.one_hot or isinstance(space, Box) else len(sizes(space))

    def write(self, values: NDArray[Any], columns: NDArray[Any]) -> None:
        """Write `values` [N, ...] into zeros [N, width]."""
        values = values.reshape(len(values), -1)
        if self.one_hot:
            np.put_along_axis(columns, self.start + values, 1, axis=1)
        else:
            columns[:] = values


class Full:
    """The observations of a game's fully observed twin: what the game shows, and behind it the rest of its state.

    Discrete values become one-hot, and whole numbers of a Box their shares of the greatest, such as 1 for 255.

    seen: the space of what the game shows
    state: the space of its full state
    """

    def __init__(self, seen: Space, state: Box):
        self._columns = Columns(seen, one_hot=True)
        low, high = self._columns.bounds
        self._scale = high if isinstance(seen, Box) and np.dtype(seen.dtype).kind in "iu" else np.ones(len(high))
        low, high = np.append(low / self._scale, state.low), np.append(high / self._scale, state.high)
        self.space = Box(low.astype(np.float32), high.astype(np.float32), dtype=np.float32)

    def join(self, seen: NDArray[Any], state: NDArray[np.float32]) -> NDArray[np.float32]:
        """The observations [N, D] of the twin."""
        joined = np.zeros((len(seen), *self.space.shape), np.float32)
        shown = joined[:, : self._columns.width]
        self._columns.write(seen, shown)
        shown /= self._scale
        joined[:, self._columns.width :] = state
        return joined


def features(*parts: NDArray[Any]) -> NDArray[np.float32]:
    """Parts [N, ...] of a state in one row for each environment, [N, D]."""
    rows = [np.reshape(part, (len(part), -1)) for part in parts]
    return np.concatenate(rows, axis=1, dtype=np.float32, casting="unsafe")


def one_hot(values: NDArray[Any], size: int) -> NDArray[np.bool_]:
    """Values 0 .. size - 1 as [..., size]; any other value as zeros."""
    return np.asarray(values[..., None] == np.arange(size))


def sizes(space: Any) -> list[int]:
    """How many values each component of a Discrete or MultiDiscrete space has."""
    return [int(space.n)] if isinstance(space, Discrete) else [int(n) for n in space.nvec]
