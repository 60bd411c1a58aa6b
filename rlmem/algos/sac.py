"""Soft Actor-Critic over memory agents, for continuous and for discrete actions; and what it shares with TD3."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import log
from typing import ClassVar, Literal, NamedTuple

import torch
from gymnasium import Space, spaces
from torch import Tensor, nn

from rlmem.agents.actor_critic import Exploration, MemoryGradient
from rlmem.agents.off_policy import CategoricalAgent, ContinuousAgent, OffPolicyAgent, TanhGaussianAgent
from rlmem.agents.trunk import SlotFeatures, Trunks
from rlmem.algos.off_policy import Metrics, OffPolicy, Slots, q_spread
from rlmem.algos.on_policy import action_spread, actions_at_bounds, feature_rank, some
from rlmem.core.types import Batch, PositiveFloat, PositiveUnitFloat
from rlmem.loops.parts import OnNan
from rlmem.losses.off_policy import actor_loss, actor_loss_discrete, chosen, temperature_loss

DRAWS = 16
"""Actions all over [-1, 1] of a slot whose values are compared."""


class Seen(NamedTuple):
    """Features [n, F] of the acted slots as each of the losses sees them; gradients stop where the settings say so."""

    policy: Tensor
    """What the policy reads."""
    critic: Tensor
    """What the critic reads in its own loss."""
    judge: Tensor
    """What the critic reads inside the actor's loss."""


@dataclass(kw_only=True)
class OffPolicyActorCritic(OffPolicy):
    """An actor and twin critics that share a memory or have one each. Both losses come from one unroll and are
    minimised together; the critic's heads are constants in the actor's loss.

    separate: actor and critic have an encoder and a memory each (Ni et al. 2022, arXiv:2110.05038); otherwise one for
        both
    memory_gradient: whose loss trains a shared memory
    freeze_critic: treat the features that the critic reads in the actor's loss as constants, as in Memory-RL (Ni et al.
        2023, arXiv:2307.03864); otherwise the actor's loss also trains a shared memory through them
    critic_observation: the leaves that a critic of its own reads, in the place of the actor's: paths or patterns; None:
        those of the actor. See docs/any-observation.md
    critic_memory: the option of `memory` for a critic of its own, as wide as the actor's; None: the actor's
    """

    separate: bool = True
    memory_gradient: MemoryGradient = "critic"
    freeze_critic: bool = True
    critic_observation: Sequence[str] | None = None
    critic_memory: str | None = None

    def setup(self, agent: OffPolicyAgent, generator: torch.Generator, on_nan: OnNan = "stop") -> None:
        super().setup(agent, generator, on_nan)
        self.q_parameters = [parameter for parameter in self.agent.q.parameters() if parameter.requires_grad]

    def trained_parameters(self) -> dict[str, list[nn.Parameter]]:
        agent = self.agent
        critic = [*agent.trunks.critic.parameters(), *agent.q.parameters()]
        own = agent.trunks.actor.parameters() if self.separate else ()
        auxiliary = list(getattr(agent, "auxiliary", nn.Module()).parameters())
        parts = {"critic": critic, "actor": [*own, *agent.policy.parameters()]}
        return parts | ({"auxiliary": auxiliary} if auxiliary else {})

    def critic_loss(self, q_tm1: Tensor, target: Tensor, slots: Slots) -> tuple[Tensor, Metrics, Tensor]:
        """The twins' mean squared errors, summed; metrics; the mean absolute TD error [n].

        q_tm1: values of the actions taken by each twin, [twins, n]
        target: [n]
        slots: the slots that acted
        """
        error = q_tm1 - target
        loss = torch.stack([slots.weighted_mean(e.square()) for e in error]).sum()
        metrics = {
            "critic_loss": loss.detach(),
            "q_mean": slots.mean(q_tm1.detach().mean(0)),
            "target_mean": slots.mean(target),
        }
        return loss, metrics, error.detach().abs().mean(0)

    @torch.no_grad()
    def diagnose(self, batch: Batch) -> Metrics:
        slots = Slots(batch).acted
        actor, critic = (features.at(slots) for features in self.agent.trunks.features(batch))
        known = {"feature_rank": feature_rank(critic)}
        if not isinstance(self.agent, ContinuousAgent):
            return known | {"q_spread": q_spread(self.agent.q(critic).amin(0))}
        action, compared = self.agent.greedy(actor), some(critic).repeat_interleave(DRAWS, 0)
        evenly = torch.quasirandom.SobolEngine(self.agent.action_size).draw(DRAWS, dtype=critic.dtype).to(critic.device)
        q = self.agent.q(compared, (2 * evenly - 1).repeat(len(compared) // DRAWS, 1)).amin(0)
        return known | {
            "q_spread": q_spread(q.view(-1, DRAWS)),
            "actions_at_bounds": actions_at_bounds(action),
            "action_spread": action_spread(action),
        }

    def seen(self, actor: SlotFeatures, critic: SlotFeatures, slots: Slots) -> Seen:
        """The features of the acted slots for each of the losses."""
        values = critic.at(slots.acted)
        if self.separate:
            return Seen(actor.at(slots.acted), values, values.detach())
        return Seen(
            policy=values.detach() if self.memory_gradient == "critic" else values,
            critic=values.detach() if self.memory_gradient == "actor" else values,
            judge=values.detach() if self.freeze_critic else values,
        )


@contextmanager
def frozen(parameters: Sequence[nn.Parameter]) -> Iterator[None]:
    """Within this context, no gradient flows to the parameters."""
    for parameter in parameters:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in parameters:
            parameter.requires_grad_(True)


@dataclass(kw_only=True)
class SoftActorCritic(OffPolicyActorCritic):
    """What the forms for continuous and for discrete actions share.

    temperature: alpha, or its first value where it is learnt
    learn_temperature: adapt alpha so that the policy's entropy stays at a target
    temperature_lr: learning rate of log alpha; if it lags behind the critic's, the policy stays near uniform for long
    target_memory: own: the target heads read the target network's memory; online: they read the online memory, as in
        Memory-RL
    """

    temperature: PositiveFloat = 0.1
    learn_temperature: bool = True
    temperature_lr: PositiveFloat = 3e-3
    target_memory: Literal["own", "online"] = "own"

    agent_class: ClassVar[type[TanhGaussianAgent] | type[CategoricalAgent]]

    def make_agent(self, trunks: Trunks, action_space: Space) -> OffPolicyAgent:
        agent = self.agent_class(trunks, action_space, self.head_layers)
        agent.log_temperature = nn.Parameter(torch.tensor(log(self.temperature)))
        return agent

    def explore(self, steps: int, total_steps: int) -> Exploration:
        return Exploration(random=steps < self.random_steps)

    def trained_parameters(self) -> dict[str, list[nn.Parameter]]:
        temperature = {"temperature": [self.agent.log_temperature]} if self.learn_temperature else {}
        return super().trained_parameters() | temperature

    def rate(self, part: str) -> float:
        return self.temperature_lr if part == "temperature" else self.lr

    def loss(self, batch: Batch) -> tuple[Tensor, Metrics, Tensor]:
        slots = Slots(batch)
        actor, critic = self.agent.trunks.features(batch)
        seen = self.seen(actor, critic, slots)
        temperature = self.agent.log_temperature.detach().exp()
        noise = self.noise(batch)
        here, behind = slots.masks(batch) if self.masks else (None, None)
        with torch.no_grad():
            successors = self.target.trunks.critic_features(batch) if self.target_memory == "own" else critic
            after = actor.at(slots.after), successors.at(slots.after)
            # The soft value is minus the actor's loss.
            value = -self.policy_loss(self.target.q, *after, noise[slots.after], temperature, behind)[0]
        with frozen(self.q_parameters):
            acted = seen.policy, seen.judge
            surrogate, log_prob = self.policy_loss(self.agent.q, *acted, noise[slots.acted], temperature, here)
        q_tm1 = self.values_of(seen.critic, slots.of(batch.action))
        loss, metrics, td_error = self.critic_loss(q_tm1, self.returns(batch, slots, value), slots)
        actor_loss = slots.mean(surrogate)
        loss = loss + actor_loss
        if self.learn_temperature:
            wanted = self.entropy_to_hold(here)
            loss = loss + slots.mean(temperature_loss(self.agent.log_temperature, log_prob, wanted))
        metrics |= {
            "actor_loss": actor_loss.detach(),
            "entropy": -slots.mean(log_prob.detach()),
            "temperature": temperature,
        }
        return loss, metrics, td_error

    def noise(self, batch: Batch) -> Tensor:
        """Standard normal draws for the policy's actions in every slot, [B * T, K]; K is 0 if it needs none."""
        return batch.reward.new_empty(batch.reward.numel(), 0)

    @abstractmethod
    def policy_loss(
        self, q: nn.Module, policy: Tensor, judge: Tensor, noise: Tensor, temperature: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The actor's loss [n], which is minus the soft value, and log pi of the drawn action [n] (SACD: the negative
        entropy).

        q: the critic's heads
        policy, judge: features [n, F] that the policy and the heads read
        noise: draws for the policy's actions, [n, K]
        temperature: alpha
        mask: the action masks, [n, A]; None: all actions are allowed
        """

    @abstractmethod
    def values_of(self, features: Tensor, action: Tensor) -> Tensor:
        """The twins' values [twins, n] of the actions taken [n, ...], from the critic's features [n, F]."""

    @abstractmethod
    def entropy_to_hold(self, mask: Tensor | None) -> Tensor | float:
        """The entropy that the temperature is adapted to, of every slot [n] where some actions are not allowed."""


@dataclass(kw_only=True)
class SAC(SoftActorCritic):
    """Soft Actor-Critic for continuous actions (Haarnoja et al. 2018, arXiv:1812.05905), a Gaussian squashed by tanh.

    target_entropy: the entropy to hold; None: minus the number of action dimensions
    """

    target_entropy: float | None = None

    action_spaces = (spaces.Box,)
    agent_class = TanhGaussianAgent

    def noise(self, batch: Batch) -> Tensor:
        shape = batch.reward.numel(), self.agent.action_size
        return self.agent.log_temperature.detach().new_empty(shape).normal_(generator=self.generator)

    def policy_loss(
        self, q: nn.Module, policy: Tensor, judge: Tensor, noise: Tensor, temperature: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        action, log_prob = self.agent.policy(policy).rsample(noise)
        return actor_loss(q(judge, action).amin(0), log_prob, temperature), log_prob

    def values_of(self, features: Tensor, action: Tensor) -> Tensor:
        return self.agent.q(features, action)

    def entropy_to_hold(self, mask: Tensor | None) -> float:
        return -float(self.agent.action_size) if self.target_entropy is None else self.target_entropy


@dataclass(kw_only=True)
class SACD(SoftActorCritic):
    """Soft Actor-Critic for discrete actions (Christodoulou 2019, arXiv:1910.07207), with exact expectations.

    twins: min: states and actions are worth the lesser of the twins' values; mean: their mean (Zhou et al. 2022,
        arXiv:2209.10081, double average Q-learning, without its clip)
    target_entropy_ratio: the entropy to hold, as a fraction of the uniform policy's entropy
    """

    twins: Literal["min", "mean"] = "min"
    target_entropy_ratio: PositiveUnitFloat = 0.2

    action_spaces = (spaces.Discrete, spaces.MultiDiscrete)
    agent_class = CategoricalAgent
    masks = True

    def policy_loss(
        self, q: nn.Module, policy: Tensor, judge: Tensor, noise: Tensor, temperature: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        logits, twins = self.agent.logits(policy, mask), q(judge)
        log_prob = logits.detach().log_softmax(-1)
        lesser = twins.amin(0) if self.twins == "min" else twins.mean(0)
        return actor_loss_discrete(lesser, logits, temperature), (log_prob.exp() * log_prob).sum(-1)

    def values_of(self, features: Tensor, action: Tensor) -> Tensor:
        return chosen(self.agent.q(features), self.agent.joint.index(action))

    def entropy_to_hold(self, mask: Tensor | None) -> Tensor | float:
        allowed = self.agent.allowed(mask)
        uniform = log(self.agent.joint.n) if allowed is None else allowed.sum(-1).log()
        return self.target_entropy_ratio * uniform
