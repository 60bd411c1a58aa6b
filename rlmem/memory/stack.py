"""Several memories on top of each other."""

import inspect
from collections.abc import Callable
from typing import Literal, cast

from torch import Tensor, nn

from rlmem.memory.base import Memory, symbol_of
from rlmem.scan import Linear
from rlmem.types import Layers, PositiveInt, State

Norm = Literal["none", "pre", "post"]


class Stack(Memory):
    """A residual stack of any memory.

        z = W_in x                   z = x if D = H, unless encoder=True
        z = z + P layer(LN z)        norm=pre, with a last y = LN_f z
        z = LN(z + P layer(z))       norm=post
        z = z + P layer(z)           norm=none

    P is W_out.0, W_out.1, ... where a layer's output is not H wide, else the identity. Layers
    with a skip connection of their own (LRU, S5, GPT) need residual=False and norm=none. Weights of the layers have
    the symbols L0.*, L1.*, ... State: {"L0": ..., "L1": ...}, each as its layer defines it; engines are theirs, too.

    layer: builds one layer from its input width, e.g. `GRU` or `functools.partial(GRU, hidden_size=64)`; in yaml a
        mapping with `_target_`. Its hidden_size is that of the stack unless set there
    hidden_size: H, width between the layers and of the output
    num_layers: how many layers
    residual: add each layer's input to its output
    norm: where the layer norm stands
    encoder: W_in also where the widths are equal, as in the PyBullet study of Lu et al. 2024 (arXiv:2405.17358)
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
    ):
        super().__init__(input_size, hidden_size)
        self.residual, self.norm = residual, norm
        self.W_in = Linear(input_size, hidden_size) if encoder or input_size != hidden_size else nn.Identity()
        built = [build_layer(layer, hidden_size, hidden_size) for _ in range(num_layers)]
        self.layers = nn.ModuleList(built)
        self.breaks = {name: reason for layer in built for name, reason in layer.breaks.items()}
        self.ln = nn.ModuleList(nn.Identity() if norm == "none" else nn.LayerNorm(hidden_size) for _ in built)
        self.W_out = nn.ModuleList(
            nn.Identity() if one.output_size == hidden_size else Linear(one.output_size, hidden_size) for one in built
        )
        self.ln_f = nn.LayerNorm(hidden_size) if norm == "pre" else nn.Identity()

    def initial_state(self, batch_size: int) -> State:
        return {name: layer.initial_state(batch_size) for name, layer in self._named()}

    def forward(self, x: Tensor, state: State, start: Tensor) -> tuple[Tensor, State]:
        return self._read(x, state, start, step=False)

    def step(self, x: Tensor, state: State, start: Tensor) -> tuple[Tensor, State]:
        return self._read(x, state, start, step=True)

    def symbols(self, of: Callable[[Tensor], Tensor] = lambda parameter: parameter) -> dict[str, Tensor]:
        own = {symbol_of(self, name): of(p) for name, p in self.named_parameters() if not name.startswith("layers.")}
        return own | {f"{name}.{s}": w for name, layer in self._named() for s, w in layer.symbols(of).items()}

    def _read(self, x: Tensor, state: State, start: Tensor, step: bool) -> tuple[Tensor, State]:
        z, after = self.W_in(x), {}
        for (name, layer), ln, W_out in zip(self._named(), self.ln, self.W_out, strict=True):
            read = layer.step if step else layer
            y, after[name] = read(ln(z) if self.norm == "pre" else z, state[name], start)
            z = z + W_out(y) if self.residual else W_out(y)
            if self.norm == "post":
                z = ln(z)
        return self.ln_f(z), after

    def _named(self) -> list[tuple[str, Memory]]:
        return [(f"L{i}", cast(Memory, layer)) for i, layer in enumerate(self.layers)]


def build_layer(layer: Callable[..., Memory], input_size: int, hidden_size: int) -> Memory:
    """One memory on `input_size` features; it gets `hidden_size` if it takes one that is not set yet."""
    given = getattr(layer, "keywords", {})  # of a functools.partial
    sized = "hidden_size" in inspect.signature(layer).parameters and "hidden_size" not in given
    return layer(input_size, hidden_size=hidden_size) if sized else layer(input_size)
