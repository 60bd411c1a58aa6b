"""The bases of memories that are parallel over time: resets and time are written once for every model."""

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from rlmem.core.types import State, where_start
from rlmem.memory.base import Memory
from rlmem.scan import Engine, linear_scan, monoid_scan


class LinearRecurrence(Memory):
    """Base of memories whose state follows h_t = a_t * h_{t-1} + b_t elementwise: parallel over time.

    The author sets `state_shape` and writes `project`, `gates` and `read`; resets and time are done here.
    """

    state_shape: tuple[int, ...]
    engine: Engine = "auto"

    def project(self, x: Tensor) -> Any:
        """What `gates` and `read` share, computed once from x [B, T, D]. Default: x itself.

        `step` calls all three for one slot, without the dimension T.
        """
        return x

    @abstractmethod
    def gates(self, p: Any) -> tuple[Tensor, Tensor]:
        """a ([*state_shape], constant in time, or [B, T, *state_shape]) and b [B, T, *state_shape] from `project`."""

    @abstractmethod
    def read(self, h: Tensor, p: Any) -> Tensor:
        """y [B, T, H] from the states h [B, T, *state_shape] and `project`."""

    def forward(self, x: Tensor, state: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
        p = self.project(x)
        a, b = self.gates(p)
        h = linear_scan(a, b, state, start, self.engine)
        return self.read(h, p), h[:, -1].clone()  # not a view, which would keep h

    def step(self, x: Tensor, state: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
        p = self.project(x)
        a, b = self.gates(p)
        h = a * where_start(start, torch.zeros_like(state), state) + b
        return self.read(h, p), h


class Memoroid(Memory):
    """Base of memories whose state is an element of a monoid (Morad et al. 2024, arXiv:2402.09900, definition 3).

    The author writes `lift`, `combine`, `identity` and `read`; resets and time are done here, in O(log T) steps.
    """

    engine: Engine = "auto"

    @abstractmethod
    def lift(self, x: Tensor) -> State:
        """The monoid's element for each input: x [..., D] to a pytree of [..., *shape]."""

    @abstractmethod
    def combine(self, earlier: State, later: State) -> State:
        """The associative operation, elementwise over all leading dimensions."""

    @abstractmethod
    def identity(self) -> State:
        """The element that changes nothing, as a pytree of [*shape]."""

    @abstractmethod
    def read(self, h: State, x: Tensor) -> Tensor:
        """y [..., H] from the states and the inputs x [..., D]."""

    def initial_state(self, batch_size: int) -> State:
        like = self._like_parameters()

        def rows(e: Tensor) -> Tensor:
            dtype = torch.promote_types(like.dtype, e.dtype) if e.is_complex() else like.dtype
            e = e.to(like.device, dtype if e.is_floating_point() or e.is_complex() else e.dtype)
            return e.expand(batch_size, *e.shape)

        return tree_map(rows, self.identity())

    def forward(self, x: Tensor, state: State, start: Tensor) -> tuple[Tensor, State]:
        h = monoid_scan(self.combine, self.identity(), self.lift(x), state, start, self.engine)
        return self.read(h, x), tree_map(lambda leaf: leaf[:, -1], h)

    def step(self, x: Tensor, state: State, start: Tensor) -> tuple[Tensor, State]:
        h = self.combine(where_start(start, self.initial_state(len(x)), state), self.lift(x))
        return self.read(h, x), h
