"""The agents of off-policy algorithms: action values, alone or beside a policy."""

import math
from abc import abstractmethod
from typing import ClassVar

import torch
from gymnasium import Space
from torch import Tensor, nn

from rlmem.agents.actor_critic import ON_POLICY, Agent, Exploration
from rlmem.agents.heads import (
    Categorical,
    DeterministicHead,
    Head,
    QHead,
    TanhGaussianHead,
    TwinQ,
    TwinQDiscrete,
    masked,
)
from rlmem.agents.layers import HeadLayers
from rlmem.agents.trunk import Trunks
from rlmem.core.spaces import JointActions
from rlmem.core.types import Batch, Inputs, State, action_mask


class OffPolicyAgent(Agent):
    """Acts from the features of one slot, and explores by the `Exploration` it is given."""

    @torch.no_grad()
    def act(
        self, inputs: Inputs, state: State, generator: torch.Generator | None, exploration: Exploration = ON_POLICY
    ) -> tuple[Tensor, Tensor, State]:
        """As `Agent.act`, with zeros [N] for log-probabilities, which no off-policy algorithm here uses."""
        features, state = self.trunks.step(inputs, state)
        mask = action_mask(inputs.obs)
        if generator is None:
            action = self.greedy(features, mask)
        elif exploration.random:
            action = self.uniform(features, generator, mask)
        else:
            action = self.sample(features, generator, exploration, mask)
        return action, features.new_zeros(features.shape[0]), state

    @abstractmethod
    def sample(
        self, features: Tensor, generator: torch.Generator, exploration: Exploration, mask: Tensor | None = None
    ) -> Tensor:
        """An action that explores, for features [N, F], of those that an action mask [N, A] allows."""

    @abstractmethod
    def uniform(self, features: Tensor, generator: torch.Generator, mask: Tensor | None = None) -> Tensor:
        """Actions drawn uniformly, for features [N, F], of those that an action mask [N, A] allows."""


class JointAgent(OffPolicyAgent):
    """Discrete or multi-discrete actions, numbered jointly."""

    q: nn.Module

    def __init__(self, trunks: Trunks, action_space: Space):
        super().__init__()
        self.joint = JointActions(action_space)
        self.trunks = trunks

    def greedy(self, features: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.joint.action(self._best(features, self.allowed(mask)))

    def uniform(self, features: Tensor, generator: torch.Generator, mask: Tensor | None = None) -> Tensor:
        return self.joint.action(self._random_numbers(features, generator, self.allowed(mask)))

    def allowed(self, mask: Tensor | None) -> Tensor | None:
        """The joint actions [..., n] that an action mask [..., A] allows; None: all."""
        return None if mask is None else self.joint.mask(mask)

    def value(self, batch: Batch) -> Tensor:
        return self.action_values(batch).gather(-1, self.joint.index(batch.action)[..., None]).squeeze(-1)

    def action_values(self, batch: Batch) -> Tensor:
        return self.q(self.trunks.read_critic(batch))

    def _best(self, features: Tensor, allowed: Tensor | None) -> Tensor:
        """Numbers of the actions with the highest score."""
        return masked(self.scores(features), allowed, -math.inf).argmax(-1)

    def _random_numbers(self, features: Tensor, generator: torch.Generator, allowed: Tensor | None = None) -> Tensor:
        if allowed is None:
            return torch.randint(self.joint.n, (len(features),), generator=generator, device=features.device)
        draws = torch.rand(allowed.shape, generator=generator, device=features.device)
        return masked(draws, allowed, -1.0).argmax(-1)


class QAgent(JointAgent):
    """A value for every action (DQN): acts epsilon-greedily, with a draw for every slot or every episode."""

    def __init__(self, trunks: Trunks, action_space: Space, layers: HeadLayers, dueling: bool = False):
        super().__init__(trunks, action_space)
        self.q = QHead(trunks.critic.output_size, self.joint.n, layers, dueling)

    def scores(self, features: Tensor) -> Tensor:
        return self.q(features)

    def sample(
        self, features: Tensor, generator: torch.Generator, exploration: Exploration, mask: Tensor | None = None
    ) -> Tensor:
        chance = exploration.episode_draw
        if chance is None or not exploration.by_episode:
            chance = torch.rand(len(features), generator=generator, device=features.device)
        allowed = self.allowed(mask)
        random = self._random_numbers(features, generator, allowed)
        return self.joint.action(torch.where(chance < exploration.noise, random, self._best(features, allowed)))


class CategoricalAgent(JointAgent):
    """A categorical policy and two values for every action (SAC with discrete actions)."""

    def __init__(self, trunks: Trunks, action_space: Space, layers: HeadLayers):
        super().__init__(trunks, action_space)
        self.policy = Head(trunks.actor.output_size, self.joint.n, layers)
        self.q = TwinQDiscrete(trunks.critic.output_size, self.joint.n, layers)

    def logits(self, features: Tensor, mask: Tensor | None) -> Tensor:
        """The policy's logits [..., n] of the joint actions, of those that an action mask [..., A] allows."""
        return masked(self.policy(features), self.allowed(mask))

    def scores(self, features: Tensor) -> Tensor:
        return self.policy(features)

    def sample(
        self, features: Tensor, generator: torch.Generator, exploration: Exploration, mask: Tensor | None = None
    ) -> Tensor:
        return self.joint.action(Categorical(self.logits(features, mask)).sample(generator))

    def action_values(self, batch: Batch) -> Tensor:
        return super().action_values(batch).amin(0)


class ContinuousAgent(OffPolicyAgent):
    """Actions in [-1, 1] per dimension, from a policy head, and two values of a given action."""

    policy_head: ClassVar[type[nn.Module]]

    def __init__(self, trunks: Trunks, action_space: Space, layers: HeadLayers):
        super().__init__()
        assert action_space.shape is not None
        self.action_size = action_space.shape[0]
        self.trunks = trunks
        self.policy = self.policy_head(trunks.actor.output_size, self.action_size, layers)
        self.q = TwinQ(trunks.critic.output_size, self.action_size, layers)

    def uniform(self, features: Tensor, generator: torch.Generator, mask: Tensor | None = None) -> Tensor:
        return features.new_empty(len(features), self.action_size).uniform_(-1, 1, generator=generator)

    def scores(self, features: Tensor) -> Tensor:
        return self.greedy(features)

    def value(self, batch: Batch) -> Tensor:
        return self.q(self.trunks.read_critic(batch), batch.action).amin(0)


class TanhGaussianAgent(ContinuousAgent):
    """A Gaussian policy squashed by tanh (SAC with continuous actions)."""

    policy_head = TanhGaussianHead

    def greedy(self, features: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.policy(features).mode()

    def sample(
        self, features: Tensor, generator: torch.Generator, exploration: Exploration, mask: Tensor | None = None
    ) -> Tensor:
        return self.policy(features).sample(generator)


class DeterministicAgent(ContinuousAgent):
    """A deterministic policy (TD3); explores with normal noise, clipped to [-1, 1]."""

    policy_head = DeterministicHead

    def greedy(self, features: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.policy(features)

    def sample(
        self, features: Tensor, generator: torch.Generator, exploration: Exploration, mask: Tensor | None = None
    ) -> Tensor:
        action = self.policy(features)
        return (action + exploration.noise * torch.empty_like(action).normal_(generator=generator)).clamp(-1, 1)
