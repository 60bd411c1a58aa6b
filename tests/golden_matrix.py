"""Adapters of the matrix memories: linear attention, fast weights, mLSTM. Ours are stored keys by values."""

from typing import Literal

import torch
from golden import ADAPTERS, Adapter, Record
from torch import Tensor

from rlmem.memory.fwp import FWP
from rlmem.memory.linear_attention import LinearAttention
from rlmem.memory.mlstm import MLSTM

Denominator = Literal["inner_product", "sum_product"]


def linattn_mm(record: Record, denominator: Denominator = "inner_product") -> LinearAttention:
    meta = record.meta
    return LinearAttention(meta["d"], meta["H"], meta["k"], meta["v"], "memoroid", denominator)


def fart_popgym(record: Record, denominator: Denominator = "inner_product") -> LinearAttention:
    meta = record.meta
    return LinearAttention(meta["d"], meta["H"], meta["k"], meta["k"], "popgym", denominator)


def fwp_popgym(record: Record) -> FWP:
    return FWP(record.meta["d"], record.meta["H"], record.meta["k"], "sum", "feed_forward")


def fwp_delta(record: Record) -> FWP:
    return FWP(record.meta["d"], record.meta["H"], record.meta["k"], "delta", "linear")


def transposed(arrays: dict[str, Tensor]) -> Tensor:
    return arrays[""].mT


def mlstm(record: Record) -> MLSTM:
    return MLSTM(record.meta["d"], record.meta["H"], record.meta["k"])


def stabilised(arrays: dict[str, Tensor]) -> dict[str, Tensor]:
    return {"C": arrays["C"].mT, "n": arrays["n"], "m": torch.zeros_like(arrays["n"][:, 0])}


def unstabilised(state: dict[str, Tensor]) -> dict[str, Tensor]:
    scale = state["m"].exp()[:, None]
    return {"C": state["C"].mT * scale[..., None], "n": state["n"] * scale}


ADAPTERS["linattn_mm"] = Adapter(linattn_mm, published=lambda record: linattn_mm(record, "sum_product"))
ADAPTERS["fart_popgym"] = Adapter(
    fart_popgym, published=lambda record: fart_popgym(record, "sum_product"), has_kinks=True
)
ADAPTERS["fwp_popgym"] = Adapter(fwp_popgym, transposed, lambda state: {"": state.mT}, has_kinks=True)
ADAPTERS["fwp_delta"] = Adapter(fwp_delta, transposed, lambda state: {"": state.mT})
ADAPTERS["mlstm"] = Adapter(mlstm, stabilised, unstabilised, has_kinks=True)
