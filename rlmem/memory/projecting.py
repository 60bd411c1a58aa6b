"""The contract of memories that compute something from each slot by itself before they read rows."""

from abc import abstractmethod

from torch import Tensor

from rlmem.memory.base import Memory
from rlmem.types import State


class Projecting(Memory):
    """A memory with `forward(x, ...)` equal to `read_projected(project_slots(x), ...)`, and so for `step`.

    Slots with equal inputs can then share what `project_slots` computes (`rlmem.agents.trunk`). That is done for
    classes that define `project_slots` themselves; one that inherits it may read otherwise, and is given x.
    """

    @abstractmethod
    def project_slots(self, x: Tensor) -> Tensor | None:
        """What is computed first from each slot of x [n, D] by itself: [n, P]; None: nothing, for this x."""

    @abstractmethod
    def read_projected(self, p: Tensor, state: State, start: Tensor) -> tuple[Tensor, State]:
        """`forward` of rows of which p [B, T, P] has been computed by `project_slots`; p may be overwritten."""

    @abstractmethod
    def step_projected(self, p: Tensor, state: State, start: Tensor) -> tuple[Tensor, State]:
        """`step` of one slot of which p [B, P] has been computed by `project_slots`, and which may be overwritten.

        It need not record a gradient.
        """
