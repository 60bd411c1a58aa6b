"""What off-policy actor-critics share: which loss trains which memory."""

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor, nn

from rlmem.agents.actor_critic import MemoryGradient
from rlmem.algos.off_policy import OffPolicy
from rlmem.types import Batch


class Features(NamedTuple):
    """Features [B, T, F] as each reader may see them: gradients stop where routing says so."""

    policy: Tensor
    """for the policy"""
    critic: Tensor
    """for the critic's loss"""
    judge: Tensor
    """for the critic inside the actor's loss"""


@dataclass(kw_only=True)
class OffPolicyActorCritic(OffPolicy):
    """An actor and twin critics over one memory or over one each. Both losses are taken from one unroll and minimised
    together; the critic's heads are constants in the actor's loss.

    separate: an encoder and a memory each for actor and critic (Ni et al. 2022, arXiv:2110.05038), else one for both
    memory_gradient: whose loss trains a shared memory
    freeze_critic: the state that the critic reads in the actor's loss is a constant, as in Memory-RL (Ni et al. 2023,
        arXiv:2307.03864); false: the actor's loss also reaches a shared memory through it
    """

    separate: bool = True
    memory_gradient: MemoryGradient = "critic"
    freeze_critic: bool = True

    def trained_parameters(self) -> dict[str, list[nn.Parameter]]:
        agent = self.agent
        critic = [*agent.trunks.critic.parameters(), *agent.q.parameters()]
        own = agent.trunks.actor.parameters() if self.separate else ()
        return {"critic": critic, "actor": [*own, *agent.policy.parameters()]}

    def features(self, batch: Batch) -> Features:
        actor, critic = self.agent.trunks.read(batch)
        if self.separate:
            return Features(actor, critic, critic.detach())
        shared = actor
        return Features(
            policy=shared.detach() if self.memory_gradient == "critic" else shared,
            critic=shared.detach() if self.memory_gradient == "actor" else shared,
            judge=shared.detach() if self.freeze_critic else shared,
        )
