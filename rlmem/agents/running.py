"""Normalisation of observations by their running mean and standard deviation."""

import torch
from torch import Tensor, nn

MOST = 10.0
"""Where normalised observations are clipped, as in VecNormalize."""
LEAST_STD = 1e-4
"""The least standard deviation to divide by, of the order of VecNormalize's: constant observations become zeros."""


class RunningNorm(nn.Module):
    """Observations [..., D], normalised by the statistics of all that were added; VecNormalize of Stable-Baselines3.

        y = clip((x - mean) / max(std, 1e-4), -10, 10)

    Engstrom et al. 2020 (arXiv:2005.12729) measure what it is worth in PPO. Before anything was added, the mean is 0
    and the standard deviation 1. The statistics are buffers, hence a part of the agent, and float64 even in an agent
    of float32, in which one observation among 1e9 would change nothing. Reading does not change them.

    size: D
    leaf: of observations of several parts, the path of the one that it normalises; None: observations have one part
    """

    leaf: str | None = None
    count: Tensor
    mean: Tensor
    variance: Tensor

    def __init__(self, size: int):
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(size, dtype=torch.float64))
        self.register_buffer("variance", torch.ones(size, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        """x [..., D] of any real type to y [..., D] of float64."""
        std = self.variance.sqrt().clamp(min=LEAST_STD)
        return ((x - self.mean) / std).clamp(-MOST, MOST)

    @torch.no_grad()
    def add(self, count: Tensor, mean: Tensor, variance: Tensor) -> None:
        """Merge the statistics of further observations into those so far (Chan et al. 1983, pairwise).

        count: how many there are, []; none change nothing
        mean: their mean [D]
        variance: their variance [D], the mean squared deviation from `mean`
        """
        self.count += count
        new = count / self.count.clamp(min=1)
        old, shift = 1 - new, mean - self.mean
        self.mean += new * shift
        self.variance.copy_(old * self.variance + new * variance + old * new * shift.square())


def name_leaf(module: nn.Module, leaf: str) -> None:
    """Say of which leaf the statistics in a module are."""
    for part in module.modules():
        if isinstance(part, RunningNorm):
            part.leaf = leaf
