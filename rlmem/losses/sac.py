"""Losses of Soft Actor-Critic, unreduced. alpha is the temperature; only its own loss has a gradient in it.

Continuous actions come with log pi(a|s) of one sampled action, discrete ones with logits over all A actions, so that
expectations are exact.
"""

from torch import Tensor


def soft_value(q: Tensor, log_prob: Tensor, temperature: Tensor | float) -> Tensor:
    """Soft state value from one action of the policy (Haarnoja et al. 2018, arXiv:1812.05905, eq. 3).

        v_t = q_t - alpha log pi(a_t|s_t),   a_t ~ pi

    q is the lesser of the target twins at that action; both [B, T]. Without gradient. Returns v [B, T].
    """
    return (q - temperature * log_prob).detach()


def soft_value_discrete(q: Tensor, logits: Tensor, temperature: Tensor | float) -> Tensor:
    """Soft state value, its expectation taken over all actions (Christodoulou 2019, arXiv:1910.07207, eq. 10).

        v_t = sum_a pi(a|s_t) (q_t[a] - alpha log pi(a|s_t))

    Both [B, T, A]. Without gradient. Returns v [B, T].
    """
    return -actor_loss_discrete(q, logits, temperature).detach()


def actor_loss(q: Tensor, log_prob: Tensor, temperature: Tensor | float) -> Tensor:
    """Actor loss of a reparametrised action (Haarnoja et al. 2018, arXiv:1812.05905, eq. 9).

        L_t = alpha log pi(a_t|s_t) - q(s_t, a_t),   a_t = f(noise; s_t)

    Both [B, T]. The gradient passes through q to the action; the caller must keep the critic from learning from it.
    Returns L [B, T].
    """
    return _constant(temperature) * log_prob - q


def actor_loss_discrete(q: Tensor, logits: Tensor, temperature: Tensor | float) -> Tensor:
    """Actor loss in expectation over all actions (Christodoulou 2019, arXiv:1910.07207, eq. 12).

        L_t = sum_a pi(a|s_t) (alpha log pi(a|s_t) - q_t[a])

    Both [B, T, A]. In the paper q is a constant; the caller detaches it where that is wanted, since a memory that is
    shared with the critic may learn through it. Returns L [B, T].
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
