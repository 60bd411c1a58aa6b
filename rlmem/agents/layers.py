"""Plain layers shared by encoders and heads, and the normalisation of observations."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn

from rlmem.core.types import PositiveInt
from rlmem.scan import Linear

Activation = Literal["leaky_relu", "relu", "tanh"]
"""Of hidden layers. The output behind tanh is bounded, so that the mean of continuous actions cannot run far away."""
ACTIVATIONS: dict[Activation, type[nn.Module]] = {"leaky_relu": nn.LeakyReLU, "relu": nn.ReLU, "tanh": nn.Tanh}

HeadInit = Literal["small_output", "orthogonal", "torch"]
"""First weights of a head, see `HeadLayers`."""

VALUE_GAIN, POLICY_GAIN = 1.0, 0.01
"""Gains of an orthogonal output (Dhariwal et al. 2017, OpenAI Baselines; Huang et al. 2022, "The 37 implementation
details of PPO", detail 2)."""

MOST = 10.0
"""Where normalised observations are clipped, as in VecNormalize."""
LEAST_STD = 1e-4
"""The least standard deviation to divide by, of the order of VecNormalize's: constant observations become zeros."""


def orthogonal(layer: nn.Linear) -> nn.Linear:
    """Orthogonal weights of gain 1; the bias as torch initialises it (POPGym's networks)."""
    nn.init.orthogonal_(layer.weight)
    return layer


@dataclass(frozen=True)
class HeadLayers:
    """What the heads of an agent are made of.

    sizes: widths of the hidden layers, in order
    activation: of the hidden layers
    init: first weights.
        small_output: orthogonal hidden layers of gain 1 with torch's biases (POPGym's networks), and an output with
            weights N(0, 0.01^2), so that first policies are near uniform and first values near zero
        orthogonal: orthogonal hidden layers of gain sqrt 2 and an orthogonal output of gain 1 for values and 0.01 for
            policies, biases of zero, as in OpenAI's Baselines and in stable-baselines3's on-policy algorithms
        torch: what torch gives a linear layer of n inputs, uniform within 1 / sqrt n, as in stable-baselines3's
            off-policy algorithms
    layer_norm: whether a layer norm stands before every activation
    """

    sizes: Sequence[int]
    activation: Activation = "leaky_relu"
    init: HeadInit = "small_output"
    layer_norm: bool = False

    def hidden(self, input_size: int) -> tuple[nn.Sequential, int]:
        """The hidden layers on [..., input_size] features, and the width of the last."""
        layers: list[nn.Module] = []
        for size in self.sizes:
            layer = Linear(input_size, size)
            if self.init == "small_output":
                orthogonal(layer)
            elif self.init == "orthogonal":
                nn.init.orthogonal_(layer.weight, math.sqrt(2))
                nn.init.zeros_(layer.bias)
            norm = [nn.LayerNorm(size)] if self.layer_norm else []
            layers += [layer, *norm, ACTIVATIONS[self.activation]()]
            input_size = size
        return nn.Sequential(*layers), input_size

    def output(self, input_size: int, output_size: int, gain: float) -> nn.Linear:
        """The last layer.

        gain: of the weights if they are orthogonal, `VALUE_GAIN` or `POLICY_GAIN`
        """
        layer = Linear(input_size, output_size)
        if self.init == "small_output":
            nn.init.normal_(layer.weight, std=0.01)
        elif self.init == "orthogonal":
            nn.init.orthogonal_(layer.weight, gain)
        if self.init != "torch":
            nn.init.zeros_(layer.bias)
        return layer


@dataclass(kw_only=True)
class HeadSettings:
    """What the heads of an algorithm's agent are made of.

    head_sizes: widths of the heads' hidden layers, in order
    activation: of these layers
    head_init: first weights of the heads, see `HeadLayers`
    """

    head_sizes: Sequence[PositiveInt] = (128, 128)
    activation: Activation = "leaky_relu"
    head_init: HeadInit = "small_output"

    @property
    def head_layers(self) -> HeadLayers:
        """The same, as agents take it."""
        return HeadLayers(self.head_sizes, self.activation, self.head_init)


@dataclass(kw_only=True)
class NormedHeadSettings(HeadSettings):
    """The same, with layer norms.

    layer_norm: whether a layer norm stands before every activation
    """

    layer_norm: bool = True

    @property
    def head_layers(self) -> HeadLayers:
        return replace(super().head_layers, layer_norm=self.layer_norm)


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
