"""Adapters of all recorded models: `ADAPTERS` by `meta["model"]`."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from golden import ADAPTERS, Adapter, Record
from torch import Tensor

from rlmem.core.types import State
from rlmem.memory import (
    BRC,
    FFM,
    FWP,
    LMU,
    LPRNN,
    LRU,
    MLSTM,
    RGLRU,
    RTU,
    RWKV7,
    S4D,
    S5,
    SHM,
    SLSTM,
    TCN,
    AGaLiTe,
    DiagonalS6,
    FrameStack,
    GatedDeltaNet,
    GTrXL,
    IndRNN,
    LinearAttention,
    Mamba2,
    Memory,
    MinGRU,
    MinLSTM,
    NonlinearRTU,
    Stack,
)

Arrays = dict[str, Tensor]


def of(cls: type[Memory], keys: str, **options: Any) -> Callable[[Record], Any]:
    """Builds `cls` from the entries of `meta` that `keys` names, in the order of its arguments, and options."""
    return lambda record, **more: cls(*(record.meta[key] for key in keys.split()), **options | more)


lmu = of(LMU, "d H m theta")
linattn_mm = of(LinearAttention, "d H k v", form="memoroid")
fart_popgym = of(LinearAttention, "d H k k", form="popgym")


def lprnn(record: Record, **options) -> LPRNN:
    meta = record.meta
    V, M, H = (record.arrays[f"w.{b}"].shape[-1] for b in ("b_view", "b_sum", "b_out"))
    return LPRNN(meta["d"], H, meta["pools"], meta["D"], V, M, meta["base"], meta["variant"], **options)


class S4DInRecordedStates(S4D):
    """S4D with h for its state, as recorded; our own is h / dB."""

    def forward(self, x: Tensor, state: State, start: Tensor) -> tuple[Tensor, State]:
        dB = self.matrices()[1] / torch.view_as_complex(self.C)
        y, s = super().forward(x, state / dB, start)
        return y, dB * s


def stacked(layer: Callable[..., Memory], size: str | None = None, **options: Any) -> Callable[[Record], Stack]:
    """Builds a stack as recorded; `size` names the entry of `meta` that is the size of a layer's state."""

    def build(record: Record) -> Stack:
        meta = record.meta
        layers = partial(layer, **options | ({} if size is None else {"state_size": meta[size]}))
        return Stack(meta["d"], layers, meta["H"], meta["layers"], residual=False, norm="none")

    return build


def ffm_e(record: Record, **options) -> FFM:
    meta, variant = record.meta, record.meta["variant"]
    ablation = "none" if variant in ("", "clamp") else variant
    return FFM(meta["d"], meta["H"], meta["m"], meta["ctx"], ablation=ablation, **options)


def ffm_m(record: Record) -> FFM:
    meta = record.meta
    return FFM(meta["d"], meta["H"], meta["m"], meta["ctx"], version="memoroid", skip=meta["variant"])


class RecordedSHM(SHM):
    """Reads the rows of Theta that the recording used."""

    def rows(self, seed, step):
        return self.recorded


def shm(record: Record) -> SHM:
    meta, fixed = record.meta, record.meta["variant"] == "fixed"  # the stand-alone release
    kind, draw = (SHM, "row0") if fixed else (RecordedSHM, "seeded")
    sizes = (meta["d"], meta["H"], meta["k"], meta["L"])
    memory = kind(*sizes, shortcut=not fixed, draw=draw, limit=meta["clamp"] or None)
    memory.recorded = record.arrays["theta_idx"]
    return memory


def shm_state(arrays: Arrays) -> State:
    M = arrays[""]
    return {"M": M, "seed": M.new_zeros(len(M)), "step": M.new_zeros(len(M))}


def frames(arrays: Arrays) -> State:
    """A recorded state is frames of zeros at the episode's start, so every one of them counts as read."""
    return {"age": torch.full((len(arrays[""]),), float(arrays[""].shape[1])), "frames": arrays[""]}


def gated(record: Record) -> GatedDeltaNet:
    meta = record.meta
    eigenvalues = "negative" if meta["neg"] else "positive"
    return GatedDeltaNet(meta["d"], meta["H"], meta["h"], meta["k"], meta["v"], meta.get("householder", 1), eigenvalues)


def transposed(state: State) -> State:
    """Of states that the recording holds values by keys."""
    return {"": state.mT} if torch.is_tensor(state) else state[""].mT


def stabilised(arrays: Arrays) -> State:
    return {"C": arrays["C"].mT, "n": arrays["n"], "m": torch.zeros_like(arrays["n"][:, 0])}


def unstabilised(state: State) -> Arrays:
    scale = state["m"].exp()[:, None]
    return {"C": state["C"].mT * scale[..., None], "n": state["n"] * scale}


def gtrxl(record: Record, unfilled: str, queries: str, context: str = "segment") -> GTrXL:
    meta = record.meta
    sizes = meta["d"], meta["E"], meta["layers"], meta["heads"], meta["dh"], meta["mem"] + 1
    return GTrXL(*sizes, mlp_size=meta["mlp_hidden"], context=context, unfilled=unfilled, queries=queries)


def layers_from_memory(arrays: Arrays) -> State:
    """A memory that was never filled is zero."""
    e = arrays[""]
    age = (e[:, 0] != 0).any(-1).sum(-1).to(e.dtype)
    return {"age": age} | {f"L{i}.e": e[:, i] for i in range(e.shape[1] - 1)}


def memory_of_layers(state: State) -> Arrays:
    return {"": torch.stack([e for name, e in state.items() if name != "age"], 1)}


def segments(unfilled: str, queries: str) -> Adapter:
    """The last part of a recorded state, of outputs, is stored and never read."""
    build = partial(gtrxl, unfilled=unfilled, queries=queries)
    that_is_read = lambda arrays: {"": arrays[""][:, :-1]}  # noqa: E731
    return Adapter(build, layers_from_memory, memory_of_layers, recorded=that_is_read, has_kinks=True)


agalite = of(AGaLiTe, "d E layers heads dh eta r ffc")


def sums_together(arrays: Arrays) -> State:
    """The recorded s of each layer is our last sum of keys."""
    layers = sorted({name.split(".")[0] for name in arrays if name != "tick"})
    states = {"tick": arrays["tick"]}
    for i in layers:
        states |= {f"{i}.k": torch.cat([arrays[f"{i}.tk"], arrays[f"{i}.s"][:, None]], 1), f"{i}.v": arrays[f"{i}.tv"]}
    return states


def sums_apart(state: State) -> Arrays:
    arrays = {"tick": state["tick"]}
    for name, value in state.items():
        layer, _, part = name.partition(".")
        if part == "v":
            arrays[f"{layer}.tv"] = value
        elif part == "k":
            arrays |= {f"{layer}.tk": value[:, :-1], f"{layer}.s": value[:, -1]}
    return arrays


rglru = of(RGLRU, "d H heads")
parts = lambda state: dict(zip(("c1", "c2"), state, strict=True))  # noqa: E731
unsent = lambda state: {"": state["frames"]}  # noqa: E731

ADAPTERS |= {
    "indrnn": Adapter(lambda r: IndRNN(r.meta["d"], r.meta["H"], max_length=r.meta["max_len"]), has_kinks=True),
    "lmu": Adapter(lmu),
    "lprnn": Adapter(lprnn, has_kinks=True),
    "lru_mm": Adapter(stacked(LRU, "n", block="glu")),
    "lru_tf": Adapter(stacked(LRU, block="ffn")),
    "s5_mm": Adapter(stacked(S5, "n")),
    "s4d": Adapter(of(S4DInRecordedStates, "d H n")),
    "s6_memax": Adapter(of(DiagonalS6, "d H")),
    "mingru": Adapter(of(MinGRU, "d H")),
    "mingru_g": Adapter(of(MinGRU, "d H", candidate="positive")),
    "minlstm": Adapter(of(MinLSTM, "d H", candidate="positive")),
    "minlstm_lin": Adapter(of(MinLSTM, "d H", candidate="linear")),
    "linattn_mm": Adapter(linattn_mm, published=partial(linattn_mm, denominator="sum_product")),
    "fart_popgym": Adapter(fart_popgym, published=partial(fart_popgym, denominator="sum_product"), has_kinks=True),
    "fwp_popgym": Adapter(
        of(FWP, "d H k", rule="sum", readout="feed_forward"), transposed, transposed, has_kinks=True
    ),
    "fwp_delta": Adapter(of(FWP, "d H k"), transposed, transposed),
    "mlstm": Adapter(of(MLSTM, "d H k"), stabilised, unstabilised, has_kinks=True),
    "ffm_e": Adapter(ffm_e, forward_tolerance=1e-10, gradient_tolerance=1e-9),
    "ffm_m": Adapter(ffm_m),
    "shm": Adapter(shm, shm_state, lambda state: {"": state["M"]}, has_kinks=True),
    "framestack": Adapter(of(FrameStack, "d H stack"), frames, unsent),
    "tcn": Adapter(of(TCN, "d H stack", num_layers=1, form="linear"), frames, unsent),
    "rwkv7": Adapter(
        of(RWKV7, "d H heads rank"),
        lambda arrays: {"x": arrays["x_prev"], "S": arrays["S"]},
        lambda state: {"x_prev": state["x"], "S": state["S"]},
    ),
    "agalite": Adapter(
        partial(agalite, tick="stream"), sums_together, sums_apart, packed=partial(agalite, tick="episode"),
        has_kinks=True,
    ),
    "gtrxl": segments("attended", "plain"),
    "gtrxl_masked": segments("masked", "plain"),
    "gtrxl_lnq": segments("masked", "normed"),
    "slstm": Adapter(of(SLSTM, "d H heads")),
    "slstm_layer": Adapter(of(SLSTM, "H H heads", inputs="heads", norm="heads")),
    "nbrc": Adapter(of(BRC, "d H", recurrent="matrix")),
    "brc": Adapter(of(BRC, "d H", recurrent="vector")),
    "rglru": Adapter(partial(rglru, first_slot="whole"), packed=partial(rglru, first_slot="scaled")),
    "gated_deltanet": Adapter(gated),
    "gated_deltanet_neg": Adapter(gated),
    "gated_deltaproduct": Adapter(gated),
    "mamba2": Adapter(of(Mamba2, "d H inner p n"), transposed, transposed),
    "rtu": Adapter(
        of(RTU, "d H"), lambda arrays: torch.complex(arrays["c1"], arrays["c2"]), lambda c: parts((c.real, c.imag)),
        has_kinks=True,
    ),
    "rtu_nl": Adapter(of(NonlinearRTU, "d H act"), lambda arrays: (arrays["c1"], arrays["c2"]), parts),
}  # fmt: skip
