"""The bases of all networks that are trained: trunks, and the state of their memories."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from rlmem.agents.exploration import ON_POLICY, Exploration
from rlmem.agents.trunk import Trunks
from rlmem.types import Batch, Inputs, State


class Network(nn.Module):
    """Encoders and memories in `trunks`, with heads that read their features."""

    trunks: Trunks

    def initial_state(self, batch_size: int) -> State:
        """The state of rows that have read nothing."""
        return self.trunks.initial_state(batch_size)


class Agent(Network, ABC):
    """A network that acts in environments, and gives slots values."""

    value_name = "Q(s, a)"
    """What `value` is, in symbols."""

    @abstractmethod
    def act(
        self, inputs: Inputs, state: State, generator: torch.Generator | None, exploration: Exploration = ON_POLICY
    ) -> tuple[Tensor, Tensor, State]:
        """Read one slot of N environments and act.

        inputs: of the slot, [N, ...] each
        state: of the memories before it
        generator: draws the actions; None: act greedily
        exploration: how to depart from the policy when actions are drawn

        Returns actions [N, ...], their log-probabilities [N], and the state after the slot.
        """

    @abstractmethod
    def value(self, batch: Batch) -> Tensor:
        """The value of every slot and the action taken there, or of the slot alone: [B, T]. Twins: the smaller one."""
