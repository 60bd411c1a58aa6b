"""Several processes that train one run together: who they are, what they tell each other, how they start."""

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
    outlast,
    place,
    sum_gradients,
    summed,
    totals,
)
from rlmem.parallel.start import meet, team

__all__ = [
    "Lost",
    "Place",
    "alone",
    "gathered",
    "joined",
    "largest",
    "launched",
    "least",
    "meet",
    "of_first",
    "outlast",
    "place",
    "sum_gradients",
    "summed",
    "team",
    "totals",
]
