"""How players go for things: with everything in view, along tours of apples; with a window only, to what is nearest."""

import numpy as np
from numpy.typing import NDArray

from rlmem_envs.pixels import board as on

BEAM, DEPTH = 8, 8
WORTH = np.append(0.97 ** np.arange(400), 0.0)
"""Of an apple after so many steps, relative to now."""

_ROW, _COLUMN = np.divmod(np.arange(len(on.WINDOW)), 2 * on.SIGHT + 1) - np.array(on.SIGHT)
_BY_DISTANCE = np.argsort(np.abs(_ROW) + np.abs(_COLUMN), kind="stable")[1:]  # what a player stands on, it hides
_AHEAD = on.CENTRE + np.array([-5, 5, -1, 1]) * np.array([[1], [2]])


def next_apple(
    steps: NDArray[np.int64], between: NDArray[np.int64], wait: NDArray[np.int64], back: int, left: NDArray[np.int64]
) -> NDArray[np.intp]:
    """The first of the apples [n] on the best tour that a beam search finds.

    A tour of `DEPTH` apples is worth the sum of WORTH[steps until it is eaten] over those that are eaten in time.
    The search keeps the `BEAM` best tours of each length.

    steps: [n, K] from the player to each apple
    between: [n, K, K] from apple to apple
    wait: [n, K] steps until an apple can be eaten at the earliest
    back: steps until an apple that is eaten can be eaten again
    left: [n] steps until the apples are gone
    """
    n, K = steps.shape
    env = np.arange(n)[:, None]
    left = left[:, None, None]
    now = np.maximum(steps, wait)
    value = WORTH.take(now, mode="clip") * (now <= left[..., 0])
    first = last = np.tile(np.arange(K), (n, 1))
    ready = np.repeat(wait[:, None], K, 1)  # [n, tours, K]
    ready[:, np.arange(K), np.arange(K)] = now + back
    for _ in range(DEPTH - 1):
        then = np.maximum(now[..., None] + between[env, last], ready)
        values = (value[..., None] + WORTH.take(then, mode="clip") * (then <= left)).reshape(n, -1)
        width = min(BEAM, values.shape[1])
        best = np.argpartition(-values, width - 1, axis=1)[:, :width]
        tour, last = np.divmod(best, K)
        value, now = values[env, best], then.reshape(n, -1)[env, best]
        first, ready = first[env, tour], ready[env, tour]
        ready[env, np.arange(width), last] = now + back
    return first[env[:, 0], value.argmax(1)]


def look_around(window: NDArray[np.uint8], things: NDArray[np.bool_], rng: np.random.Generator) -> NDArray[np.int64]:
    """Actions [N] towards the nearest of the `things` [N, 25] in a window [N, 25], else anywhere away from walls."""
    things = things[:, _BY_DISTANCE]
    nearest = _BY_DISTANCE[things.argmax(1)]
    go = towards(np.stack([_ROW[nearest], _COLUMN[nearest]], -1))
    is_open = (window[:, _AHEAD] != on.WALL).all(1)
    wander = (rng.random((len(window), 4)) * is_open).argmax(1)
    return np.where(things.any(1), go, wander)


def towards(ahead: NDArray[np.int64]) -> NDArray[np.int64]:
    """Actions [n] that go `ahead` [n, 2] rows and columns, the longer of the two first."""
    rows, columns = ahead[:, 0], ahead[:, 1]
    vertical = np.where(rows < 0, on.NORTH, on.SOUTH)
    horizontal = np.where(columns < 0, on.WEST, on.EAST)
    return np.where(np.abs(rows) >= np.abs(columns), vertical, horizontal)
