"""Adapters of the sequential cells and the low-pass RNN."""

from golden import ADAPTERS, Adapter, Record

from rlmem.memory.indrnn import IndRNN
from rlmem.memory.lmu import LMU
from rlmem.memory.lprnn import LPRNN


def indrnn(record: Record) -> IndRNN:
    meta = record.meta
    return IndRNN(meta["d"], meta["H"], max_length=meta["max_len"])


def lmu(record: Record) -> LMU:
    meta = record.meta
    return LMU(meta["d"], meta["H"], meta["m"], meta["theta"])


def lprnn(record: Record, **options) -> LPRNN:
    meta = record.meta
    V, M, H = (record.arrays[f"w.{b}"].shape[-1] for b in ("b_view", "b_sum", "b_out"))
    return LPRNN(meta["d"], H, meta["pools"], meta["D"], V, M, meta["base"], meta["variant"], **options)


ADAPTERS["indrnn"] = Adapter(indrnn, has_kinks=True)
ADAPTERS["lmu"] = Adapter(lmu)
ADAPTERS["lprnn"] = Adapter(lprnn, has_kinks=True)
