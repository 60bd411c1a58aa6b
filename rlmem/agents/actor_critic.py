"""The agent of on-policy algorithms: a policy and a value of every slot."""

from collections.abc import Callable
from typing import Literal

import torch
from gymnasium import Space
from torch import Tensor, nn

from rlmem.agents.base import ON_POLICY, Agent, Exploration
from rlmem.agents.trunk import Trunk, Trunks
from rlmem.nets.graphs import recorded
from rlmem.nets.heads import PolicyHead
from rlmem.nets.layers import VALUE_GAIN, HeadLayers
from rlmem.types import Batch, Inputs, State, action_mask

MemoryGradient = Literal["both", "critic", "actor"]
"""Whose loss trains a shared encoder and memory."""


class ActorCritic(Agent):
    """Actor and critic over one shared encoder and memory, as in POPGym's baselines, or over one each.

    Acting steps the memory; `unroll` reads whole rows in parallel. Both see the same inputs in the same order, so
    log-probabilities computed while acting equal those of an unroll from the same state.

    make_trunk: builds an encoder with a memory
    action_space: of one environment
    layers: what both heads are made of
    state_dependent_std: see `rlmem.nets.heads.PolicyHead`
    separate: actor and critic have an encoder and a memory each
    memory_gradient: whose loss trains a shared encoder and memory
    values: how many critics, with hidden layers of their own each; what the first says is the value of a slot
    """

    value_name = "V(s)"

    def __init__(
        self,
        make_trunk: Callable[[], Trunk],
        action_space: Space,
        layers: HeadLayers,
        state_dependent_std: bool = False,
        separate: bool = False,
        memory_gradient: MemoryGradient = "both",
        values: int = 1,
    ):
        super().__init__()
        self.trunks = Trunks(make_trunk, separate)
        size = self.trunks.actor.output_size
        self.policy = PolicyHead(size, action_space, layers, state_dependent_std)
        self.critic = self._value_head(layers)
        self.more_critics = nn.ModuleList(self._value_head(layers) for _ in range(values - 1))
        self.memory_gradient = memory_gradient

    def _value_head(self, layers: HeadLayers) -> nn.Sequential:
        trunk, width = layers.hidden(self.trunks.critic.output_size)
        return nn.Sequential(trunk, layers.output(width, 1, VALUE_GAIN))

    @torch.no_grad()
    def act(
        self, inputs: Inputs, state: State, generator: torch.Generator | None, exploration: Exploration = ON_POLICY
    ) -> tuple[Tensor, Tensor, State]:
        """As `Agent.act`; the policy samples by itself, and `exploration` is ignored."""
        parameters, state = self._step(inputs, state)
        distribution = self.policy.distribution(parameters)
        action = distribution.mode() if generator is None else distribution.sample(generator)
        return action, distribution.log_prob(action), state

    @recorded
    def _step(self, inputs: Inputs, state: State) -> tuple[Tensor, State]:
        """Policy parameters [N, P] of one slot, and the next states."""
        features, state = self.trunks.step(inputs, state)
        return self.policy.parameters_of(features, action_mask(inputs.obs)), state

    def greedy(self, features: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.policy(features, mask).mode()

    def scores(self, features: Tensor) -> Tensor:
        return self.policy.parameters_of(features)

    def value(self, batch: Batch) -> Tensor:
        return self.critic(self.trunks.read_critic(batch)).squeeze(-1)

    def more_values(self, features: Tensor) -> list[Tensor]:
        """What the other critics say, [B, T] each, of features [B, T, F] that `trunks` read for the critic."""
        if not self.trunks.separate and self.memory_gradient == "actor":
            features = features.detach()
        return [critic(features).squeeze(-1) for critic in self.more_critics]

    def unroll(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Policy parameters [B, T, P] and values [B, T] of every slot, from the rows' `state0`."""
        return self.heads(*self.trunks.read(batch), action_mask(batch.obs))

    def heads(self, actor: Tensor, critic: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """What `unroll` returns, from the features [B, T, F] of actor and critic, and from the slots' action masks."""
        if not self.trunks.separate:
            actor = actor.detach() if self.memory_gradient == "critic" else actor
            critic = critic.detach() if self.memory_gradient == "actor" else critic
        return self.policy.parameters_of(actor, mask), self.critic(critic).squeeze(-1)
