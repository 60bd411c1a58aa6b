"""Acting in processes of their own, on Ray."""

from rlmem.acting.actors.pool import ActorPool

__all__ = ["ActorPool"]
