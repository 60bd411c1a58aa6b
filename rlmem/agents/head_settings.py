"""The settings of algorithms whose agents have heads."""

from collections.abc import Sequence
from dataclasses import dataclass

from rlmem.nets.layers import Activation, HeadInit, HeadLayers
from rlmem.types import PositiveInt


@dataclass(kw_only=True)
class HeadSettings:
    """What the heads of an algorithm's agent are made of.

    head_sizes: widths of the heads' hidden layers, in order
    activation: of these layers
    head_init: first weights of the heads, see `rlmem.nets.layers.HeadLayers`
    """

    head_sizes: Sequence[PositiveInt] = (128, 128)
    activation: Activation = "leaky_relu"
    head_init: HeadInit = "small_output"

    @property
    def head_layers(self) -> HeadLayers:
        """The same, as agents take it."""
        return HeadLayers(self.head_sizes, self.activation, self.head_init, self.heads_normed())

    def heads_normed(self) -> bool:
        """Whether a layer norm stands before every activation of the heads."""
        return False
