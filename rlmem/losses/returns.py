"""Returns and advantages: the scan of `rlmem.scan`, run from the last slot to the first.

All functions take rows [B, T] under the slot rule: slot t+1 is the successor of an acted slot t, so v_{t+1} is the
value of the state that was really reached, and a truncated episode or a row's end bootstraps from the value found
there. `terminated` cuts the bootstrap; `mask` says where the agent acted, which must not be in the last slot. What the
other slots hold in `reward`, `terminated` and `log_ratio` has no effect, not even NaN. Nothing is detached.

    reward, value: [B, T] float
    terminated, mask: [B, T] bool
    v_{t+1} counts as zero where terminated_t
"""

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
    return _backwards(gamma, torch.where(mask, reward, last), terminated | ~mask)


def n_step_return(reward: Tensor, value: Tensor, terminated: Tensor, mask: Tensor, gamma: float, n: int) -> Tensor:
    """n-step return (Sutton and Barto 2018, eq. 7.1): n rewards, then the value; fewer where the episode ends before.

        G_t = r_t + gamma r_{t+1} + ... + gamma^{n-1} r_{t+n-1} + gamma^n v_{t+n}

    Every slot becomes a row of n slots, so memory and time are n times those of one pass.
    G = v on slots without an action. Returns G [B, T].
    """
    if n == 1:  # the usual case needs no rows
        target = torch.where(mask, reward, value)
        target[:, :-1].add_(torch.where((terminated | ~mask)[:, :-1], 0, value[:, 1:]), alpha=gamma)
        return target
    B, T = mask.shape
    ahead = lambda x, fill: torch.nn.functional.pad(x, (0, n), value=fill)  # noqa: E731
    rows = lambda x: x[:, :-1].unfold(1, n, 1).reshape(B * T, n)  # noqa: E731
    b = ahead(torch.where(mask, reward, value), 0)
    ends = ahead(terminated | ~mask, True)
    bootstrap = ahead(value, 0)[:, n:].reshape(B * T)
    return _backwards(gamma, rows(b), rows(ends), bootstrap)[:, 0].view(B, T)


def gae(reward: Tensor, value: Tensor, terminated: Tensor, mask: Tensor, gamma: float, gae_lambda: float) -> Tensor:
    """Generalised advantage estimation (Schulman et al. 2016, arXiv:1506.02438, eq. 11-16).

        delta_t = r_t + gamma (1 - terminated_t) v_{t+1} - v_t
        A_t = delta_t + gamma lambda (1 - terminated_t) A_{t+1},   A = 0 on slots without an action

    Returns A [B, T].
    """
    delta = _td_error(reward, value, terminated, mask, gamma)
    return _backwards(gamma * gae_lambda, delta, terminated | ~mask)


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
    vs = value + _backwards(gamma * lam * c, delta, terminated | ~mask)
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


def _backwards(decay: float | Tensor, b: Tensor, ends: Tensor, after: Tensor | None = None) -> Tensor:
    """h_t = b_t + decay * (0 if ends_t else h_{t+1}), with `after` [B] behind the last slot."""
    a = decay if isinstance(decay, Tensor) else _scalar(decay, b)
    return linear_scan(a, b, torch.zeros_like(b[:, 0]) if after is None else after, ends, reverse=True)


def _scalar(x: float, like: Tensor) -> Tensor:
    return torch.full((), x, dtype=like.dtype, device=like.device)
