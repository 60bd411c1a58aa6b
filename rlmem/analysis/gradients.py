"""How far back in time the gradient of a memory's last output reaches, and where training cuts it."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils._pytree import tree_map

from rlmem.analysis.loaded import LoadedRun
from rlmem.analysis.output import Result
from rlmem.batching import Batching, unroll
from rlmem.memory.base import Memory
from rlmem.stats.figures import COLOURS, figure, whole_numbers
from rlmem.types import State

Array = NDArray[np.float64]
SIDE_BY_SIDE = 32
"""How many outputs have their gradients computed at once."""


@dataclass(frozen=True)
class Cut:
    """A training row: it shows the slots `begin` to `at` of its episode, from a state that is `context` slots old."""

    begin: int
    at: int
    context: int
    detach_every: int | None


def measure(run: LoadedRun, *, episodes: int = 4) -> Result:
    """|dy_T / dx_{T-k}| for every lag k: Frobenius norms of the Jacobian of the memory's output by its inputs.

    T is the last slot of the last full row that training would cut from a greedy episode; x is the encoder's output.
    Each is measured twice: through the whole episode, and through that row alone with `detach_every`, beyond which it
    is exactly 0. Norms are means over the episodes that are long enough for the lag. A rollout that ends within an
    episode cuts the gradient too, which is not shown.
    """
    trunk, batching = run.agent.trunks.critic, run.parts.batching
    whole, trained = [], []
    with torch.no_grad():
        inputs = [(trunk.encoder(*episode.inputs), episode.start) for episode in run.play(episodes)]
    for x, start in inputs:
        cut = last_row(batching, x.shape[1])
        whole.append(full_norms(trunk.memory, x, start, cut.at)[::-1])
        trained.append(row_norms(trunk.memory, x, start, cut)[::-1])
    by_lag = {"whole": _mean(whole), "trained": _mean(trained)}
    rows = [{"lag": k, **{name: float(v[k]) for name, v in by_lag.items()}} for k in range(len(by_lag["whole"]))]
    reached = np.flatnonzero(by_lag["trained"])
    reach = int(reached[-1]) if len(reached) else 0
    total = float(by_lag["whole"].sum())
    metrics = {
        "norm_at_0": float(by_lag["whole"][0]),
        "norm_at_end": float(by_lag["whole"][-1]),
        "last_lag": float(len(rows) - 1),
        "last_lag_trained": float(reach),
        "share_cut": float(by_lag["whole"][reach + 1 :].sum() / total) if total else 0.0,
        **{f"one_percent_lag_{name}": _one_percent(norms) for name, norms in by_lag.items()},
    }
    cuts = {name: getattr(batching, name, None) for name in ("length", "detach_every")}
    about = {"episodes": episodes, "batching": run.config.choices["batching"], **cuts}
    return Result(metrics, rows, {"picture": picture(by_lag, reach, cuts)}, about)


def last_row(batching: Batching, slots: int) -> Cut:
    """The last full row of an episode of `slots` acted slots, or the whole episode where rows are not cut.

    The row ends with its last stretch of `detach_every` slots, whose gradient reaches furthest.
    """
    length, detach = getattr(batching, "length", None), batching.detach_every
    begin, stride = 0, (length or slots) - getattr(batching, "overlap", 0)
    if length is not None and slots > length:
        begin = (slots - length) // stride * stride
    shown = min(length or slots, slots)
    if detach is not None and shown > detach:
        shown = shown // detach * detach
    zero = getattr(batching, "init_state", "stored") == "zero"
    context = min(begin, getattr(batching, "burn_in", 0)) if zero else begin
    return Cut(begin, begin + shown - 1, context, detach)


def full_norms(memory: Memory, x: Tensor, start: Tensor, at: int) -> Array:
    """|dy_at / dx_t| of an episode x [1, S, D] for t = 0 .. at: [at + 1]."""
    return norms(memory, x[:, : at + 1], memory.initial_state(1), start[:, : at + 1], None)


def row_norms(memory: Memory, x: Tensor, start: Tensor, cut: Cut) -> Array:
    """The same through a training row alone: 0 before the row."""
    state = memory.initial_state(1)
    if cut.context:
        before = slice(cut.begin - cut.context, cut.begin)
        with torch.no_grad():
            state = memory(x[:, before], state, start[:, before])[1]
    row = slice(cut.begin, cut.at + 1)
    found = norms(memory, x[:, row], state, start[:, row], cut.detach_every)
    return np.append(np.zeros(cut.begin), found)


def norms(memory: Memory, x: Tensor, state: State, start: Tensor, detach_every: int | None) -> Array:
    """|dy_{T-1} / dx_t| of a row x [1, T, D], exactly, from one copy of the row for each output: [T]."""
    total = torch.zeros(x.shape[1], dtype=torch.float64)
    for outputs in torch.arange(memory.output_size).split(SIDE_BY_SIDE):
        N = len(outputs)
        copies = x.detach().expand(N, -1, -1).clone().requires_grad_()
        states = tree_map(lambda s, n=N: s.expand(n, *s.shape[1:]).clone(), state)
        y = unroll(memory, copies, states, start.expand(N, -1), detach_every)
        last = y[torch.arange(N), -1, outputs].sum()
        (gradient,) = torch.autograd.grad(last, copies)
        total += gradient.double().square().sum((0, 2))
    return total.sqrt().numpy()


def _mean(curves: list[Array]) -> Array:
    """At each lag, the mean over the curves that reach it."""
    table = np.full((len(curves), max(map(len, curves))), np.nan)
    for row, curve in zip(table, curves, strict=True):
        row[: len(curve)] = curve
    return np.nanmean(table, 0)


def _one_percent(norms: Array) -> float:
    """The greatest lag whose norm is at least a hundredth of the greatest norm."""
    return float(np.flatnonzero(norms >= norms.max() / 100)[-1])


def picture(by_lag: dict[str, Array], reach: int, cuts: dict[str, Any]) -> Any:
    """Both norms by lag. The scale is logarithmic and cannot show zeros, so a curve ends where the gradient is cut."""
    made, axes = figure(3.7)
    panel, lags = axes[0, 0], np.arange(len(by_lag["whole"]))
    labels = {"whole": "through the whole episode", "trained": "through a training row"}
    looks = {"whole": (COLOURS[0], 3.2, "-"), "trained": (COLOURS[1], 1.8, "--")}
    for name, values in by_lag.items():
        colour, width, style = looks[name]
        positive = np.where(values > 0, values, np.nan)
        panel.plot(lags, positive, style, color=colour, lw=width, label=labels[name])
    if reach < len(lags) - 1:
        panel.axvline(reach + 0.5, color="black", lw=1.2, ls=":", label=f"cut after lag {reach}")
    settings = ", ".join(f"{name}={value}" for name, value in cuts.items() if value is not None)
    panel.set(yscale="log", xlabel="lag k (slots)", ylabel="|∂y_T / ∂x_(T-k)|")
    panel.set(title=f"reach of the gradient ({settings or 'nothing is cut'})", xlim=(-0.5, max(len(lags) - 0.5, 1)))
    whole_numbers(panel.xaxis)
    panel.legend()
    return made
