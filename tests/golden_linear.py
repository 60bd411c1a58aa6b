"""Adapters of the diagonal linear recurrences: LRU, S5, S4D, S6, minimal GRU."""

from collections.abc import Callable
from functools import partial

import torch
from golden import ADAPTERS, Adapter, Record
from torch import Tensor

from rlmem.memory.base import Memory
from rlmem.memory.lru import LRU
from rlmem.memory.mingru import MinGRU
from rlmem.memory.s4d import S4D
from rlmem.memory.s5 import S5
from rlmem.memory.s6 import DiagonalS6
from rlmem.memory.stack import Stack
from rlmem.types import State


class S4DInRecordedStates(S4D):
    """S4D with h for its state, as recorded; our own is h / dB."""

    def forward(self, x: Tensor, state: State, start: Tensor) -> tuple[Tensor, State]:
        dB = self.matrices()[1] / torch.view_as_complex(self.C)
        y, s = super().forward(x, state / dB, start)
        return y, dB * s


def stack(record: Record, layer: Callable[..., Memory], **options: object) -> Stack:
    meta = record.meta
    return Stack(meta["d"], partial(layer, **options), meta["H"], meta["layers"], residual=False, norm="none")


def lru_mm(record: Record) -> Stack:
    return stack(record, LRU, block="glu", state_size=record.meta["n"])


def lru_tf(record: Record) -> Stack:
    return stack(record, LRU, block="ffn")


def s5_mm(record: Record) -> Stack:
    return stack(record, S5, state_size=record.meta["n"])


def s4d(record: Record) -> S4D:
    return S4DInRecordedStates(record.meta["d"], record.meta["H"], record.meta["n"])


def s6_memax(record: Record) -> DiagonalS6:
    return DiagonalS6(record.meta["d"], record.meta["H"])


def mingru(record: Record) -> MinGRU:
    return MinGRU(record.meta["d"], record.meta["H"])


ADAPTERS |= {build.__name__: Adapter(build) for build in (lru_mm, lru_tf, s5_mm, s4d, s6_memax, mingru)}
