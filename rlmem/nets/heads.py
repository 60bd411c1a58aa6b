"""Heads: from the memory's output to action values, to actions in [-1, 1] and to action distributions."""

import math
from typing import Any, ClassVar

import torch
from gymnasium import Space, spaces
from torch import Tensor, nn

from rlmem.nets.distributions import Categorical, Distribution, Gaussian, MultiCategorical, TanhGaussian, masked
from rlmem.nets.layers import POLICY_GAIN, VALUE_GAIN, HeadLayers

SAC_LOG_STD_RANGE = (-20.0, 2.0)
"""Bounds of log_std, as in Haarnoja et al.'s released code and POMDP-Baselines (Ni et al. 2022, arXiv:2110.05038)."""
LOG_STD_INIT = -0.5
LOG_STD_RANGE = (-2.5, 2.0)
"""Bounds of log_std, which keep log-probabilities finite and their rounding small (it grows with 1 / spread)."""


class Head(nn.Module):
    """Hidden layers and an output [..., output_size] from features [..., input_size].

    By itself it gives a policy's logits, and it is the base of all other heads.

    gain: see `HeadLayers.output`
    """

    gain: ClassVar[float] = POLICY_GAIN

    def __init__(self, input_size: int, output_size: int, layers: HeadLayers):
        super().__init__()
        self.trunk, width = layers.hidden(input_size)
        self.out = layers.output(width, output_size, self.gain)

    def output(self, features: Tensor) -> Tensor:
        return self.out(self.trunk(features))

    def forward(self, features: Tensor) -> Any:
        return self.output(features)


class QHead(Head):
    """Values q [..., A] of A actions.

    dueling: take q = v + a - mean a, v and a on the same hidden layers (Wang et al. 2016, arXiv:1511.06581, eq. 9)
    """

    gain = VALUE_GAIN

    def __init__(self, input_size: int, actions: int, layers: HeadLayers, dueling: bool = False):
        super().__init__(input_size, actions, layers)
        self.value = layers.output(self.out.in_features, 1, self.gain) if dueling else None

    def forward(self, features: Tensor) -> Tensor:
        hidden = self.trunk(features)
        q = self.out(hidden)
        return q if self.value is None else self.value(hidden) + q - q.mean(-1, keepdim=True)


class TwinQDiscrete(nn.Module):
    """Independent values of A actions, against overestimation (Fujimoto et al. 2018, arXiv:1802.09477, section 4.2)."""

    def __init__(self, input_size: int, actions: int, layers: HeadLayers, twins: int = 2):
        super().__init__()
        self.heads = nn.ModuleList(QHead(input_size, actions, layers) for _ in range(twins))

    def forward(self, features: Tensor) -> Tensor:
        """q [twins, ..., A] for features [..., input_size]."""
        return torch.stack([head(features) for head in self.heads])


class TwinQ(TwinQDiscrete):
    """Independent values of one continuous action.

    With `head_init=small_output` the action at first moves a value as much as all features do together: its weights in
    the first layer are sqrt(input_size / action_size) times those of the joint matrix. At equal weights one action
    beside 128 features has 1/128 of a value's variance; the critic then learns how good states are long before it tells
    actions apart, and the policy climbs its noise to a bound and stays (docs/algorithms.md, "What matters off-policy").
    """

    def __init__(self, input_size: int, action_size: int, layers: HeadLayers):
        super().__init__(input_size + action_size, 1, layers)
        if layers.init != "small_output":
            return
        with torch.no_grad():
            for head in self.heads:
                first = next(layer for layer in head.modules() if isinstance(layer, nn.Linear))
                first.weight[:, input_size:] *= math.sqrt(input_size / action_size)

    def forward(self, features: Tensor, action: Tensor) -> Tensor:  # type: ignore[override]
        """q [2, ...] for features [..., input_size] and action [..., action_size]."""
        return super().forward(torch.cat([features, action], -1)).squeeze(-1)


class TanhGaussianHead(Head):
    """SAC's policy over `actions` continuous actions, with a spread that depends on the features."""

    def __init__(self, input_size: int, actions: int, layers: HeadLayers):
        super().__init__(input_size, 2 * actions, layers)

    def forward(self, features: Tensor) -> TanhGaussian:
        mean, log_std = self.output(features).chunk(2, -1)
        return TanhGaussian(mean, log_std.clamp(*SAC_LOG_STD_RANGE))


class DeterministicHead(Head):
    """TD3's policy: one action in [-1, 1] for each of the `output_size` dimensions."""

    def forward(self, features: Tensor) -> Tensor:
        return self.output(features).tanh()


class PolicyHead(Head):
    """Hidden layers and an output that parametrises Discrete, MultiDiscrete or Box actions.

    `parameters_of` returns one tensor [..., P], so that a rollout can store the acting policy;
    `distribution` reads it. Continuous actions live in [-1, 1] (see `rlmem.spaces.to_env`).

    state_dependent_std: the spread of continuous actions comes from the features, else it is one learned vector
    """

    def __init__(self, input_size: int, action_space: Space, layers: HeadLayers, state_dependent_std: bool = False):
        log_std = None
        if isinstance(action_space, spaces.Discrete):
            outputs = [int(action_space.n)]
        elif isinstance(action_space, spaces.MultiDiscrete):
            outputs = [int(n) for n in action_space.nvec]
        else:
            outputs = [action_space.shape[0]] * (2 if state_dependent_std else 1)  # type: ignore[index]
            log_std = None if state_dependent_std else nn.Parameter(torch.full(outputs, LOG_STD_INIT))
        super().__init__(input_size, sum(outputs), layers)
        self.sizes, self.log_std, self.kind = outputs, log_std, type(action_space)

    def parameters_of(self, features: Tensor, mask: Tensor | None = None) -> Tensor:
        """Parameters [..., P] of the action distribution for features [..., input_size].

        mask: of discrete actions, those that are allowed [..., P]; None: all
        """
        out = masked(self.output(features), mask)
        return out if self.log_std is None else torch.cat([out, self.log_std.expand_as(out)], -1)

    def distribution(self, parameters: Tensor) -> Distribution:
        if self.kind is spaces.Discrete:
            return Categorical(parameters)
        if self.kind is spaces.MultiDiscrete:
            return MultiCategorical(parameters, self.sizes)
        mean, log_std = parameters.chunk(2, -1)
        return Gaussian(mean, log_std.clamp(*LOG_STD_RANGE))

    def forward(self, features: Tensor, mask: Tensor | None = None) -> Distribution:
        return self.distribution(self.parameters_of(features, mask))
