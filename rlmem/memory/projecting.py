"""The contract of memories that compute something from each slot by itself before they read rows."""

from abc import abstractmethod

from torch import Tensor

from rlmem.memory.base import Memory
from rlmem.types import State


class Projecting(Memory):
    """A memory that first projects each slot by itself, so that slots with equal inputs can share the projection.

    `rlmem.agents.trunk` does so for classes that define `project_slots` themselves; one that inherits it may read
    otherwise, and is given x.
    """

    @abstractmethod
    def project_slots(self, x: Tensor) -> Tensor | None:
        """What is computed first from each slot of x [n, D] by itself: [n, P]; None: nothing, for this x."""

    @abstractmethod
    def read_projected(self, p: Tensor, which: Tensor, state: State, start: Tensor) -> tuple[Tensor, State]:
        """`forward` of rows whose slots have the projections p[which].

        p: [n, P], of `project_slots`
        which: [B, T] integers
        """

    @abstractmethod
    def step_projected(self, p: Tensor, which: Tensor, state: State, start: Tensor) -> tuple[Tensor, State]:
        """`step` of slots that have the projections p[which], which [B]. It need not record a gradient."""
