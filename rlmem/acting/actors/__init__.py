"""Acting in processes of their own, on Ray."""

from rlmem.acting.actors.pool import Pool

__all__ = ["Pool"]
