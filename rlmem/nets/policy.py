"""The policy head: features to the parameters of an action distribution."""

from collections.abc import Sequence

import torch
from gymnasium import Space, spaces
from torch import Tensor, nn

from rlmem.nets.distributions import Categorical, Distribution, Gaussian, MultiCategorical
from rlmem.nets.layers import hidden_layers, small_output

LOG_STD_INIT = -0.5
LOG_STD_RANGE = (-2.5, 2.0)
"""Bounds of log_std, which keep log-probabilities finite and their rounding small (it grows with 1 / spread)."""


class PolicyHead(nn.Module):
    """Hidden layers and an output that parametrises Discrete, MultiDiscrete or Box actions.

    `parameters_of` returns one tensor [..., P], so that a rollout can store the acting policy;
    `distribution` reads it. Continuous actions live in [-1, 1] (see `rlmem.spaces.to_env`).

    state_dependent_std: the spread of continuous actions comes from the features, else it is one learned vector
    """

    def __init__(self, input_size: int, action_space: Space, sizes: Sequence[int], state_dependent_std: bool = False):
        super().__init__()
        self.trunk, width = hidden_layers(input_size, sizes)
        self.log_std: nn.Parameter | None = None
        if isinstance(action_space, spaces.Discrete):
            self.sizes = [int(action_space.n)]
        elif isinstance(action_space, spaces.MultiDiscrete):
            self.sizes = [int(n) for n in action_space.nvec]
        else:
            actions = action_space.shape[0]  # type: ignore[index]
            self.sizes = [actions] * (2 if state_dependent_std else 1)
            if not state_dependent_std:
                self.log_std = nn.Parameter(torch.full((actions,), LOG_STD_INIT))
        self.kind = type(action_space)
        self.out = small_output(width, sum(self.sizes))

    def parameters_of(self, features: Tensor) -> Tensor:
        """Parameters [..., P] of the action distribution for features [..., input_size]."""
        out = self.out(self.trunk(features))
        if self.log_std is not None:
            out = torch.cat([out, self.log_std.expand_as(out)], -1)
        return out

    def distribution(self, parameters: Tensor) -> Distribution:
        if self.kind is spaces.Discrete:
            return Categorical(parameters)
        if self.kind is spaces.MultiDiscrete:
            return MultiCategorical(parameters, self.sizes)
        mean, log_std = parameters.chunk(2, -1)
        return Gaussian(mean, log_std.clamp(*LOG_STD_RANGE))

    def forward(self, features: Tensor) -> Distribution:
        return self.distribution(self.parameters_of(features))
