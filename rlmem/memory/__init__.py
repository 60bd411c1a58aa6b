"""Memory models under one contract (`rlmem.memory.base.Memory`), usable as a library."""

from rlmem.memory.base import LinearRecurrence, Memory, RecurrentCell
from rlmem.memory.ffm import FFM
from rlmem.memory.gru import GRU
from rlmem.memory.lstm import LSTM
from rlmem.memory.mlp import MLP

__all__ = ["FFM", "GRU", "LSTM", "MLP", "LinearRecurrence", "Memory", "RecurrentCell"]
