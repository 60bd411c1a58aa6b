"""The data that moves through rlmem: annotated scalars, memory states and batches.

Dimensions: B rows, T slots, A actions; the slot rule is written out in `Batch`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Annotated, Any

import torch
from annotated_types import Ge, Gt, Le
from torch import Tensor
from torch.utils._pytree import tree_map

PositiveInt = Annotated[int, Gt(0)]
PositiveFloat = Annotated[float, Gt(0)]
NonNegativeFloat = Annotated[float, Ge(0)]
UnitFloat = Annotated[float, Ge(0), Le(1)]

State = Any
"""A pytree of tensors with leading dimension B; a memory without state uses the empty tuple."""


def where_start(start: Tensor, initial: State, state: State) -> State:
    """`initial` in the rows whose `start` [B] is true, `state` elsewhere. The one reset of rlmem.

    A selection, not a product: an inf or NaN in `state` does not survive it, and no gradient passes it.
    """

    def select(fresh: Tensor, old: Tensor) -> Tensor:
        return torch.where(start.view(-1, *[1] * (old.dim() - 1)), fresh, old)

    return tree_map(select, initial, state)


@dataclass
class Batch:
    """Rows of slots, every field [B, T, ...] but `state0`. A row is a contiguous stream that may hold many starts.

    The slot rule. Slot t holds obs[t] and, if the agent acted there, action[t], reward[t] and terminated[t] *of that
    action*. An episode of n actions takes n+1 slots: the last holds only the final observation. start[t] is true on
    an episode's first slot; the memory is reset before it reads slot t. There is no next observation: the successor
    of an acted slot is slot t+1. Three flags, three jobs: `start` for the memory, `terminated` for the discount,
    `mask` (the agent acted, and the slot counts) for the loss.
    """

    obs: Tensor
    """[B, T, ...] as the environment gave it."""
    prev_action: Tensor
    """[B, T, ...] action of slot t-1; ignored where start."""
    prev_reward: Tensor
    """[B, T] reward of slot t-1; zero where start."""
    start: Tensor
    """[B, T] bool."""
    action: Tensor
    """[B, T, ...], meaningless where not mask."""
    reward: Tensor
    """[B, T] float."""
    terminated: Tensor
    """[B, T] bool; a truncation is not a termination."""
    mask: Tensor
    """[B, T] bool; false on final observations, bootstrap slots and padding."""
    state0: State
    """Memory state before slot 0, leading dimension B."""
    behaviour: dict[str, Tensor] = field(default_factory=dict)
    """[B, T, ...] what the acting policy knew (log_prob) and what is computed from the whole rollout."""

    @property
    def shape(self) -> tuple[int, int]:
        """(B, T)"""
        return self.start.shape[0], self.start.shape[1]

    def map(self, function: Any) -> Batch:
        """Apply `function` to every tensor."""
        return Batch(**{f.name: tree_map(function, getattr(self, f.name)) for f in fields(self)})

    def rows(self, index: Tensor) -> Batch:
        """The rows `index` [b], in that order."""
        return self.map(lambda tensor: tensor[index])
