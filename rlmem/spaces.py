"""Gymnasium spaces: which ones encoders can read, and how policy actions become environment actions."""

from collections.abc import Callable
from math import prod

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor

READABLE = "Box of one dimension, image Box ([C, H, W], [H, W, C] or [H, W]), Discrete or MultiDiscrete"


def is_readable(space: Space) -> bool:
    """Whether an encoder can read observations of `space`."""
    return is_flat(space) or is_image(space)


def is_flat(space: Space) -> bool:
    """Whether elements of `space` are single numbers or rows of them."""
    if isinstance(space, spaces.Box):
        return len(space.shape) == 1
    return isinstance(space, spaces.Discrete) or (isinstance(space, spaces.MultiDiscrete) and space.nvec.ndim == 1)


def is_image(space: Space) -> bool:
    """Whether elements of `space` are grey images [H, W] or images with channels first or last."""
    return isinstance(space, spaces.Box) and len(space.shape) in (2, 3)


def channels_first(space: spaces.Box) -> bool:
    """Whether an image's channels come first: they are on the shorter outer axis, or on the first if both are equal."""
    return space.shape[0] <= space.shape[-1]


def is_bounded(space: spaces.Box) -> bool:
    return bool(np.isfinite(space.low).all() and np.isfinite(space.high).all())


def to_env(space: Space) -> Callable[[np.ndarray], np.ndarray]:
    """How a policy's actions [N, ...] become those of an environment with action space `space`.

    Discrete policies count from zero. Continuous policies act in [-1, 1] per dimension, which is clipped and mapped
    to the bounds; an unbounded Box takes the action as it is.
    """
    if isinstance(space, spaces.Box):
        if not is_bounded(space):
            return lambda action: action.astype(space.dtype)
        low, scale = space.low, (space.high - space.low) / 2
        return lambda action: (low + (np.clip(action, -1, 1) + 1) * scale).astype(space.dtype)
    first = space.start if isinstance(space, spaces.Discrete | spaces.MultiDiscrete) else 0
    return lambda action: (action + first).astype(space.dtype)


def in_env(space: Space, action: Tensor) -> Tensor:
    """What `to_env` returns, of tensors."""
    dtype = torch.from_numpy(np.zeros(0, space.dtype)).dtype
    if isinstance(space, spaces.Box):
        if is_bounded(space):
            low, scale = torch.from_numpy(space.low), torch.from_numpy((space.high - space.low) / 2)
            action = low + (action.clamp(-1, 1) + 1) * scale
        return action.to(dtype)
    first = space.start if isinstance(space, spaces.Discrete | spaces.MultiDiscrete) else 0
    return (action + torch.as_tensor(first)).to(dtype)


class JointActions:
    """The joint actions of a Discrete or one-dimensional MultiDiscrete space, numbered from 0 to n - 1.

    The last component varies fastest.
    """

    def __init__(self, space: Space):
        self.scalar = isinstance(space, spaces.Discrete)
        self.sizes = [int(space.n)] if isinstance(space, spaces.Discrete) else [int(n) for n in space.nvec]  # type: ignore[attr-defined]
        self.n = prod(self.sizes)

    def index(self, action: Tensor) -> Tensor:
        """Number [...] of each action [...] (Discrete) or [..., K]."""
        components = [action] if self.scalar else action.unbind(-1)
        index = torch.zeros_like(components[0], dtype=torch.long)
        for size, component in zip(self.sizes, components, strict=True):
            index = index * size + component.long()
        return index

    def action(self, index: Tensor) -> Tensor:
        """Action [...] (Discrete) or [..., K] of each number [...]."""
        if self.scalar:
            return index
        steps = [prod(self.sizes[k + 1 :]) for k in range(len(self.sizes))]  # from one value of a component to the next
        return torch.stack([index // step % size for step, size in zip(steps, self.sizes, strict=True)], -1)
