"""Mazes as the HuntAndKill of mazelib makes them, many at once, and the ways through them.

A maze of h x w rooms is a grid of 2h + 1 rows and 2w + 1 columns. Rooms are at odd rows and columns, passages between
two of them; the rest is wall. Directions count as the actions do: left, right, up, down.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rlmem_envs.core.batched import Facts, Who
from rlmem_envs.core.draws import Draws

Ints = NDArray[np.intp]

FREE, WALL, START, GOAL, UNSEEN = range(5)
"""What a cell holds. Nothing is ever UNSEEN, but POPGym counts it among the symbols of its observations."""

LEFT, RIGHT, UP, DOWN, NONE = range(5)

_BITS = 1 << np.arange(4, dtype=np.uint8)
_OTHERS = ~_BITS[[RIGHT, LEFT, DOWN, UP]]
_TURNS = np.array([np.resize([d for d in range(4) if bits >> d & 1] or [NONE], 12) for bits in range(16)])
"""One of the directions whose bits are set, by a number below 12, which 1, 2, 3 and 4 divide: [16, 12]."""


def strides(width: int) -> Ints:
    """What a step in each direction, and then none, adds to an index into rows of `width` cells: [5]."""
    return np.array([-1, 1, -width, width, 0])


def draw_mazes(draws: Draws, who: Who, height: int, width: int, most_hunts: int | None = None) -> Facts:
    """Mazes of height x width rooms, entered and left on opposite outer sides.

    `maze` [n, 2 height + 1, 2 width + 1] is 1 where a wall is, also at both ends; `start` and `goal` [n, 2] are row and
    column.

    most_hunts: rooms that are drawn at most to walk on from, None for as many as the grid has cells, as in mazelib
    """
    chances = draws.uniform(who, 3)
    side = (4 * chances[:, 0]).astype(np.int64)  # north, south, west, east
    upright = (side < 2)[:, None]
    along = 2 * (chances[:, 1:3] * np.where(upright, width, height)).astype(np.int64) + 1
    far = 2 * np.where(side < 2, height, width)
    first = side % 2 * far
    across = np.stack([first, far - first], -1)
    ends = np.stack([np.where(upright, across, along), np.where(upright, along, across)], -1)
    site = _Site(draws, who, height, width, most_hunts)
    site.hunt_and_kill()
    return {"maze": site.grid, "start": ends[:, 0], "goal": ends[:, 1]}


class _Site:
    """Mazes of height x width rooms under construction, one for each of `who`.

    Rooms are numbered with a ring of no rooms around them, and all mazes are one after the other in flat arrays.
    """

    def __init__(self, draws: Draws, who: Who, height: int, width: int, most_hunts: int | None):
        self.draws, self.who, n = draws, who, len(who)
        outer, row_size = (height + 2) * (width + 2), 2 * width + 1
        row, column = np.divmod(np.arange(outer), width + 2)
        is_room = (row % (height + 1) > 0) & (column % (width + 1) > 0)
        self.rooms = np.flatnonzero(is_room)
        self.grid = np.full((n, 2 * height + 1, row_size), WALL, np.int8)
        self.cell = (2 * row - 1) * row_size + 2 * column - 1  # of a room, within its grid
        self.room_steps, self.grid_steps = strides(width + 2), strides(row_size)
        self.first_room, self.first_cell = np.arange(n) * outer, np.arange(n) * self.grid[0].size
        self.built = np.zeros((n, outer), bool)
        self.ways = np.zeros((n, outer), np.uint8)  # directions from a room to those not built yet, as bits
        self.ways[:, self.rooms] = is_room[self.rooms[:, None] + self.room_steps[:4]] @ _BITS
        self.hunts_left = np.full(n, most_hunts or self.grid[0].size, np.float64)

    def hunt_and_kill(self) -> None:
        """Walk at random through rooms that are not built yet; when stuck, hunt for a room to walk on from.

        Every turn builds a room in every maze that goes on.
        """
        chances = self.draws.uniform(self.who, len(self.rooms))
        room = self.rooms[(len(self.rooms) * chances[:, 0]).astype(np.intp)]
        self._build(room)
        for number in (12 * chances[:, 1:]).astype(np.intp).T:
            ways = self.ways.take(self.first_room + room)
            stuck = np.flatnonzero(ways == 0)
            if len(stuck):
                room[stuck] = self._hunt(stuck, room[stuck])
                ways[stuck] = self.ways[stuck, room[stuck]]
            turn = _TURNS[ways, number]
            self.grid.put(self.first_cell + self.cell[room] + self.grid_steps[turn], FREE)
            room = room + self.room_steps[turn]
            self._build(room)

    def _build(self, room: Ints) -> None:
        at = self.first_room + room
        self.grid.put(self.first_cell + self.cell[room], FREE)
        self.built.put(at, True)
        around = at[:, None] + self.room_steps[:4]
        self.ways.put(around, self.ways.take(around) & _OTHERS)

    def _hunt(self, mazes: Ints, room: Ints) -> Ints:
        """Draw rooms until one is built and has a neighbour that is not; the old `room` if the draws run out.

        How many draws it takes is geometric.
        """
        found = self.built[mazes] & (self.ways[mazes] != 0)
        number = found.sum(1)
        chances = self.draws.uniform(self.who[mazes], 2)
        failures = np.log1p(-chances[:, 0]) // np.log1p(-number / len(self.rooms))
        self.hunts_left[mazes] -= failures + 1
        chosen = (found.cumsum(1) > (number * chances[:, 1]).astype(np.intp)[:, None]).argmax(1)
        return np.where(self.hunts_left[mazes] >= 0, chosen, room)


def flood(cells: NDArray[np.int8], source: Ints, width: int) -> NDArray[np.int64]:
    """Steps from `source` [n] to every cell [n, cells] of mazes in rows of `width`, walled all around; -1: no way."""
    distance = np.full(cells.size, -1)
    passable = (cells != WALL).ravel()
    front, around = np.arange(len(cells)) * cells.shape[1] + source, strides(width)[:4]
    steps = 0
    while len(front):
        distance[front] = steps
        near = (front[:, None] + around).ravel()
        front = np.unique(near[passable[near] & (distance[near] < 0)])
        steps += 1
    return distance.reshape(cells.shape)


def tour(cells: NDArray[np.int8], source: Ints, width: int) -> dict[str, NDArray[np.int64]]:
    """The shortest walk from `source` [n] through all cells of mazes without loops, as in `flood`.

    It is depth first and leaves the way to the deepest cell for last, from where it need not come back. For each cell,
    [n, cells]: `enter`, its place in the order of first visits, -1 without a way; `leave`, the number of cells visited
    when it is left for good; `back`, the cell before it.
    """
    n, size = cells.shape
    depth = flood(cells, source, width).ravel()
    first, around = np.arange(n) * size, strides(width)[:4]
    is_last = np.zeros(n * size, bool)
    at = depth.reshape(n, size).argmax(1) + first
    for _ in range(depth.max()):
        is_last[at] = True
        near = at[:, None] + around
        at = np.where(depth[at] > 0, near[np.arange(n), (depth[near] == depth[at][:, None] - 1).argmax(1)], at)
    enter, leave, back = np.full(n * size, -1), np.full(n * size, -1), np.zeros(n * size, np.int64)
    at = source + first
    visited, enter[at], back[at] = np.ones(n, np.int64), 0, at
    while (leave[source + first] < 0).any():
        near = at[:, None] + around
        choice = ((depth[near] >= 0) & (enter[near] < 0)) * (2 - is_last[near])
        ahead = near[np.arange(n), choice.argmax(1)]
        is_new = choice.any(1)
        done, new, came_from = at[~is_new], ahead[is_new], at[is_new]
        leave[done] = visited[~is_new]
        enter[new], back[new] = visited[is_new], came_from
        visited += is_new
        at = np.where(is_new, ahead, back[at])
    inside = back - np.repeat(first, size)
    return {"enter": enter.reshape(n, size), "leave": leave.reshape(n, size), "back": inside.reshape(n, size)}
