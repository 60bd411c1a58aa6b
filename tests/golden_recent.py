"""Adapters of memories since 2024."""

from functools import partial

import torch
from golden import ADAPTERS, Adapter, Record
from torch import Tensor

from rlmem.memory.agalite import AGaLiTe
from rlmem.memory.base import Memory
from rlmem.memory.brc import BRC
from rlmem.memory.gated_deltanet import GatedDeltaNet
from rlmem.memory.gtrxl import GTrXL
from rlmem.memory.mamba2 import Mamba2
from rlmem.memory.mingru import MinGRU
from rlmem.memory.minlstm import MinLSTM
from rlmem.memory.rglru import RGLRU
from rlmem.memory.rtu import RTU, NonlinearRTU
from rlmem.memory.rwkv7 import RWKV7
from rlmem.memory.slstm import SLSTM
from rlmem.types import State


def minimal(cls: type[Memory], candidate: str):
    return lambda record: cls(record.meta["d"], record.meta["H"], candidate=candidate)


def bistable(recurrent: str):
    return lambda record: BRC(record.meta["d"], record.meta["H"], recurrent)


def rglru(record: Record, first_slot: str) -> RGLRU:
    return RGLRU(record.meta["d"], record.meta["H"], record.meta["heads"], first_slot)


def gated(record: Record) -> GatedDeltaNet:
    meta = record.meta
    eigenvalues = "negative" if meta["neg"] else "positive"
    return GatedDeltaNet(meta["d"], meta["H"], meta["h"], meta["k"], meta["v"], meta.get("householder", 1), eigenvalues)


def mamba2(record: Record) -> Mamba2:
    meta = record.meta
    return Mamba2(meta["d"], meta["H"], meta["inner"], meta["p"], meta["n"])


def transposed(state: State) -> State:
    return {"": state.mT} if torch.is_tensor(state) else state[""].mT


def complex_from_parts(arrays: dict[str, Tensor]) -> Tensor:
    return torch.complex(arrays["c1"], arrays["c2"])


def parts_of_complex(state: Tensor) -> dict[str, Tensor]:
    return {"c1": state.real, "c2": state.imag}


def pair_from_parts(arrays: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    return arrays["c1"], arrays["c2"]


def parts_of_pair(state: tuple[Tensor, Tensor]) -> dict[str, Tensor]:
    return dict(zip(("c1", "c2"), state, strict=True))


def rtu(record: Record) -> RTU:
    return RTU(record.meta["d"], record.meta["H"])


def rtu_nl(record: Record) -> NonlinearRTU:
    return NonlinearRTU(record.meta["d"], record.meta["H"], record.meta["act"])


def slstm(record: Record) -> SLSTM:
    meta = record.meta
    return SLSTM(meta["d"], meta["H"], meta["heads"])


def slstm_layer(record: Record) -> SLSTM:
    meta = record.meta
    return SLSTM(meta["H"], meta["H"], meta["heads"], inputs="heads", norm="heads")


def gtrxl(record: Record, unfilled: str, queries: str, context: str = "segment") -> GTrXL:
    meta = record.meta
    sizes = meta["d"], meta["E"], meta["layers"], meta["heads"], meta["dh"], meta["mem"] + 1
    return GTrXL(*sizes, mlp_size=meta["mlp_hidden"], context=context, unfilled=unfilled, queries=queries)


def layers_from_memory(arrays: dict[str, Tensor]) -> dict[str, Tensor]:
    """A memory that was never filled is zero."""
    e = arrays[""]
    age = (e[:, 0] != 0).any(-1).sum(-1).to(e.dtype)
    return {"age": age} | {f"L{i}.e": e[:, i] for i in range(e.shape[1] - 1)}


def memory_of_layers(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {"": torch.stack([e for name, e in state.items() if name != "age"], 1)}


def memory_that_is_read(arrays: dict[str, Tensor]) -> dict[str, Tensor]:
    """The last part, of outputs, is stored and never read."""
    return {"": arrays[""][:, :-1]}


def segments(unfilled: str, queries: str) -> Adapter:
    build = partial(gtrxl, unfilled=unfilled, queries=queries)
    return Adapter(build, layers_from_memory, memory_of_layers, recorded=memory_that_is_read, has_kinks=True)


def agalite(record: Record, tick: str) -> AGaLiTe:
    meta = record.meta
    sizes = meta["d"], meta["E"], meta["layers"], meta["heads"], meta["dh"], meta["eta"], meta["r"], meta["ffc"]
    return AGaLiTe(*sizes, tick=tick)


def sums_together(arrays: dict[str, Tensor]) -> dict[str, Tensor]:
    """The recorded s of each layer is our last sum of keys."""
    layers = sorted({name.split(".")[0] for name in arrays if name != "tick"})
    states = {"tick": arrays["tick"]}
    for i in layers:
        states |= {f"{i}.k": torch.cat([arrays[f"{i}.tk"], arrays[f"{i}.s"][:, None]], 1), f"{i}.v": arrays[f"{i}.tv"]}
    return states


def sums_apart(state: dict[str, Tensor]) -> dict[str, Tensor]:
    arrays = {"tick": state["tick"]}
    for name, value in state.items():
        layer, _, part = name.partition(".")
        if part == "v":
            arrays[f"{layer}.tv"] = value
        elif part == "k":
            arrays |= {f"{layer}.tk": value[:, :-1], f"{layer}.s": value[:, -1]}
    return arrays


def rwkv7(record: Record) -> RWKV7:
    meta = record.meta
    return RWKV7(meta["d"], meta["H"], meta["heads"], meta["rank"])


def last_input(arrays: dict[str, Tensor]) -> dict[str, Tensor]:
    return {"x": arrays["x_prev"], "S": arrays["S"]}


def input_before(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {"x_prev": state["x"], "S": state["S"]}


ADAPTERS |= {
    "rwkv7": Adapter(rwkv7, last_input, input_before),
    "agalite": Adapter(
        partial(agalite, tick="stream"),
        sums_together,
        sums_apart,
        packed=partial(agalite, tick="episode"),
        has_kinks=True,
    ),
    "gtrxl": segments("attended", "plain"),
    "gtrxl_masked": segments("masked", "plain"),
    "gtrxl_lnq": segments("masked", "normed"),
    "slstm": Adapter(slstm),
    "slstm_layer": Adapter(slstm_layer),
    "minlstm": Adapter(minimal(MinLSTM, "positive")),
    "minlstm_lin": Adapter(minimal(MinLSTM, "linear")),
    "mingru_g": Adapter(minimal(MinGRU, "positive")),
    "nbrc": Adapter(bistable("matrix")),
    "brc": Adapter(bistable("vector")),
    "rglru": Adapter(partial(rglru, first_slot="whole"), packed=partial(rglru, first_slot="scaled")),
    "gated_deltanet": Adapter(gated),
    "gated_deltanet_neg": Adapter(gated),
    "gated_deltaproduct": Adapter(gated),
    "mamba2": Adapter(mamba2, transposed, transposed),
    "rtu": Adapter(rtu, complex_from_parts, parts_of_complex, has_kinks=True),
    "rtu_nl": Adapter(rtu_nl, pair_from_parts, parts_of_pair),
}
