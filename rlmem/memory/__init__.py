"""Memory models under one contract (`rlmem.memory.base.Memory`), usable as a library."""

from rlmem.memory.base import LinearRecurrence, Memoroid, Memory, RecurrentCell
from rlmem.memory.clocked import Clocked
from rlmem.memory.dnc import DNC
from rlmem.memory.elman import Elman
from rlmem.memory.ffm import FFM
from rlmem.memory.frame_stack import FrameStack
from rlmem.memory.fwp import FWP
from rlmem.memory.gpt import GPT
from rlmem.memory.gru import GRU
from rlmem.memory.indrnn import IndRNN
from rlmem.memory.linear_attention import LinearAttention
from rlmem.memory.lmu import LMU
from rlmem.memory.lprnn import LPRNN
from rlmem.memory.lru import LRU
from rlmem.memory.lstm import LSTM
from rlmem.memory.mingru import MinGRU
from rlmem.memory.mlp import MLP
from rlmem.memory.mlstm import MLSTM
from rlmem.memory.s4d import S4D
from rlmem.memory.s5 import S5
from rlmem.memory.s6 import S6, DiagonalS6
from rlmem.memory.shm import SHM
from rlmem.memory.stack import Stack
from rlmem.memory.tcn import TCN
from rlmem.memory.window import Window

__all__ = [
    "DNC",
    "FFM",
    "FWP",
    "GPT",
    "GRU",
    "LMU",
    "LPRNN",
    "LRU",
    "LSTM",
    "MLP",
    "MLSTM",
    "S4D",
    "S5",
    "S6",
    "SHM",
    "TCN",
    "Clocked",
    "DiagonalS6",
    "Elman",
    "FrameStack",
    "IndRNN",
    "LinearAttention",
    "LinearRecurrence",
    "Memoroid",
    "Memory",
    "MinGRU",
    "RecurrentCell",
    "Stack",
    "Window",
]
