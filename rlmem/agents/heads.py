"""Heads: from the memory's output to action distributions, actions and action values, fast enough for acting: no
validation, and generators are passed.

Shapes of distributions: parameters [..., P]; actions [...] (Categorical) or [..., K]; log_prob, entropy and kl [...].
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import log, pi, sqrt
from typing import Any, ClassVar, Protocol

import torch
from gymnasium import Space, spaces
from torch import Tensor, nn
from torch.nn import functional as F

from rlmem.agents.layers import POLICY_GAIN, VALUE_GAIN, HeadLayers
from rlmem.core.spaces import component_sizes

LOG_STD_INIT = -0.5
LOG_STD_RANGE = (-2.5, 2.0)
"""Bounds of log_std, which keep log-probabilities finite and their rounding small (it grows with 1 / spread)."""
SAC_LOG_STD_RANGE = (-20.0, 2.0)
"""Bounds of log_std, as in Haarnoja et al.'s released code and POMDP-Baselines (Ni et al. 2022, arXiv:2110.05038)."""


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


class PolicyHead(Head):
    """Hidden layers and an output that parametrises Discrete, MultiDiscrete or Box actions.

    `parameters_of` returns one tensor [..., P], so that a rollout can store the acting policy;
    `distribution` reads it. Continuous actions live in [-1, 1] (see `rlmem.core.spaces.to_env`).

    state_dependent_std: the spread of continuous actions comes from the features, else it is one learned vector
    """

    def __init__(self, input_size: int, action_space: Space, layers: HeadLayers, state_dependent_std: bool = False):
        log_std = None
        if isinstance(action_space, spaces.Discrete | spaces.MultiDiscrete):
            outputs = component_sizes(action_space)
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


LEAST = torch.finfo(torch.float32).tiny
FORBIDDEN = -1e8
"""The logit of an action that is not allowed, as in sb3-contrib: its probability is exactly 0, and so is p log p, which
would be NaN for an infinite one."""

NO_ACTION = -(2**62)
"""What `nll_loss` is to ignore: nothing."""


def masked(scores: Tensor, mask: Tensor | None, instead: float = FORBIDDEN) -> Tensor:
    """Scores [..., A] of actions; those that `mask` [..., A] does not allow are `instead`, and get no gradient."""
    return scores if mask is None else torch.where(mask, scores, instead)


class Distribution(Protocol):
    """What algorithms need of an action distribution."""

    def sample(self, generator: torch.Generator) -> Tensor: ...
    def mode(self) -> Tensor: ...
    def log_prob(self, action: Tensor) -> Tensor: ...
    def entropy(self) -> Tensor: ...
    def kl(self, other: Any) -> Tensor: ...  # KL(self || other); `other` is a distribution of the same class


@dataclass
class Categorical:
    """One of A actions from unnormalised `logits` [..., A]."""

    logits: Tensor
    _log_p: Tensor | None = field(default=None, init=False, repr=False, compare=False)

    def sample(self, generator: torch.Generator) -> Tensor:
        # An exponential race: argmax of logits - log E is distributed as softmax(logits). An E of 0 would always win.
        race = torch.empty_like(self.logits).exponential_(generator=generator).clamp_min_(LEAST)
        return (self.logits - race.log()).argmax(-1)

    def mode(self) -> Tensor:
        return self.logits.argmax(-1)

    @property
    def log_p(self) -> Tensor:
        """Log-probabilities [..., A] of all actions, kept with their gradient, which can be taken once in all."""
        if self._log_p is not None:
            return self._log_p
        log_p = self.logits.log_softmax(-1)
        if log_p.requires_grad == self.logits.requires_grad:
            self._log_p = log_p
        return log_p

    def log_prob(self, action: Tensor) -> Tensor:
        log_p = self.log_p.flatten(0, -2) if action.dim() else self.log_p[None]
        # The gradient of `gather` would add to random places, which takes longer.
        loss = F.nll_loss(log_p, action.flatten(), reduction="none", ignore_index=NO_ACTION)
        return -loss.view(action.shape)

    def entropy(self) -> Tensor:
        return -(self.log_p.exp() * self.log_p).sum(-1)

    def kl(self, other: Categorical) -> Tensor:
        return (self.log_p.exp() * (self.log_p - other.log_p)).sum(-1)


@dataclass
class MultiCategorical:
    """K independent categoricals, the k-th over sizes[k] actions; logits [..., sum(sizes)]."""

    logits: Tensor
    sizes: list[int]

    def parts(self) -> list[Categorical]:
        return [Categorical(part) for part in self.logits.split(self.sizes, -1)]

    def sample(self, generator: torch.Generator) -> Tensor:
        return torch.stack([part.sample(generator) for part in self.parts()], -1)

    def mode(self) -> Tensor:
        return torch.stack([part.mode() for part in self.parts()], -1)

    def log_prob(self, action: Tensor) -> Tensor:
        terms = [p.log_prob(a) for p, a in zip(self.parts(), action.unbind(-1), strict=True)]
        return torch.stack(terms).sum(0)

    def entropy(self) -> Tensor:
        return torch.stack([part.entropy() for part in self.parts()]).sum(0)

    def kl(self, other: MultiCategorical) -> Tensor:
        return torch.stack([p.kl(q) for p, q in zip(self.parts(), other.parts(), strict=True)]).sum(0)


@dataclass
class Gaussian:
    """Independent normal actions with `mean` and `log_std`, both [..., K]."""

    mean: Tensor
    log_std: Tensor

    def sample(self, generator: torch.Generator) -> Tensor:
        noise = torch.empty_like(self.mean).normal_(generator=generator)
        return self.mean + self.log_std.exp() * noise

    def mode(self) -> Tensor:
        return self.mean

    def log_prob(self, action: Tensor) -> Tensor:
        z = (action - self.mean) * torch.exp(-self.log_std)
        return (-0.5 * (z.square() + log(2 * pi)) - self.log_std).sum(-1)

    def entropy(self) -> Tensor:
        return (self.log_std + 0.5 * (1 + log(2 * pi))).sum(-1)

    def kl(self, other: Gaussian) -> Tensor:
        ratio = torch.exp(2 * (self.log_std - other.log_std))
        distance = (self.mean - other.mean).square() * torch.exp(-2 * other.log_std)
        return (other.log_std - self.log_std + 0.5 * (ratio + distance - 1)).sum(-1)


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
    return 2 * (log(2) - u - F.softplus(-2 * u)).sum(-1)


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

    def __init__(self, input_size: int, actions: int, layers: HeadLayers):
        super().__init__()
        self.heads = nn.ModuleList(QHead(input_size, actions, layers) for _ in range(2))

    def forward(self, features: Tensor) -> Tensor:
        """q [2, ..., A] for features [..., input_size]."""
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
                first.weight[:, input_size:] *= sqrt(input_size / action_size)

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
