"""Ways through mazes, many at once. Directions count as the actions do: left, right, up, down."""

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.intp]

FREE, WALL, START, GOAL, UNSEEN = range(5)
"""What a cell holds. Nothing is ever UNSEEN, but POPGym counts it among the symbols of its observations."""

LEFT, RIGHT, UP, DOWN, NONE = range(5)


def strides(width: int) -> Ints:
    """What a step in each direction, and then none, adds to an index into rows of `width` cells: [5]."""
    return np.array([-1, 1, -width, width, 0])


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
