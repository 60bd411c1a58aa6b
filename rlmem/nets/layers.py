"""Plain layers shared by encoders and heads."""

from collections.abc import Sequence
from typing import Literal

from torch import nn

from rlmem.scan import Linear

Activation = Literal["leaky_relu", "tanh"]
"""Of hidden layers. The output behind tanh is bounded, so that the mean of continuous actions cannot run far away."""


def orthogonal(layer: nn.Linear) -> nn.Linear:
    """Orthogonal weights of gain 1; the bias as torch initialises it (POPGym's networks)."""
    nn.init.orthogonal_(layer.weight)
    return layer


def small_output(input_size: int, output_size: int) -> nn.Linear:
    """Last layer of a head: weights N(0, 0.01^2), so that first policies are near uniform and values near zero."""
    layer = Linear(input_size, output_size)
    nn.init.normal_(layer.weight, std=0.01)
    nn.init.zeros_(layer.bias)
    return layer


def hidden_layers(
    input_size: int, sizes: Sequence[int], activation: Activation = "leaky_relu"
) -> tuple[nn.Sequential, int]:
    """Linear layer and activation for each of `sizes`; returns the layers and the output size."""
    layers: list[nn.Module] = []
    for size in sizes:
        layers += [orthogonal(Linear(input_size, size)), nn.Tanh() if activation == "tanh" else nn.LeakyReLU()]
        input_size = size
    return nn.Sequential(*layers), input_size
