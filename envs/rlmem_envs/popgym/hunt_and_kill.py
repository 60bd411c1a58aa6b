"""Mazes as the HuntAndKill of mazelib makes them, many at once.

A maze of h x w rooms is a grid of 2h + 1 rows and 2w + 1 columns. Rooms are at odd rows and columns, passages between
two of them; the rest is wall.
"""

import numpy as np

from rlmem_envs.core.batched import Facts, Who
from rlmem_envs.core.draws import Draws
from rlmem_envs.popgym import maze
from rlmem_envs.popgym.maze import DOWN, LEFT, NONE, RIGHT, UP, Ints

AHEAD, TOTAL, BATCH = 64, 65_536, 1024
"""Most mazes in stock for one environment and for all, and how many are made at a time.

Few cost nearly as much as many, so the others are made for later.
"""

_BITS = 1 << np.arange(4, dtype=np.uint8)
_OTHERS = ~_BITS[[RIGHT, LEFT, DOWN, UP]]
_TURNS = np.array([np.resize([d for d in range(4) if bits >> d & 1] or [NONE], 12) for bits in range(16)])
"""One of the directions whose bits are set, by a number below 12, which 1, 2, 3 and 4 divide: [16, 12]."""


class Stock:
    """The mazes of the coming episodes of `num_envs` environments, made many at a time.

    They depend on stream and episode only, so making them early changes nothing.
    """

    def __init__(self, num_envs: int, height: int, width: int):
        self.rooms = height, width
        self.ahead = max(1, min(AHEAD, TOTAL // num_envs))
        size = num_envs, self.ahead
        self.episode, self.stream = np.full(size, -1), np.zeros(size, np.uint64)
        self.shelf: Facts = {name: np.zeros((*size, 2), np.int64) for name in ("start", "goal")}
        self.shelf["maze"] = np.zeros((*size, 2 * height + 1, 2 * width + 1), np.int8)

    def take(self, draws: Draws, who: Who) -> Facts:
        """What `draw_mazes` gives for the present episodes of environments `who`."""
        slot = draws.episode[who] % self.ahead
        is_there = (self.episode[who, slot] == draws.episode[who]) & (self.stream[who, slot] == draws.stream[who])
        if not is_there.all():
            self._fill(draws, who[~is_there])
        return {name: values[who, slot] for name, values in self.shelf.items()}

    def _fill(self, draws: Draws, who: Who) -> None:
        """Make the mazes of the present and of coming episodes of environments `who`."""
        ahead = max(1, min(self.ahead, BATCH // len(who)))
        rows = np.repeat(who, ahead)
        episode, stream = draws.episode[rows] + np.tile(np.arange(ahead), len(who)), draws.stream[rows]
        slot = episode % self.ahead
        coming = Draws(len(rows))
        coming.restore({"stream": stream, "episode": episode, "count": np.zeros(len(rows), np.uint64)})
        for name, values in draw_mazes(coming, np.arange(len(rows)), *self.rooms).items():
            self.shelf[name][rows, slot] = values
        self.episode[rows, slot], self.stream[rows, slot] = episode, stream


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
        self.grid = np.full((n, 2 * height + 1, row_size), maze.WALL, np.int8)
        self.cell = (2 * row - 1) * row_size + 2 * column - 1  # of a room, within its grid
        self.room_steps, self.grid_steps = maze.strides(width + 2), maze.strides(row_size)
        self.first_room, self.first_cell = np.arange(n) * outer, np.arange(n) * self.grid[0].size
        self.built = np.zeros((n, outer), bool)
        self.ways = np.zeros((n, outer), np.uint8)  # directions from a room to those not built yet, as bits
        self.ways[:, self.rooms] = is_room[self.rooms[:, None] + self.room_steps[:4]] @ _BITS
        self.hunts_left = np.full(n, self.grid[0].size if most_hunts is None else most_hunts, np.float64)

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
            self.grid.put(self.first_cell + self.cell[room] + self.grid_steps[turn], maze.FREE)
            room = room + self.room_steps[turn]
            self._build(room)

    def _build(self, room: Ints) -> None:
        at = self.first_room + room
        self.grid.put(self.first_cell + self.cell[room], maze.FREE)
        self.built.put(at, True)
        around = at[:, None] + self.room_steps[:4]
        self.ways.put(around, self.ways.take(around) & _OTHERS)

    def _hunt(self, mazes: Ints, room: Ints) -> Ints:
        """Draw rooms until one is built and has a neighbour that is not; the old `room` if the draws run out.

        Rooms of no use are not drawn one by one: how many come before one of use is geometric.
        """
        cells = self.built[mazes] & (self.ways[mazes] != 0)
        number = cells.sum(1)
        chances = self.draws.uniform(self.who[mazes], 2)
        failures = np.log1p(-chances[:, 0]) // np.log1p(-number / len(self.rooms))
        self.hunts_left[mazes] -= failures + 1
        chosen = (cells.cumsum(1) > (number * chances[:, 1]).astype(np.intp)[:, None]).argmax(1)
        return np.where(self.hunts_left[mazes] >= 0, chosen, room)
