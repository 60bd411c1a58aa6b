"""Memory models under one contract (`rlmem.memory.base.Memory`), usable as a library."""

from rlmem.memory.base import (
    LinearRecurrence as LinearRecurrence,
)
from rlmem.memory.base import (
    Memoroid as Memoroid,
)
from rlmem.memory.base import (
    Memory as Memory,
)
from rlmem.memory.base import (
    RecurrentCell as RecurrentCell,
)
from rlmem.memory.clocked import Clocked as Clocked
from rlmem.memory.dnc import DNC as DNC
from rlmem.memory.elman import Elman as Elman
from rlmem.memory.ffm import FFM as FFM
from rlmem.memory.frame_stack import FrameStack as FrameStack
from rlmem.memory.fwp import FWP as FWP
from rlmem.memory.gpt import GPT as GPT
from rlmem.memory.gru import GRU as GRU
from rlmem.memory.indrnn import IndRNN as IndRNN
from rlmem.memory.linear_attention import LinearAttention as LinearAttention
from rlmem.memory.lmu import LMU as LMU
from rlmem.memory.lprnn import LPRNN as LPRNN
from rlmem.memory.lru import LRU as LRU
from rlmem.memory.lstm import LSTM as LSTM
from rlmem.memory.mingru import MinGRU as MinGRU
from rlmem.memory.mlp import MLP as MLP
from rlmem.memory.mlstm import MLSTM as MLSTM
from rlmem.memory.s4d import S4D as S4D
from rlmem.memory.s5 import S5 as S5
from rlmem.memory.s6 import S6 as S6
from rlmem.memory.s6 import DiagonalS6 as DiagonalS6
from rlmem.memory.shm import SHM as SHM
from rlmem.memory.stack import Stack as Stack
from rlmem.memory.tcn import TCN as TCN
from rlmem.memory.window import Window as Window
