"""Several processes that train one run together: their ranks, how they communicate, and how they start."""

from rlmem.parallel.group import (
    Lost,
    Place,
    alone,
    gathered,
    joined,
    largest,
    launched,
    least,
    of_first,
    place,
    sum_gradients,
    summed,
    totals,
    wait_for_first,
)
from rlmem.parallel.start import announce, team

__all__ = [
    "Lost",
    "Place",
    "alone",
    "announce",
    "gathered",
    "joined",
    "largest",
    "launched",
    "least",
    "of_first",
    "place",
    "sum_gradients",
    "summed",
    "team",
    "totals",
    "wait_for_first",
]
