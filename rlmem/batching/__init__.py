"""Cutting time: how streams and episodes become the rows of a training batch. Nowhere else is time cut."""

from rlmem.batching.base import Batching, Pieces, Rollout, Rows, StateSlots, Tape, unroll
from rlmem.batching.segment import Segment

__all__ = ["Batching", "Pieces", "Rollout", "Rows", "Segment", "StateSlots", "Tape", "unroll"]
