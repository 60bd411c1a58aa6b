"""Heads of the off-policy algorithms: from the memory's output to action values and to actions in [-1, 1]."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from rlmem.nets.distributions import TanhGaussian
from rlmem.nets.layers import hidden_layers, small_output

LOG_STD_RANGE = (-20.0, 2.0)
"""Bounds of log_std, as in Haarnoja et al.'s released code and POMDP-Baselines (Ni et al. 2022, arXiv:2110.05038)."""


class QHead(nn.Module):
    """Values q [..., A] of A actions.

    dueling: take q = v + a - mean a, v and a on the same hidden layers (Wang et al. 2016, arXiv:1511.06581, eq. 9)
    """

    def __init__(self, input_size: int, actions: int, sizes: Sequence[int], dueling: bool = False):
        super().__init__()
        self.trunk, width = hidden_layers(input_size, sizes)
        self.out = small_output(width, actions)
        self.value = small_output(width, 1) if dueling else None

    def forward(self, features: Tensor) -> Tensor:
        hidden = self.trunk(features)
        q = self.out(hidden)
        return q if self.value is None else self.value(hidden) + q - q.mean(-1, keepdim=True)


class TwinQDiscrete(nn.Module):
    """Independent values of A actions, against overestimation (Fujimoto et al. 2018, arXiv:1802.09477, section 4.2)."""

    def __init__(self, input_size: int, actions: int, sizes: Sequence[int], twins: int = 2):
        super().__init__()
        self.heads = nn.ModuleList(QHead(input_size, actions, sizes) for _ in range(twins))

    def forward(self, features: Tensor) -> Tensor:
        """q [twins, ..., A] for features [..., input_size]."""
        return torch.stack([head(features) for head in self.heads])


class TwinQ(nn.Module):
    """Independent values of a continuous action (Fujimoto et al. 2018, arXiv:1802.09477, section 4.2)."""

    def __init__(self, input_size: int, action_size: int, sizes: Sequence[int], twins: int = 2):
        super().__init__()
        self.heads = nn.ModuleList(QHead(input_size + action_size, 1, sizes) for _ in range(twins))

    def forward(self, features: Tensor, action: Tensor) -> Tensor:
        """q [twins, ...] for features [..., input_size] and action [..., action_size]."""
        x = torch.cat([features, action], -1)
        return torch.stack([head(x).squeeze(-1) for head in self.heads])


class TanhGaussianHead(nn.Module):
    """SAC's policy over `actions` continuous actions, with a spread that depends on the features."""

    def __init__(self, input_size: int, actions: int, sizes: Sequence[int]):
        super().__init__()
        self.trunk, width = hidden_layers(input_size, sizes)
        self.out = small_output(width, 2 * actions)

    def forward(self, features: Tensor) -> TanhGaussian:
        mean, log_std = self.out(self.trunk(features)).chunk(2, -1)
        return TanhGaussian(mean, log_std.clamp(*LOG_STD_RANGE))


class DeterministicHead(nn.Module):
    """TD3's policy: one action in [-1, 1] per dimension."""

    def __init__(self, input_size: int, actions: int, sizes: Sequence[int]):
        super().__init__()
        self.trunk, width = hidden_layers(input_size, sizes)
        self.out = small_output(width, actions)

    def forward(self, features: Tensor) -> Tensor:
        """Action [..., actions] for features [..., input_size]."""
        return self.out(self.trunk(features)).tanh()
