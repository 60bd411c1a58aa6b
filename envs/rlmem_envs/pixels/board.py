"""The board of the pixel games: what may stand on it, what that looks like, and the ways across it.

A board is seven rows of eleven cells with a margin of two cells around, flattened to 165 codes. Cells are counted in
that margin's coordinates; positions are (row, column) without it.
"""

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROWS, COLUMNS, SIGHT = 7, 11, 2
WIDTH = COLUMNS + 2 * SIGHT
CELLS = (ROWS + 2 * SIGHT) * WIDTH

OUTSIDE, BLANK, WALL, PLAYER, APPLE, KEY, INDICATOR, DOOR, OPEN_DOOR, OBJECT = range(10)
"""Codes. There are nine objects, OBJECT + 3 symbol + colour, and nine signs like them."""
SIGN = OBJECT + 9
SYMBOLS = np.frombuffer(b"bce", np.uint8)
HUES = "rgb"
"""Letters of the colours that objects have."""

CHARACTERS = np.frombuffer(b"  #+akidd" + 2 * b"bbbccceee", np.uint8)
TEXT = "  #+akidd" + 3 * HUES + 3 * HUES.upper()
SOLID = np.isin(np.arange(SIGN + 9), [OUTSIDE, WALL, INDICATOR, DOOR, *range(SIGN, SIGN + 9)])

_THOUSANDTHS = {
    OUTSIDE: (800, 800, 800),
    BLANK: (800, 800, 800),
    WALL: (100, 100, 100),
    PLAYER: (898, 584, 430),
    APPLE: (550, 700, 0),
    KEY: (627, 321, 176),
    INDICATOR: (1000, 1000, 1000),
    DOOR: (529, 808, 922),
    OPEN_DOOR: (529, 808, 922),
}
_PURE = np.tile(1000 * np.eye(3, dtype=int), (6, 1))
COLOURS = (np.array([*_THOUSANDTHS.values(), *_PURE]) * 255 // 1000).astype(np.uint8)
"""[code, 3]: red, green and blue."""

NORTH, SOUTH, WEST, EAST = range(4)
MOVES = np.array([-WIDTH, WIDTH, -1, 1])
WINDOW = (np.arange(-SIGHT, SIGHT + 1)[:, None] * WIDTH + np.arange(-SIGHT, SIGHT + 1)).ravel()
"""What a player sees: 25 cells around its own, row by row."""
CENTRE = len(WINDOW) // 2


def cell(position: NDArray[np.integer]) -> NDArray[np.int64]:
    """Cells [...] of positions [..., 2]."""
    return (position[..., 0].astype(np.int64) + SIGHT) * WIDTH + position[..., 1] + SIGHT


def inside(position: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Whether positions [..., 2] are on the board."""
    return np.asarray(((position >= 0) & (position < (ROWS, COLUMNS))).all(-1))


def position(cells: NDArray[np.integer]) -> NDArray[np.int64]:
    """Positions [..., 2] of cells [...]."""
    row, column = np.divmod(cells.astype(np.int64), WIDTH)
    return np.stack([row - SIGHT, column - SIGHT], -1)


def board(*rows: str) -> NDArray[np.uint8]:
    """An empty board [165] with walls where `rows` have a #."""
    codes = np.full((ROWS + 2 * SIGHT, WIDTH), OUTSIDE, np.uint8)
    codes[SIGHT:-SIGHT, SIGHT:-SIGHT] = np.where(_letters(rows) == "#", WALL, BLANK)
    return codes.ravel()


def places(letter: str, *rows: str) -> NDArray[np.int64]:
    """Positions [n, 2] of a letter in `rows`, row by row."""
    return np.argwhere(_letters(rows) == letter)


def interior(codes: NDArray[Any]) -> NDArray[Any]:
    """Boards [..., 165] without their margin: [..., 7, 11]."""
    return codes.reshape(*codes.shape[:-1], -1, WIDTH)[..., SIGHT:-SIGHT, SIGHT:-SIGHT]


def routes(codes: NDArray[np.uint8]) -> NDArray[np.int64]:
    """[goal, cell]: the first action of a shortest way from a cell to a goal, north where there is none.

    A solid goal can be entered, other solid cells cannot.
    """
    return _routes(codes.tobytes())


@cache
def _routes(codes: bytes) -> NDArray[np.int64]:
    solid = SOLID[np.frombuffer(codes, np.uint8)]
    first = np.full((CELLS, CELLS), NORTH)
    for goal in np.flatnonzero(np.frombuffer(codes, np.uint8) != OUTSIDE).tolist():
        reached, frontier = {goal}, [goal]
        while frontier:
            ahead = []
            for to in frontier:
                for action, move in enumerate(MOVES.tolist()):
                    origin = to - move
                    if not solid[origin] and origin not in reached:
                        first[goal, origin] = action
                        reached.add(origin)
                        ahead.append(origin)
            frontier = ahead
    return first


def _letters(rows: tuple[str, ...]) -> NDArray[np.str_]:
    return np.array([list(row) for row in rows])
