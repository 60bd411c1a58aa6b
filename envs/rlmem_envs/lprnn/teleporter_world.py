"""The world of the teleporter T-maze: a room with a teleporter, a cell called limbo, and six mazes below them.

The world is a torus of 77 x 191 cells. Cells are numbered row by row, with a margin on either side that repeats the
columns of the other: `cell(row, column)`. The board shows the 7 x 11 cells `centre + VIEW`.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

ROWS, COLUMNS = 77, 191
MARGIN = 8
STRIDE = COLUMNS + 2 * MARGIN
VIEW = (np.arange(-3, 4)[:, None] * STRIDE + np.arange(-5, 6)).ravel()
MOVES = np.array([-STRIDE, STRIDE, -1, 1, 0])
"""What up, down, left, right and stay add to a cell."""

WALLS = ((84, 104), (79, 109), (72, 116), (59, 129), (39, 151), (3, 187))
"""Columns of the outer walls of the mazes."""
CORRIDOR, MAZE, LEG = 13, 11, 5
"""Upper row of the first maze's corridor, rows from one maze to the next, rows from there down to the goals."""

ROOM = ("#####", "#ttt#", "#   #", "#   #", "#####")
STAR = ("##   #   ##", "## # ##", "###", "##### #####", "###", "## # ##", "##   #   ##")
"""What surrounds limbo, the hole in its middle."""


def cell(row: int, column: int) -> int:
    """The number of a cell."""
    return row * STRIDE + MARGIN + column


ENTRANCE = 94
"""The column in which players start and enter the corridor."""
START, PORTAL, LIMBO = cell(6, ENTRANCE), cell(4, ENTRANCE), cell(4, 140)


def draw_world() -> NDArray[np.uint8]:
    """The world [77, 191]: # wall, * ground, some of which looks like wall, t teleporter, l and r goals."""
    chars = np.full((ROWS, COLUMNS), ord(" "), np.uint8)
    chars[10:] = ord("*")
    chars[3:8, 92:97] = [list(line.encode()) for line in ROOM]
    chars[1:8, 135:146] = [list(line.center(11).encode()) for line in STAR]
    for difficulty, (left, right) in enumerate(WALLS):
        top = CORRIDOR - 1 + MAZE * difficulty
        maze = chars[top : top + 8, left : right + 1]
        maze[:] = ord("#")
        maze[1:3, 1:-1] = ord(" ")
        maze[3:6, [1, 2, 3, -4, -3, -2]] = ord(" ")
        maze[6, 1:4], maze[6, -4:-1] = ord("l"), ord("r")
        maze[4:, 5:-5] = ord("*")
    return chars


def rows_of(world: NDArray[Any], first: int, count: int) -> NDArray[Any]:
    """`count` rows of `world` [..., 77, 191] from row `first` on, with their margins: [..., count, STRIDE]."""
    rows, columns = np.arange(first, first + count) % ROWS, np.arange(-MARGIN, COLUMNS + MARGIN) % COLUMNS
    return world[..., rows[:, None], columns]


WORLD = rows_of(draw_world(), 0, ROWS + 4).ravel()
"""The character of each cell; the first rows come again below the last."""
IS_WALL, IS_TELEPORTER = np.equal(WORLD, ord("#")), np.equal(WORLD, ord("t"))
GOAL = np.equal(WORLD, ord("l")).astype(np.int8) - np.equal(WORLD, ord("r"))
"""1 on the cells of left goals, -1 on those of right ones."""

BLANK, WALL, PAD, CUE, PLAYER = range(5)
"""What a cell of the board shows; later ones hide earlier ones. Pads are the teleporter and goals."""
SHOWS = np.zeros(256, np.uint8)
"""What each character shows. Ground is blank here."""
SHOWS[list(b"#tlr")] = WALL, PAD, PAD, PAD


def _overlays() -> NDArray[np.uint8]:
    boards = np.zeros((5, 3, 7, 11), np.uint8)
    boards[:, 0, 4:, :2] = boards[:, 1, 4:, -2:] = CUE
    for aside in range(-2, 3):
        boards[aside, :, 3, 5 + aside] = PLAYER
    return boards.reshape(15, len(VIEW))


OVERLAYS = _overlays()
"""Player and cue on the board, [5 * 3, 77]: player 0, 1, 2, -2, -1 columns off the centre; cue left, right, none."""
