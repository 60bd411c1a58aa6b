"""Numbers that say whether a policy and a critic can still learn."""

import torch
from torch import Tensor

SLOTS = 128
"""The most slots whose features are decomposed."""
BOUND = 0.99
"""From this size on, an action of [-1, 1] counts as at a bound: tanh' is below 0.02 there."""
DRAWS = 16
"""Actions all over [-1, 1] of a slot whose values are compared."""


def some(features: Tensor) -> Tensor:
    """At most SLOTS of the slots of features [n, F], evenly spaced."""
    return features[torch.linspace(0, len(features) - 1, min(len(features), SLOTS), device=features.device).long()]


def feature_rank(features: Tensor, share: float = 0.99) -> Tensor:
    """Effective rank of features [n, F] (Kumar et al. 2021, arXiv:2010.14498, section 3).

    It is the number of singular values, from the largest, that make up `share` of their sum, over at most SLOTS slots.
    NaN if they cannot be found, as for features that are not finite.
    """
    try:
        sizes = torch.linalg.svdvals(some(features))
    except torch.linalg.LinAlgError:
        return features.new_tensor(torch.nan)
    return (sizes.cumsum(0) < share * sizes.sum()).sum() + 1


def actions_at_bounds(action: Tensor) -> Tensor:
    """Share of the components of actions [..., K] that lie at or beyond a bound of [-1, 1]."""
    return (action.abs() >= BOUND).float().mean()


def action_spread(action: Tensor) -> Tensor:
    """Standard deviation of actions [n, K] over slots, the mean over their components."""
    return action.std(0, correction=0).mean()


def q_spread(q: Tensor) -> Tensor:
    """How far the values [..., A] of the best and the worst of A actions are apart, the mean over slots."""
    return (q.amax(-1) - q.amin(-1)).mean()
