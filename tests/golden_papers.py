"""Adapters of the papers' own models: FFM and SHM."""

from golden import ADAPTERS, Adapter, Record

from rlmem.memory.ffm import FFM
from rlmem.memory.shm import SHM


def ffm_e(record: Record, **options) -> FFM:
    meta = record.meta
    ablations = {"": "none", "clamp": "none"} | {name: name for name in ("ni", "no", "nc", "fc", "nd", "fd")}
    return FFM(meta["d"], meta["H"], meta["m"], meta["ctx"], ablation=ablations[meta["variant"]], **options)


def ffm_m(record: Record) -> FFM:
    meta = record.meta
    return FFM(meta["d"], meta["H"], meta["m"], meta["ctx"], version="memoroid", skip=meta["variant"])


ADAPTERS["ffm_e"] = Adapter(ffm_e, forward_tolerance=1e-10, gradient_tolerance=1e-9)
ADAPTERS["ffm_m"] = Adapter(ffm_m)


class RecordedSHM(SHM):
    """Reads the rows of Theta that the recording used."""

    def rows(self, seed, step):
        return self.recorded


def shm(record: Record) -> SHM:
    meta, variant = record.meta, record.meta["variant"]
    fixed = variant == "fixed"  # the stand-alone release
    kind = SHM if fixed else RecordedSHM
    sizes = (meta["d"], meta["H"], meta["k"], meta["L"])
    memory = kind(*sizes, shortcut=not fixed, draw="row0" if fixed else "seeded", limit=meta["clamp"] or None)
    memory.recorded = record.arrays["theta_idx"]
    return memory


def shm_state(arrays):
    M = arrays[""]
    return {"M": M, "seed": M.new_zeros(len(M)), "step": M.new_zeros(len(M))}


ADAPTERS["shm"] = Adapter(shm, shm_state, lambda state: {"": state["M"]}, has_kinks=True)
