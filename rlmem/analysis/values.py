"""The value that an agent gives to a slot, differentiable by its inputs."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn

from rlmem.agents.actor_critic import ActorCritic
from rlmem.agents.base import Agent
from rlmem.agents.off_policy import CategoricalAgent, ContinuousAgent, QAgent
from rlmem.losses.q_learning import chosen
from rlmem.nets.encoder import InputEncoder
from rlmem.types import Batch


def value_name(agent: Agent) -> str:
    """ "Q(s, a)" of an agent with action values, "V(s)" of an actor and its critic."""
    return "V(s)" if isinstance(agent, ActorCritic) else "Q(s, a)"


def value_of(agent: Agent, batch: Batch) -> Tensor:
    """Q(s_t, a_t) of the actions that were taken, the smaller one of twins, or V(s_t): [B, T]."""
    features = agent.trunks.read_critic(batch)
    if isinstance(agent, ActorCritic):
        return agent.critic(features).squeeze(-1)
    if isinstance(agent, QAgent):
        return chosen(agent.q(features), agent.joint.index(batch.action))
    if isinstance(agent, CategoricalAgent):
        return chosen(agent.q(features), agent.joint.index(batch.action)).amin(0)
    if isinstance(agent, ContinuousAgent):
        return agent.q(features, batch.action).amin(0)
    raise TypeError(f"{type(agent).__name__} has no value that is known here")


@contextmanager
def observations_as_leaves(encoder: InputEncoder) -> Iterator[list[Tensor]]:
    """In this context, the encoder's observation features [B, T, F] are a leaf that gradients reach.

    The list holds the leaf once the encoder has read: one-hot rows for discrete observations, else numbers. An encoder
    and its shortcut read the same leaf.
    """
    leaves: list[Tensor] = []

    def replace(module: nn.Module, args: tuple[Tensor, ...], features: Tensor) -> Tensor:
        if not leaves:
            dtype = next(encoder.parameters()).dtype
            leaves.append(features.detach().to(dtype).clone().requires_grad_())
        return leaves[0]

    handle = encoder.obs_features.register_forward_hook(replace)
    try:
        yield leaves
    finally:
        handle.remove()


@contextmanager
def nothing_blocked(agent: Agent) -> Iterator[None]:
    """In this context, memories that block gradients in training (LP-RNN) have their true derivatives."""
    blocking = [module for module in agent.modules() if getattr(module, "block_gradients", False)]
    try:
        for module in blocking:
            module.block_gradients = False  # type: ignore[assignment]
        yield
    finally:
        for module in blocking:
            module.block_gradients = True  # type: ignore[assignment]
