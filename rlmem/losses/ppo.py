"""Losses of Proximal Policy Optimisation, unreduced."""

import torch
from torch import Tensor


def clipped_surrogate(log_prob: Tensor, behaviour_log_prob: Tensor, advantage: Tensor, clip: float) -> Tensor:
    """Clipped surrogate objective, negated (Schulman et al. 2017, arXiv:1707.06347, eq. 7).

        L = -min(rho A, clip(rho, 1 - eps, 1 + eps) A),   rho = pi(a|s) / pi_behaviour(a|s)

    All [B, T]. Returns L [B, T].
    """
    rho = torch.exp(log_prob - behaviour_log_prob)
    return -torch.minimum(rho * advantage, rho.clamp(1 - clip, 1 + clip) * advantage)


def value_error(value: Tensor, target: Tensor, clamp: float | None = None) -> Tensor:
    """Squared error of values [B, T]; `clamp` bounds it from above, which stops the gradient of larger ones (RLlib)."""
    error = (value - target).square()
    return error if clamp is None else error.clamp(max=clamp)


def with_discrepancy(error: Tensor, value: Tensor, second_error: Tensor, second: Tensor, weight: float) -> Tensor:
    """The value loss with the lambda-discrepancy (Allen et al. 2024, arXiv:2407.07333, section 5).

        L = (1 - w) (error + error') / 2 + w (V - V')^2

    V learns the returns of one lambda, V' those of another. All [B, T]. Returns L [B, T].
    """
    return (1 - weight) * (error + second_error) / 2 + weight * (value - second).square()


def adapt_kl_coef(coef: float, kl: float, target: float) -> float:
    """Next weight of the KL penalty (Schulman et al. 2017, section 4, with RLlib's thresholds and factors)."""
    if kl > 2 * target:
        return coef * 1.5
    if kl < 0.5 * target:
        return coef * 0.5
    return coef
