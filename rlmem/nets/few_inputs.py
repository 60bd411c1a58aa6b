"""Inputs of which there are few: all of them are encoded once, in the place of every slot."""

from __future__ import annotations

from math import prod

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor, nn

from rlmem.types import Inputs

MOST = 4096
"""Inputs that are still few."""


class Elements(nn.Module):
    """The elements of a Discrete or MultiDiscrete space, in a fixed order.

    from_zero: its components count from 0, as those of policy actions do
    """

    values: Tensor
    least: Tensor
    weight: Tensor

    def __init__(self, space: Space, from_zero: bool = False):
        super().__init__()
        sizes = np.array(_sizes(space))
        first = np.zeros_like(sizes) if from_zero else np.atleast_1d(space.start)  # type: ignore[attr-defined]
        values = np.stack(np.unravel_index(np.arange(prod(sizes)), sizes), -1) + first
        weight = np.append(np.cumprod(sizes[:0:-1])[::-1], 1)
        self.single = isinstance(space, spaces.Discrete)
        self.count, self.first = len(values), first.tolist()
        tables = {"values": values, "least": first, "weight": weight}
        for name, table in tables.items():
            tensor = torch.as_tensor(np.ascontiguousarray(table), dtype=torch.long)
            self.register_buffer(name, tensor[..., 0] if self.single else tensor, persistent=False)

    def number(self, x: Tensor) -> Tensor:
        """Which element each of x [..., *shape] is: [...]; any number for what is outside the space."""
        x = x.long()
        if self.single:
            return x - self.first[0] if self.first[0] else x
        return ((x - self.least) * self.weight).sum(-1)


class FewInputs(nn.Module):
    """All that an encoder can read of a slot whose observation and previous action are discrete, in a fixed order.

    An episode's first slot has no previous action, which counts as one action more; a start flag says nothing else.

    observations: the space of observations
    actions: the space of policy actions; None: the encoder does not read them
    """

    obs: Tensor
    prev_action: Tensor
    prev_reward: Tensor
    start: Tensor

    def __init__(self, observations: Space, actions: Space | None):
        super().__init__()
        self.observations = Elements(observations)
        self.actions = None if actions is None else Elements(actions, from_zero=True)
        self.kinds = 1 if self.actions is None else self.actions.count
        self.count = self.observations.count * (self.kinds + 1)
        for name, tensor in self._all()._asdict().items():
            self.register_buffer(name, tensor, persistent=False)

    @classmethod
    def of(cls, observations: Space, actions: Space | None) -> FewInputs | None:
        """The inputs of two spaces, or None if they are not discrete or more than `MOST`."""
        sizes = _sizes(observations), [] if actions is None else _sizes(actions)
        if sizes[0] is None or sizes[1] is None or prod(sizes[0]) * (prod(sizes[1]) + 1) > MOST:
            return None
        return cls(observations, actions)

    def all(self) -> Inputs:
        """The inputs [count, ...], without rewards."""
        return Inputs(self.obs, self.prev_action, self.prev_reward, self.start)

    def _all(self) -> Inputs:
        """`all`, computed: it never changes, and is kept in buffers."""
        number = torch.arange(self.count)
        start = number >= self.observations.count * self.kinds
        action = torch.where(start, 0, number // self.observations.count)
        prev_action = action if self.actions is None else self.actions.values[action]
        return Inputs(
            self.observations.values[number % self.observations.count], prev_action, torch.zeros(self.count), start
        )

    def number(self, inputs: Inputs) -> Tensor:
        """Which of all inputs each slot has: [...] of start [...]; any, for what is outside the spaces."""
        action = torch.zeros_like(inputs.start, dtype=torch.long)
        if self.actions is not None:
            action = self.actions.number(inputs.prev_action)
        action = action.masked_fill(inputs.start, self.kinds)
        number = torch.add(self.observations.number(inputs.obs), action, alpha=self.observations.count)
        return number.clamp_(0, self.count - 1)  # padding may be anything


def _sizes(space: Space) -> list[int] | None:
    """How many values each component of a discrete space has; None: it is another one."""
    if isinstance(space, spaces.Discrete):
        return [int(space.n)]
    one_row = isinstance(space, spaces.MultiDiscrete) and len(space.shape) == 1
    return [int(n) for n in space.nvec] if one_row else None  # type: ignore[attr-defined]
