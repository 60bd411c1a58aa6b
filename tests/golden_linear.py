"""Adapters of the diagonal linear recurrences: LRU, S5, S4D, S6, minimal GRU."""

from collections.abc import Callable

import torch
from golden import ADAPTERS, Adapter, Record
from torch import Tensor, nn

from rlmem.memory.base import Memory
from rlmem.memory.lru import LRU
from rlmem.memory.mingru import MinGRU
from rlmem.memory.s4d import S4D
from rlmem.memory.s5 import S5
from rlmem.memory.s6 import DiagonalS6
from rlmem.types import State


class Chain(Memory):
    """Layers one after another; states by layer, symbols with the layer's name before them."""

    def __init__(self, layers: list[Memory]):
        super().__init__()
        self.input_size, self.output_size = layers[0].input_size, layers[-1].output_size
        self.layers = nn.ModuleDict({f"L{i}": layer for i, layer in enumerate(layers)})

    @property
    def engine(self) -> str:
        return self.layers["L0"].engine

    @engine.setter
    def engine(self, engine: str) -> None:
        for layer in self.layers.values():
            layer.engine = engine

    def initial_state(self, batch_size: int) -> State:
        return {name: layer.initial_state(batch_size) for name, layer in self.layers.items()}

    def forward(self, x: Tensor, state: State, start: Tensor) -> tuple[Tensor, State]:
        final = {}
        for name, layer in self.layers.items():
            x, final[name] = layer(x, state[name], start)
        return x, final

    def symbols(self, of: Callable[[Tensor], Tensor] = lambda parameter: parameter) -> dict[str, Tensor]:
        return {f"{name}.{s}": w for name, layer in self.layers.items() for s, w in layer.symbols(of).items()}


class S4DInRecordedStates(S4D):
    """S4D with h for its state, as recorded; our own is h / dB."""

    def forward(self, x: Tensor, state: State, start: Tensor) -> tuple[Tensor, State]:
        dB = self.matrices()[1] / torch.view_as_complex(self.C)
        y, s = super().forward(x, state / dB, start)
        return y, dB * s


def chain(record: Record, layer: Callable[[], Memory]) -> Chain:
    return Chain([layer() for _ in range(record.meta["layers"])])


def lru_mm(record: Record) -> Chain:
    return chain(record, lambda: LRU(record.meta["d"], record.meta["H"], "glu", record.meta["n"]))


def lru_tf(record: Record) -> Chain:
    return chain(record, lambda: LRU(record.meta["d"], record.meta["H"], "ffn"))


def s5_mm(record: Record) -> Chain:
    return chain(record, lambda: S5(record.meta["d"], record.meta["H"], record.meta["n"]))


def s4d(record: Record) -> S4D:
    return S4DInRecordedStates(record.meta["d"], record.meta["H"], record.meta["n"])


def s6_memax(record: Record) -> DiagonalS6:
    return DiagonalS6(record.meta["d"], record.meta["H"])


def mingru(record: Record) -> MinGRU:
    return MinGRU(record.meta["d"], record.meta["H"])


ADAPTERS |= {build.__name__: Adapter(build) for build in (lru_mm, lru_tf, s5_mm, s4d, s6_memax, mingru)}
