"""Replay: whole episodes in a ring of slots, read by any batching scheme."""

from rlmem.replay.buffer import FIELDS, Replay, Sample

__all__ = ["FIELDS", "Replay", "Sample"]
