"""Where the slots of drawn pieces go in rows."""

import numpy as np


class Placement:
    """Where the slots of pieces go in rows [R, T]: one after another, padded on the right, or on the left if `right`.

    row: [P], the row of each piece, ascending from 0 without gaps
    shown: [P], slots of each piece, S in all
    right: rows end together, with the padding on the left

    piece: [S], the piece that each slot is of
    offset: [S], the number of each slot in its piece
    rows, width: R and T
    pad_fraction: the share of padding
    """

    def __init__(self, row: np.ndarray, shown: np.ndarray, right: bool = False):
        ends = np.cumsum(shown)
        self.piece = np.repeat(np.arange(len(row)), shown)
        self.offset = np.arange(ends[-1]) - (ends - shown)[self.piece]
        self.rows = int(row[-1]) + 1
        in_row = np.bincount(row, shown, self.rows).astype(np.int64)
        self.width = int(in_row.max())
        self.pad_fraction = 1 - float(ends[-1]) / (self.rows * self.width)
        shift = np.arange(self.rows) * self.width - (np.cumsum(in_row) - in_row)
        if right:
            shift += self.width - in_row
        self.target = np.arange(ends[-1]) + shift[row[self.piece]]

    def place(self, values: np.ndarray, padding: int = 0) -> np.ndarray:
        """[S, ...] to [R, T, ...]."""
        if self.pad_fraction == 0:
            return values.reshape(self.rows, self.width, *values.shape[1:])
        placed = np.full((self.rows * self.width, *values.shape[1:]), padding, values.dtype)
        placed[self.target] = values
        return placed.reshape(self.rows, self.width, *values.shape[1:])
