"""Losses of Q-learning over A actions, unreduced but for `huber_of_mean`."""

import torch
from torch import Tensor
from torch.nn import functional as F


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
