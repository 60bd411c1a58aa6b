"""Heads of off-policy agents: from the memory's output to action values and to actions in [-1, 1]."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rlmem.nets.heads import Gaussian, Head
from rlmem.nets.layers import VALUE_GAIN, HeadLayers

SAC_LOG_STD_RANGE = (-20.0, 2.0)
"""Bounds of log_std, as in Haarnoja et al.'s released code and POMDP-Baselines (Ni et al. 2022, arXiv:2110.05038)."""


@dataclass
class TanhGaussian:
    """a = tanh(u), u normal with `mean` and `log_std`, both [..., K] (Haarnoja et al. 2018, arXiv:1812.05905, app. C).

        log pi(a) = log N(u) - sum_k log(1 - a_k^2),   log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2 u))

    Entropy and KL have no closed form.
    """

    mean: Tensor
    log_std: Tensor

    def rsample(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        """An action [..., K] and its log-probability [...]; gradients flow through both to mean and log_std.

        noise: standard normal draws [..., K]
        """
        noise = self.log_std.exp() * noise
        u = self.mean + noise
        return u.tanh(), self._noise().log_prob(noise) - _log_slope(u)

    def sample(self, generator: torch.Generator) -> Tensor:
        return (self.mean + self._noise().sample(generator)).tanh()

    def mode(self) -> Tensor:
        """tanh(mean), the greedy action; the density may peak elsewhere."""
        return self.mean.tanh()

    def log_prob(self, action: Tensor) -> Tensor:
        """log pi(a); rounding has lost u where |a| > 1 - eps of its type, so such an action counts as 1 - eps."""
        bound = 1 - torch.finfo(action.dtype).eps
        u = action.clamp(-bound, bound).atanh()
        return self._noise().log_prob(u - self.mean) - _log_slope(u)

    def _noise(self) -> Gaussian:
        """The distribution of u - mean: added to the mean, noise of a small spread would be rounded away."""
        return Gaussian(torch.zeros_like(self.mean), self.log_std)


def _log_slope(u: Tensor) -> Tensor:
    """sum_k log(1 - tanh(u_k)^2), finite for every u."""
    return 2 * (math.log(2) - u - F.softplus(-2 * u)).sum(-1)


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
