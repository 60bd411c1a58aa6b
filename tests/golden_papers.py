"""Adapters of the papers' own models: FFM and SHM."""

from golden import ADAPTERS, Adapter, Record

from rlmem.memory.ffm import FFM


def ffm_e(record: Record) -> FFM:
    meta = record.meta
    ablation = meta["variant"] if meta["variant"] in ("ni", "no", "nc", "fc", "nd", "fd") else "none"
    return FFM(meta["d"], meta["H"], meta["m"], meta["ctx"], ablation=ablation)


def ffm_m(record: Record) -> FFM:
    meta = record.meta
    return FFM(meta["d"], meta["H"], meta["m"], meta["ctx"], version="memoroid", skip=meta["variant"])


ADAPTERS["ffm_e"] = Adapter(ffm_e, forward_tolerance=1e-10, gradient_tolerance=1e-9)
ADAPTERS["ffm_m"] = Adapter(ffm_m)
