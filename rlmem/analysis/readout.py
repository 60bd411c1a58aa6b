"""What an agent's heads say in every slot, in one form for all algorithms."""

import torch
from gymnasium import Space, spaces
from torch import Tensor

from rlmem.agents.actor_critic import Agent
from rlmem.agents.trunk import Trunk
from rlmem.core.spaces import component_sizes
from rlmem.core.types import Batch, action_mask


def reader(agent: Agent) -> Trunk:
    """The trunk that `total` depends on: the critic's, if that has Q."""
    return agent.trunks.critic if knows_q(agent) else agent.trunks.actor


def knows_q(agent: Agent) -> bool:
    """Whether it has values of actions; an actor-critic with V(s) alone says what it recalls by its policy."""
    return agent.value_name.startswith("Q")


def name_of(agent: Agent, space: Space) -> str:
    """What `total` differentiates, in symbols."""
    if knows_q(agent):
        return "sum_a Q(s, a)"
    return "the action" if isinstance(space, spaces.Box) else "the best action's margin"


def total(agent: Agent, batch: Batch, space: Space) -> Tensor:
    """One number [B, T] for every slot, of which recall is the derivative.

    It is the sum of Q over the actions, or Q of the action taken where actions are continuous. Without Q, it is what
    decides the action: by how much the greatest logit exceeds the mean of all (summed over the components of
    MultiDiscrete actions), or the sum of the numbers of a continuous action.

    space: of the actions
    """
    if knows_q(agent):
        return agent.action_values(batch).sum(-1)
    features = agent.trunks.actor.read(batch, None)
    if isinstance(space, spaces.Box):
        return agent.greedy(features).sum(-1)
    parts = agent.scores(features).split(component_sizes(space), -1)
    return torch.stack([part.amax(-1) - part.mean(-1) for part in parts]).sum(0)


def opinions(agent: Agent, batch: Batch, space: Space) -> Tensor:
    """What an agent thinks of its actions in every slot [B, T, A]: Q, or their probabilities, or the action itself.

    space: of the actions
    """
    if knows_q(agent):
        return agent.action_values(batch)
    if isinstance(space, spaces.Box):
        return actions(agent, batch)
    logits = agent.scores(agent.trunks.actor.read(batch, None))
    return torch.cat([part.softmax(-1) for part in logits.split(component_sizes(space), -1)], -1)


def actions(agent: Agent, batch: Batch) -> Tensor:
    """The greedy actions of every slot, [B, T, K], K = 1 if they are single numbers."""
    greedy = agent.greedy(agent.trunks.actor.read(batch, None), action_mask(batch.obs))
    return greedy.reshape(*batch.shape, -1)
