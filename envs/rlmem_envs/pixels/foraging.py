"""Which apple to go for next: the part of perfect play that has no simple rule."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

BEAM, DEPTH = 8, 8
WORTH = np.append(0.97 ** np.arange(400), 0.0)
"""Of an apple after so many steps, relative to now."""


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
        kept = min(BEAM, values.shape[1])
        best = np.argpartition(-values, kept - 1, axis=1)[:, :kept]
        tour, last = np.divmod(best, K)
        value, now = values[env, best], then.reshape(n, -1)[env, best]
        first, ready = first[env, tour], ready[env, tour]
        ready[env, np.arange(kept), last] = now + back
    return first[env[:, 0], value.argmax(1)]
