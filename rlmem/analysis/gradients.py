"""Reach of the gradient of a memory's last output back in time, and where training cuts it."""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils._pytree import tree_map

from rlmem.analysis.loaded import LoadedRun
from rlmem.analysis.output import Result, ragged
from rlmem.batching import Batching, unroll
from rlmem.batching.base import least
from rlmem.memory.base import Memory
from rlmem.record.figures import COLOURS, figure, whole_numbers

Array = NDArray[np.float64]
SIDE_BY_SIDE = 32
"""How many outputs have their gradients computed at once."""


class Cut(NamedTuple):
    """A training row: it shows the slots `begin` to `at` of its episode, from a state that is `context` slots old."""

    begin: int
    at: int
    context: int = 0
    detach_every: int | None = None


def measure(run: LoadedRun, *, episodes: int = 4) -> Result:
    """|dy_T / dx_{T-k}| for every lag k: Frobenius norms of the Jacobian of the memory's output by its inputs.

    T is the last slot of the last full row that training would cut from a greedy episode; x is the encoder's output.
    Each is measured twice: through the whole episode, and through that row alone with `detach_every`, beyond which it
    is exactly 0. Norms are means over the episodes that are long enough for the lag. The end of a rollout cuts rows,
    too; it may fall anywhere in an episode, and is taken to fall where rollouts would end that begin with the episode.
    """
    trunk, batching, outline = run.agent.trunks.critic, run.parts.batching, run.parts.outline
    shown, storage = outline.shown, outline.storage
    replays = storage is not None and storage.capacity is not None
    whole, trained = [], []
    for episode in run.play(episodes):
        with torch.no_grad():
            x = trunk.encoder(*episode.inputs)
        cut = last_row(batching, x.shape[1], shown, only_first=replays)
        whole.append(norms(trunk.memory, x, episode.start, Cut(0, cut.at))[::-1])
        trained.append(norms(trunk.memory, x, episode.start, cut)[::-1])
    by_lag = {"whole": np.nanmean(ragged(whole), 0), "trained": np.nanmean(ragged(trained), 0)}
    rows = [{"lag": k, **{name: float(v[k]) for name, v in by_lag.items()}} for k in range(len(by_lag["whole"]))]
    reach = int(by_lag["trained"].nonzero()[0].max(initial=0))
    total = float(by_lag["whole"].sum())
    metrics = {
        "norm_at_0": float(by_lag["whole"][0]),
        "norm_at_end": float(by_lag["whole"][-1]),
        "last_lag": float(len(rows) - 1),
        "last_lag_trained": float(reach),
        "share_cut": float(by_lag["whole"][reach + 1 :].sum() / total) if total else 0.0,
        **{f"one_percent_lag_{name}": float(np.flatnonzero(v >= v.max() / 100)[-1]) for name, v in by_lag.items()},
    }
    cuts = {name: getattr(batching, name, None) for name in ("length", "detach_every")}
    cuts["longest_episode" if replays else "rollout_slots"] = shown
    about = {"episodes": episodes, "batching": run.config.choices["batching"], **cuts}
    return Result(metrics, rows, {"picture": picture(by_lag, reach, cuts)}, about)


def last_row(batching: Batching, slots: int, shown: int | None = None, only_first: bool = False) -> Cut:
    """The last full row of an episode, up to the end of its last stretch of `detach_every`.

    slots: acted slots of the episode
    shown: the most of them that a rollout or a batch shows in one piece; None: all
    only_first: whether these are always its first slots, as in a batch from a replay, and later rows do not follow
    """
    if shown is not None and only_first:
        slots, shown = min(slots, shown), None
    length, detach = least(getattr(batching, "length", None), shown) or slots, batching.detach_every
    stride = length - getattr(batching, "overlap", 0)
    begin, width = max(slots - length, 0) // stride * stride, min(length, slots)
    if detach is not None and width > detach:
        width = width // detach * detach
    zero = getattr(batching, "init_state", "stored") == "zero"
    context = min(begin, getattr(batching, "burn_in", 0)) if zero else begin
    return Cut(begin, begin + width - 1, context, detach)


def norms(memory: Memory, x: Tensor, start: Tensor, cut: Cut) -> Array:
    """|dy_at / dx_t| [at + 1] of an episode x [1, S, D], 0 before the row; exact, from a copy of it for each output."""
    state = memory.initial_state(1)
    if cut.context:
        before = slice(cut.begin - cut.context, cut.begin)
        with torch.no_grad():
            state = memory(x[:, before], state, start[:, before])[1]
    row = slice(cut.begin, cut.at + 1)
    total = torch.zeros(cut.at + 1, dtype=torch.float64)
    for outputs in torch.arange(memory.output_size).split(SIDE_BY_SIDE):
        N = len(outputs)
        copies = x[:, row].detach().expand(N, -1, -1).clone().requires_grad_()
        states = tree_map(lambda s, n=N: s.expand(n, *s.shape[1:]).clone(), state)
        y = unroll(memory, copies, states, start[:, row].expand(N, -1), cut.detach_every)
        (gradient,) = torch.autograd.grad(y[torch.arange(N), -1, outputs].sum(), copies)
        total[row] += gradient.double().square().sum((0, 2))
    return total.sqrt().numpy()


def picture(by_lag: dict[str, Array], reach: int, cuts: dict[str, Any]) -> Any:
    """Both norms by lag. The scale is logarithmic and cannot show zeros, so a curve ends where the gradient is cut."""
    drawing, axes = figure(3.7)
    panel, lags = axes[0, 0], np.arange(len(by_lag["whole"]))
    looks: dict[str, Any] = {
        "whole": {"label": "through the whole episode", "color": COLOURS[0], "lw": 3.2, "ls": "-"},
        "trained": {"label": "through a training row", "color": COLOURS[1], "lw": 1.8, "ls": "--"},
    }
    for name, values in by_lag.items():
        panel.plot(lags, np.where(values > 0, values, np.nan), **looks[name])
    if reach < len(lags) - 1:
        panel.axvline(reach + 0.5, color="black", lw=1.2, ls=":", label=f"cut after lag {reach}")
    settings = ", ".join(f"{name}={value}" for name, value in cuts.items() if value is not None)
    panel.set(yscale="log", xlabel="lag k (slots)", ylabel="|∂y_T / ∂x_(T-k)|")
    panel.set(title=f"reach of the gradient ({settings or 'nothing is cut'})", xlim=(-0.5, max(len(lags) - 0.5, 1)))
    whole_numbers(panel.xaxis)
    panel.legend()
    return drawing
