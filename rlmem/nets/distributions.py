"""Action distributions, fast enough for acting: no validation, and generators are passed.

Shapes: parameters [..., P]; actions [...] (Categorical) or [..., K]; log_prob, entropy and kl [...].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import log, pi
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

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
    def draw(self, generator: torch.Generator, out: Sequence[Tensor] | None = None) -> Sequence[Tensor]: ...
    def sampled(self, noise: Sequence[Tensor]) -> Tensor: ...  # from what `draw` returned, or wrote to `out`
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
        return self.sampled(self.draw(generator))

    def draw(self, generator: torch.Generator, out: Sequence[Tensor] | None = None) -> Sequence[Tensor]:
        (race,) = [torch.empty_like(self.logits)] if out is None else out
        return [race.exponential_(generator=generator)]

    def sampled(self, noise: Sequence[Tensor]) -> Tensor:
        # An exponential race: argmax of logits - log E is distributed as softmax(logits). An E of 0 would always win.
        (race,) = noise
        return (self.logits - race.clamp_min(LEAST).log_()).argmax(-1)

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
        return self.sampled(self.draw(generator))

    def draw(self, generator: torch.Generator, out: Sequence[Tensor] | None = None) -> Sequence[Tensor]:
        parts = self.parts()
        races = [None] * len(parts) if out is None else [[race] for race in out]
        return [part.draw(generator, race)[0] for part, race in zip(parts, races, strict=True)]

    def sampled(self, noise: Sequence[Tensor]) -> Tensor:
        return torch.stack([part.sampled([race]) for part, race in zip(self.parts(), noise, strict=True)], -1)

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
        return self.sampled(self.draw(generator))

    def draw(self, generator: torch.Generator, out: Sequence[Tensor] | None = None) -> Sequence[Tensor]:
        (normal,) = [torch.empty_like(self.mean)] if out is None else out
        return [normal.normal_(generator=generator)]

    def sampled(self, noise: Sequence[Tensor]) -> Tensor:
        return self.mean + self.log_std.exp() * noise[0]

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
