"""Cutting time: how streams and episodes become the rows of a training batch. Nowhere else is time cut.

The replay keeps whole episodes in a ring of slots, which any batching scheme reads.
"""

from rlmem.batching.base import Batching, Pieces, Rollout, Rows, StateSlots, Tape, unroll
from rlmem.batching.buffer import FIELDS, Replay, Sample
from rlmem.batching.segment import Segment

__all__ = [
    "FIELDS",
    "Batching",
    "Pieces",
    "Replay",
    "Rollout",
    "Rows",
    "Sample",
    "Segment",
    "StateSlots",
    "Tape",
    "unroll",
]
