"""The n-step return, and the losses of Q-learning over A actions and of Soft Actor-Critic.

Losses are unreduced but for `huber_of_mean`. The return follows the rules of `rlmem.losses.on_policy`.

Of SAC, alpha is the temperature; only its own loss has a gradient in it. Continuous actions come with log pi(a|s) of
one sampled action, discrete ones with logits over all A actions, so that expectations are exact.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from rlmem.losses.on_policy import backwards


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
    return backwards(gamma, rows(b), rows(ends), bootstrap)[:, 0].view(B, T)


def chosen(q: Tensor, action: Tensor) -> Tensor:
    """The values [...] of the actions taken.

    q: [..., A]; the values of several networks may be stacked in front
    action: integers in [0, A), also where the agent did not act, [...] without the stacked dimension
    """
    return q.gather(-1, action.long().expand(q.shape[:-1])[..., None]).squeeze(-1)


def greedy_value(q_selector: Tensor, q: Tensor, allowed: Tensor | None = None) -> Tensor:
    """Value of the greedy action, in double Q-learning's form (van Hasselt et al. 2016, arXiv:1509.06461, eq. 4).

        v_t = q_t[argmax_a q_selector_t[a]]

    The selector is the online network and q the target network; the same tensor twice gives max_a q_t[a], DQN's value
    (Mnih et al. 2015). Both [B, T, A]. Where `allowed` [B, T, A] is given, the maximum is over these actions. Without
    gradient. Returns v [B, T].
    """
    selector = q_selector if allowed is None else q_selector.masked_fill(~allowed, -torch.inf)
    return chosen(q.detach(), selector.argmax(-1))


def huber(error: Tensor, delta: float = 1.0) -> Tensor:
    """Huber's loss (Huber 1964): with delta = 1 the clipped error of DQN (Mnih et al. 2015, Methods).

        L = e^2 / 2 if |e| <= delta, else delta (|e| - delta / 2)

    error [...]. Returns L [...].
    """
    return F.huber_loss(error, torch.zeros_like(error), reduction="none", delta=delta)


def huber_of_mean(error: Tensor, delta: float = 1.0) -> Tensor:
    """Huber's loss of the mean absolute error of n slots, a scalar.

        L = huber(sum_t |e_t| / n)

    The released code of Memoroids (Morad et al. 2024, arXiv:2402.09900) minimises this with segments, but not with
    tapes. Every slot's gradient has the same size, whatever its error. error [n].
    """
    return huber(error.abs().sum() / max(len(error), 1), delta)


RESCALING = 1e-3
"""epsilon of `rescaled`."""


def rescaled(x: Tensor) -> Tensor:
    """h(x) = sign(x) (sqrt(|x| + 1) - 1) + epsilon x, by which values of any size fit one network (Pohlen et al. 2018,
    arXiv:1805.11593, section 3.2)."""
    size = x.abs()
    return x.sign() * size / ((size + 1).sqrt() + 1) + RESCALING * x


def unscaled(x: Tensor) -> Tensor:
    """The inverse of `rescaled`: sign(x) (((sqrt(1 + 4 epsilon (|x| + 1 + epsilon)) - 1) / (2 epsilon))^2 - 1)."""
    above = x.abs() + 1 + RESCALING
    root = 2 * above / ((1 + 4 * RESCALING * above).sqrt() + 1)
    return x.sign() * (root.square() - 1)


def actor_loss(q: Tensor, log_prob: Tensor, temperature: Tensor | float) -> Tensor:
    """Actor loss of a reparametrised action (Haarnoja et al. 2018, arXiv:1812.05905, eq. 9).

        L_t = alpha log pi(a_t|s_t) - q(s_t, a_t),   a_t = f(noise; s_t)

    Both [B, T]. The gradient passes through q to the action; the caller must keep the critic from learning from it.
    If q is the smaller of the two target values, -L is the soft value of the state (eq. 3). Returns L [B, T].
    """
    return _constant(temperature) * log_prob - q


def actor_loss_discrete(q: Tensor, logits: Tensor, temperature: Tensor | float) -> Tensor:
    """Actor loss in expectation over all actions (Christodoulou 2019, arXiv:1910.07207, eq. 12).

        L_t = sum_a pi(a|s_t) (alpha log pi(a|s_t) - q_t[a])

    Both [B, T, A]. In the paper q is a constant; the caller detaches it where that is wanted, since a memory that is
    shared with the critic may learn through it. With the target twins for q, -L is the soft value (eq. 10). Returns
    L [B, T].
    """
    log_p = logits.log_softmax(-1)
    return (log_p.exp() * (_constant(temperature) * log_p - q)).sum(-1)


def temperature_loss(log_temperature: Tensor, log_prob: Tensor, target_entropy: Tensor | float) -> Tensor:
    """Loss of the temperature (Haarnoja et al. 2018, arXiv:1812.05905, eq. 18, with log alpha for the factor alpha).

        L_t = -log alpha (log pi(a_t|s_t) + target_entropy)

    The form of the authors' code: its gradient in log alpha is that of eq. 18 over alpha, so it has the same sign and
    zero, and does not fade as alpha does (in POMDP-Baselines it does). log_prob [B, T], or the policy's negative
    entropy where that is exact, is a constant; log_temperature is a scalar. Returns L [B, T].
    """
    return -log_temperature * (log_prob.detach() + target_entropy)


def _constant(temperature: Tensor | float) -> Tensor | float:
    return temperature.detach() if isinstance(temperature, Tensor) else temperature
