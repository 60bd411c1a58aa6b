"""What an agent reads, where analyses change it and take derivatives, and what its heads say in every slot."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from gymnasium import Space, spaces
from torch import Tensor, nn

from rlmem.agents.actor_critic import Agent
from rlmem.agents.trunk import Trunk
from rlmem.core.errors import UserError
from rlmem.core.spaces import component_sizes
from rlmem.core.types import Batch, action_mask


@contextmanager
def replaced(trunks: Iterable[Any], change: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """In this context, trunks read `change(features)` in place of the features [..., F] of an observation.

    trunks: whose encoders, the shortcuts beside their memories included
    change: called whenever features are asked for, which is more than once where there are shortcuts

    Raises UserError for an encoder of observations of several parts, and if no observation was read as features.
    """
    asked: list[nn.Module] = []
    with ExitStack() as hooks:
        for trunk in trunks:
            if getattr(trunk.encoder, "reads_leaves", False):
                why = "the encoder reads observations of several parts, and not one row of features"
                raise UserError(f"{why}; expected a run with observations of one part")
            dtype = next((p.dtype for p in trunk.parameters()), torch.get_default_dtype())

            def hook(module: nn.Module, args: Any, features: Tensor, dtype: torch.dtype = dtype) -> Tensor:
                asked.append(module)
                return change(features.to(dtype))

            hooks.callback(trunk.encoder.obs_features.register_forward_hook(hook).remove)
        yield
    if not asked:
        raise UserError("the encoder does not read observations through `obs_features`")


def read_by(trunk: Trunk, batch: Batch) -> Tensor:
    """What the memory of a trunk reads in every slot, [N, S, D]."""
    inputs: list[Tensor] = []
    hook = trunk.encoder.register_forward_hook(lambda module, args, x: inputs.append(x))
    try:
        trunk.read(batch, None)
    finally:
        hook.remove()
    return inputs[0]


@contextmanager
def nothing_blocked(network: nn.Module) -> Iterator[None]:
    """In this context, memories that block gradients in training (LP-RNN) have their true derivatives."""
    blocking: list[Any] = [module for module in network.modules() if getattr(module, "block_gradients", False)]
    try:
        for module in blocking:
            module.block_gradients = False
        yield
    finally:
        for module in blocking:
            module.block_gradients = True


def derivative_sizes(trunk: Trunk, total: Callable[[], Tensor]) -> Tensor:
    """|d total / d o_i|_1 [N, S]: the sum over the features of each observation that a trunk reads.

    total: the sum of what is differentiated, computed from rows of slots [N, S] when it is called
    """
    leaves: list[Tensor] = []

    def as_leaf(features: Tensor) -> Tensor:
        """One leaf [N, S, F] of the derivative, the same for the encoder and its shortcut."""
        if not leaves:
            leaves.append(features.detach().clone().requires_grad_())
        return leaves[0]

    with nothing_blocked(trunk), replaced([trunk], as_leaf):
        value = total()
    (gradient,) = torch.autograd.grad(value, leaves)
    return gradient.abs().flatten(2).sum(-1)


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
