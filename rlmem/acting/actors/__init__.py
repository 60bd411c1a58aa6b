"""Actors: separate processes, on Ray, that collect rollouts."""

from rlmem.acting.actors.pool import ActorPool

__all__ = ["ActorPool"]
