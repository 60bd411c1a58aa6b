"""What off-policy actor-critics share: which loss trains which memory."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from rlmem.agents.actor_critic import MemoryGradient
from rlmem.algos.off_policy import Metrics, OffPolicy
from rlmem.losses.reduce import masked_mean
from rlmem.types import Batch


class Seen(NamedTuple):
    """Features [B, T, F] as each of the losses sees them; gradients stop where the settings say so."""

    policy: Tensor
    """For the policy."""
    critic: Tensor
    """For the critic's loss."""
    judge: Tensor
    """For the critic inside the actor's loss."""


@dataclass(kw_only=True)
class OffPolicyActorCritic(OffPolicy):
    """An actor and twin critics that share a memory or have one each. Both losses come from one unroll and are
    minimised together; the critic's heads are constants in the actor's loss.

    separate: actor and critic have an encoder and a memory each (Ni et al. 2022, arXiv:2110.05038); otherwise one for
        both
    memory_gradient: whose loss trains a shared memory
    freeze_critic: treat the features that the critic reads in the actor's loss as constants, as in Memory-RL (Ni et al.
        2023, arXiv:2307.03864); otherwise the actor's loss also trains a shared memory through them
    """

    separate: bool = True
    memory_gradient: MemoryGradient = "critic"
    freeze_critic: bool = True

    def trained_parameters(self) -> dict[str, list[nn.Parameter]]:
        agent = self.agent
        critic = [*agent.trunks.critic.parameters(), *agent.q.parameters()]
        own = agent.trunks.actor.parameters() if self.separate else ()
        return {"critic": critic, "actor": [*own, *agent.policy.parameters()]}

    def critic_loss(self, q_tm1: Tensor, target: Tensor, batch: Batch) -> tuple[Tensor, Metrics, Tensor]:
        """The twins' squared errors, summed; metrics; the mean absolute TD error [B, T].

        q_tm1: values of the actions taken by each twin, [twins, B, T]
        target: [B, T]
        batch: the rows
        """
        error = q_tm1 - target
        weight = batch.behaviour.get("weight")
        loss = torch.stack([masked_mean(e.square(), batch.mask, weight) for e in error]).sum()
        metrics = {
            "critic_loss": loss.detach(),
            "q_mean": masked_mean(q_tm1.detach().mean(0), batch.mask),
            "target_mean": masked_mean(target, batch.mask),
        }
        return loss, metrics, error.detach().abs().mean(0)

    def features(self, batch: Batch) -> Seen:
        actor, critic = self.agent.trunks.read(batch)
        if self.separate:
            return Seen(actor, critic, critic.detach())
        return Seen(
            policy=actor.detach() if self.memory_gradient == "critic" else actor,
            critic=critic.detach() if self.memory_gradient == "actor" else critic,
            judge=critic.detach() if self.freeze_critic else critic,
        )
