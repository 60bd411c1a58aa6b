"""What off-policy actor-critics share: which loss trains which memory."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from rlmem.agents.actor_critic import MemoryGradient
from rlmem.agents.off_policy import ContinuousAgent, OffPolicyAgent
from rlmem.agents.trunk import Features
from rlmem.algos.off_policy import Metrics, OffPolicy, Slots, q_spread
from rlmem.algos.on_policy import action_spread, actions_at_bounds, feature_rank, some
from rlmem.loops.parts import OnNan
from rlmem.types import Batch

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

    def seen(self, actor: Features, critic: Features, slots: Slots) -> Seen:
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
