"""Several memories on top of each other."""

import inspect
from collections.abc import Callable
from typing import Literal, cast

from torch import Tensor, nn
from torch.nn import functional as F

from rlmem.core.errors import UserError
from rlmem.core.types import Layers, NonNegativeInt, PositiveInt, State
from rlmem.memory.base import Memory
from rlmem.memory.blocks import GRUGate, ShortConvolution
from rlmem.scan import Linear

Norm = Literal["none", "pre", "post"]


class Stack(Memory):
    """A residual stack of any memory.

        z = W_in x                   z = x if D = H, unless encoder=True
        z = z + P layer(LN z)        norm=pre, with a last y = LN_f z
        z = LN(z + P layer(z))       norm=post
        z = z + P layer(z)           norm=none

    P is W_out.0, W_out.1, ... where a layer's output is not H wide, else the identity. Layers
    with a skip connection of their own (LRU, S5, GPT) need residual=False and norm=none. A modern block has more:

        layer(conv(.)) for layer(.)        conv_size K, conv(u)_t = silu(b + sum_j w_j * u_{t-K+j}), j = 1 ... K
        gate(z, .) for z + .               gate=True, `rlmem.memory.blocks.GRUGate`
        z = z + W_2 GELU(W_1 z)            feed_forward > 0, after each layer, with norm and gate in the same places

    Weights of the layers have the symbols L0.*, L1.*, ... State: {"L0": ..., "L1": ...}, each as its layer defines it,
    and with a convolution its last K - 1 inputs conv.0, conv.1, ...; engines are those of the layers.

    layer: builds one layer from its input width, e.g. `GRU` or `functools.partial(GRU, hidden_size=64)`; in yaml a
        mapping with `_target_`. Its hidden_size is that of the stack unless set there
    hidden_size: H, width between the layers and of the output
    num_layers: how many layers
    residual: add each layer's input to its output
    norm: where the layer norm stands
    encoder: W_in also where the widths are equal, as in the PyBullet study of Lu et al. 2024 (arXiv:2405.17358)
    gate: join each layer's output to its input by a gate instead of a sum
    feed_forward: width of W_1; 0: there is no perceptron
    conv_size: K, slots of a convolution before each layer; 0: there is none
    second_layer: builds every second layer, as `layer` the others; None: all are alike
    """

    def __init__(
        self,
        input_size: int,
        layer: Callable[..., Memory],
        hidden_size: PositiveInt = 256,
        num_layers: Layers = 2,
        residual: bool = True,
        norm: Norm = "pre",
        encoder: bool = False,
        gate: bool = False,
        feed_forward: NonNegativeInt = 0,
        conv_size: NonNegativeInt = 0,
        second_layer: Callable[..., Memory] | None = None,
    ):
        super().__init__(input_size, hidden_size)
        if gate and not residual:
            raise UserError(
                "Stack: gate=true takes the place of a sum, which residual=false leaves out; give one of them"
            )
        self.residual, self.norm = residual, norm
        self.W_in = Linear(input_size, hidden_size) if encoder or input_size != hidden_size else nn.Identity()
        kinds = layer, second_layer or layer
        built = [build_layer(kinds[i % 2], hidden_size, hidden_size) for i in range(num_layers)]
        self.layers = nn.ModuleList(built)
        self.breaks = {name: reason for layer in built for name, reason in layer.breaks.items()}
        self.ln = nn.ModuleList(nn.Identity() if norm == "none" else nn.LayerNorm(hidden_size) for _ in built)
        self.W_out = nn.ModuleList(
            nn.Identity() if one.output_size == hidden_size else Linear(one.output_size, hidden_size) for one in built
        )
        self.ln_f = nn.LayerNorm(hidden_size) if norm == "pre" else nn.Identity()
        self.conv = nn.ModuleList(ShortConvolution(hidden_size, conv_size) for _ in built if conv_size)
        self.gate = nn.ModuleList(GRUGate(hidden_size) for _ in built if gate)
        perceptrons = num_layers if feed_forward else 0
        self.ff = nn.ModuleList(FeedForward(hidden_size, feed_forward, norm, gate) for _ in range(perceptrons))

    def initial_state(self, batch_size: int) -> State:
        states = {name: layer.initial_state(batch_size) for name, layer in self._named()}
        like = self._like_parameters()
        shapes = (cast(ShortConvolution, conv).state_shape for conv in self.conv)
        return states | {f"conv.{i}": like.new_zeros(batch_size, *shape) for i, shape in enumerate(shapes)}

    def forward(self, x: Tensor, state: State, start: Tensor) -> tuple[Tensor, State]:
        return self._read(x, state, start, step=False)

    def step(self, x: Tensor, state: State, start: Tensor) -> tuple[Tensor, State]:
        return self._read(x, state, start, step=True)

    def _read(self, x: Tensor, state: State, start: Tensor, step: bool) -> tuple[Tensor, State]:
        z, after = self.W_in(x), dict.fromkeys(state)  # in the same order
        for i, (name, layer) in enumerate(self._named()):
            u = self.ln[i](z) if self.norm == "pre" else z
            if self.conv:
                rows = (u[:, None], start[:, None]) if step else (u, start)
                u, after[f"conv.{i}"] = self.conv[i](rows[0], state[f"conv.{i}"], rows[1])
                u = u[:, 0] if step else u
            y, after[name] = (layer.step if step else layer)(u, state[name], start)
            y = self.W_out[i](y)
            z = self.gate[i](z, y) if self.gate else z + y if self.residual else y
            if self.norm == "post":
                z = self.ln[i](z)
            if self.ff:
                z = self.ff[i](z)
        return self.ln_f(z), after

    def _named(self) -> list[tuple[str, Memory]]:
        return [(f"L{i}", cast(Memory, layer)) for i, layer in enumerate(self.layers)]


class FeedForward(nn.Module):
    """The perceptron of a block, joined to its input z: z + W_2 GELU(W_1 LN z) with norm=pre."""

    def __init__(self, width: int, hidden: int, norm: Norm, gate: bool):
        super().__init__()
        self.norm = norm
        self.W_1, self.W_2 = Linear(width, hidden), Linear(hidden, width)
        self.ln = nn.Identity() if norm == "none" else nn.LayerNorm(width)
        self.gate = GRUGate(width) if gate else None

    def forward(self, z: Tensor) -> Tensor:
        y = self.W_2(F.gelu(self.W_1(self.ln(z) if self.norm == "pre" else z)))
        z = z + y if self.gate is None else self.gate(z, y)
        return self.ln(z) if self.norm == "post" else z


def build_layer(layer: Callable[..., Memory], input_size: int, hidden_size: int) -> Memory:
    """One memory on `input_size` features; it gets `hidden_size` if it takes one that is not set yet."""
    keywords = getattr(layer, "keywords", {})  # of a functools.partial
    sized = "hidden_size" in inspect.signature(layer).parameters and "hidden_size" not in keywords
    return layer(input_size, hidden_size=hidden_size) if sized else layer(input_size)
