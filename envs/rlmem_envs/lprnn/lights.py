"""The hall of Sequence Recall: four lights around a centre, and the shortest ways through them."""

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

HALL = """\
#####################
#        222        #
#      2222222      #
#      2222222      #
#      2222222      #
#        222        #
#  111         333  #
#1111111     3333333#
#1111111     3333333#
#1111111     3333333#
#  111         333  #
#        444        #
#      4444444      #
#      4444444      #
#      4444444      #
#        444        #
#####################
"""
ROWS, COLUMNS = 17, 21
CHARACTERS = np.frombuffer(HALL.replace("\n", "").encode(), np.uint8)
"""Of each cell [357], row by row."""
CELLS = np.arange(len(CHARACTERS))
CENTRE = 8 * COLUMNS + 10

LIGHTS = 4
LIGHT_AT = np.maximum(CHARACTERS.astype(np.int64) - ord("0"), 0)
"""The light of each cell, 0 for none. No light touches another, so no step leads from one into the next."""

UP, DOWN, LEFT, RIGHT, STAY = range(5)
MOVES = np.array([-COLUMNS, COLUMNS, -1, 1, 0])


def _next() -> NDArray[np.int64]:
    to = CELLS[:, None] + MOVES
    return np.where(np.not_equal(CHARACTERS, ord("#")).take(to, mode="clip"), to, CELLS[:, None])


NEXT = _next()
"""The cell that each action leads to from each cell [357, 5]."""

HORIZON = 4


@cache
def routes() -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The shortest ways through the next lights: first moves and numbers of steps, each [1 + 4 + 16 + 64 + 256, 357].

    Rows are for none, one, .. `HORIZON` lights to visit, in the order of their numbers; columns are cells. A light is
    visited by stepping into it, and left before the next one is.
    """
    moves, steps = [np.full((1, len(CELLS)), STAY)], [np.zeros((1, len(CELLS)))]
    blank, neighbours = np.equal(LIGHT_AT, 0), NEXT[:, :STAY]
    for count in range(1, HORIZON + 1):
        first = np.repeat(np.arange(1, LIGHTS + 1), LIGHTS ** (count - 1))
        entered = np.where(np.equal(LIGHT_AT, first[:, None]), np.tile(steps[-1], (LIGHTS, 1)), np.inf)
        fewest: NDArray[Any] = np.full(entered.shape, np.inf)
        before: NDArray[Any] = np.zeros(0)
        while not np.array_equal(fewest, before):
            before = fewest
            from_blank = np.where(blank, fewest, entered)
            each = 1 + np.where(blank[:, None], from_blank[:, neighbours], fewest[:, neighbours])
            fewest = np.min(each, axis=-1)
        moves.append(each.argmin(-1))
        steps.append(fewest)
    return np.concatenate(moves), np.concatenate(steps)
