"""Cutting time: how streams and episodes become the rows of a training batch. Nowhere else is time cut."""

from rlmem.batching.base import Batching, Pieces, Rollout, Rows, StateSlots, unroll
from rlmem.batching.segment import Segment
from rlmem.batching.tape import Tape

__all__ = ["Batching", "Pieces", "Rollout", "Rows", "Segment", "StateSlots", "Tape", "unroll"]
