"""Returns and advantages, the losses of PPO, unreduced, and means over the slots that count.

Returns are the scan of `rlmem.scan`, run from the last slot to the first. They take rows [B, T] under the slot rule:
slot t+1 is the successor of an acted slot t, so v_{t+1} is the value of the state that was really reached, and a
truncated episode or a row's end bootstraps from the value found there. `terminated` cuts the bootstrap; `mask` says
where the agent acted, which must not be in the last slot. What the other slots hold in `reward`, `terminated` and
`log_ratio` has no effect, not even NaN. Nothing is detached.

    reward, value: [B, T] float
    terminated, mask: [B, T] bool
    v_{t+1} counts as zero where terminated_t
"""

from collections.abc import Callable
from math import log

import torch
from torch import Tensor

from rlmem.scan import linear_scan


def discounted_return(
    reward: Tensor, terminated: Tensor, mask: Tensor, gamma: float, value: Tensor | None = None
) -> Tensor:
    """Discounted return (Sutton and Barto 2018, eq. 3.9), bootstrapped where an episode was cut if `value` is given.

        G_t = r_t + gamma (1 - terminated_t) G_{t+1},   G = v (or 0) on slots without an action

    Returns G [B, T].
    """
    last = torch.zeros_like(reward) if value is None else value
    return backwards(gamma, torch.where(mask, reward, last), terminated | ~mask)


def gae(reward: Tensor, value: Tensor, terminated: Tensor, mask: Tensor, gamma: float, gae_lambda: float) -> Tensor:
    """Generalised advantage estimation (Schulman et al. 2016, arXiv:1506.02438, eq. 11-16).

        delta_t = r_t + gamma (1 - terminated_t) v_{t+1} - v_t
        A_t = delta_t + gamma lambda (1 - terminated_t) A_{t+1},   A = 0 on slots without an action

    Returns A [B, T].
    """
    delta = _td_error(reward, value, terminated, mask, gamma)
    return backwards(gamma * gae_lambda, delta, terminated | ~mask)


def lambda_return(reward: Tensor, value: Tensor, terminated: Tensor, mask: Tensor, gamma: float, lam: float) -> Tensor:
    """lambda-return (Sutton and Barto 2018, eq. 12.2, in its recursive form), which is gae + v.

        R_t = r_t + gamma (1 - terminated_t) ((1 - lambda) v_{t+1} + lambda R_{t+1})

    R = v on slots without an action. Returns R [B, T].
    """
    return gae(reward, value, terminated, mask, gamma, lam) + value


def vtrace(
    log_ratio: Tensor,
    reward: Tensor,
    value: Tensor,
    terminated: Tensor,
    mask: Tensor,
    gamma: float,
    lam: float = 1.0,
    rho_bar: float = 1.0,
    c_bar: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """V-trace (Espeholt et al. 2018, arXiv:1802.01561, section 4.1), with the lambda of its remark 2.

        rho_t = min(rho_bar, pi/mu),   c_t = lambda min(c_bar, pi/mu),   log_ratio = log pi - log mu  [B, T]
        vs_t = v_t + rho_t delta_t + gamma c_t (1 - terminated_t) (vs_{t+1} - v_{t+1}),   delta as in `gae`
        advantage_t = rho_t (r_t + gamma (1 - terminated_t) vs_{t+1} - v_t)

    vs = v and advantage = 0 on slots without an action. Returns the value targets vs and the advantages of the policy
    gradient, both [B, T].
    """
    log_ratio = torch.where(mask, log_ratio, 0)
    rho, c = (log_ratio.clamp(max=log(bound)).exp() for bound in (rho_bar, c_bar))
    delta = rho * _td_error(reward, value, terminated, mask, gamma)
    vs = value + backwards(gamma * lam * c, delta, terminated | ~mask)
    return vs, rho * _td_error(reward, value, terminated, mask, gamma, vs)


def prefix_return(reward: Tensor, start: Tensor, gamma: float) -> Tensor:
    """The "return" of the released code of Memoroids (Morad et al. 2024, arXiv:2402.09900, appendix D).

        P_t = r_s + gamma r_{s+1} + ... + gamma^{t-s} r_t,   s the episode's first slot

    It looks back, where a return looks ahead: a published quantity to compare with, not a target to learn from.
    start [B, T] bool; a row's slot 0 counts as one. Returns P [B, T].
    """
    begins = start.clone()
    begins[:, 0] = True
    zero = torch.zeros_like(reward[:, 0])
    weight = linear_scan(_scalar(gamma, reward), begins.to(reward.dtype), zero, begins)
    return linear_scan(_scalar(1.0, reward), weight * reward, zero, begins)


def _td_error(
    reward: Tensor, value: Tensor, terminated: Tensor, mask: Tensor, gamma: float, successor: Tensor | None = None
) -> Tensor:
    """r_t + gamma (1 - terminated_t) v_{t+1} - v_t where the agent acted, 0 elsewhere, in few passes over memory.

    successor: what to take for v_{t+1}, by slot t+1, instead of `value`.
    """
    if not reward.is_floating_point():
        raise ValueError(f"reward: expected a floating type, got {reward.dtype}")
    v_t = (value if successor is None else successor)[:, 1:]
    delta = reward - value
    delta[:, :-1].add_(torch.where(terminated[:, :-1], 0, v_t), alpha=gamma)
    return torch.where(mask, delta, 0)


def backwards(decay: float | Tensor, b: Tensor, ends: Tensor, after: Tensor | None = None) -> Tensor:
    """h_t = b_t + decay * (0 if ends_t else h_{t+1}), with `after` [B] behind the last slot."""
    a = decay if isinstance(decay, Tensor) else _scalar(decay, b)
    return linear_scan(a, b, torch.zeros_like(b[:, 0]) if after is None else after, ends, reverse=True)


def _scalar(x: float, like: Tensor) -> Tensor:
    return torch.full((), x, dtype=like.dtype, device=like.device)


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


def masked_total(x: Tensor, mask: Tensor, weight: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Sum of x where mask, and the number of these slots. Values outside the mask have no effect, not even NaN.
    Arguments as in `masked_mean`.
    """
    counted = torch.where(mask, x if weight is None else weight * x, 0)
    return counted.flatten(-mask.dim()).sum(-1), mask.sum()


def masked_mean(x: Tensor, mask: Tensor, weight: Tensor | None = None) -> Tensor:
    """Mean of x where mask; zero if the mask is empty.

    x: [B, T], or several of these [K, B, T], of which [K] means are returned
    mask: [B, T] bool
    weight: [B, T] factors of the terms, such as importance weights; the sum is still divided by the number of slots
    """
    total, count = masked_total(x, mask, weight)
    return total / count.clamp(min=1)


def standardise(x: Tensor, mask: Tensor, mean: Callable[[Tensor, Tensor], Tensor] = masked_mean) -> Tensor:
    """x shifted and scaled to mean 0 and standard deviation 1 over the mask.

    x: [B, T], without gradient
    mask: [B, T] bool
    mean: takes the mean of a tensor [B, T] over a mask; another one where several processes share the slots
    """
    average = mean(x, mask)
    return (x - average) / (mean((x - average).square(), mask).sqrt() + 1e-8)
