"""The features of observations, where analyses change what an agent reads and take derivatives."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from rlmem.agents.trunk import Trunk
from rlmem.core.errors import UserError


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


def read_by(trunk: Trunk, batch: Any) -> Tensor:
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
