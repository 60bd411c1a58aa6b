"""Calibrations of Stable Hadamard Memory (SHM) along episodes, and what their product leaves."""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlmem.agents.actor_critic import Agent
from rlmem.analysis.loaded import Episodes, LoadedRun
from rlmem.analysis.output import Result, beside_null
from rlmem.core.seeding import Streams
from rlmem.memory.shm import SHM
from rlmem.record.figures import COLOURS, as_image, figure, whole_numbers


def measure(run: LoadedRun, *, episodes: int = 20) -> Result:
    """The calibrations C_t along greedy episodes (Le et al. 2024, arXiv:2410.10132, figures 3a and 3c).

        P_t = C_1 * ... * C_t

    The elements of P_t below 1 are averaged: where they vanish, so does the memory. C_t is computed in float64, for
    every `calibration`, as the step from a memory of ones minus the step from a memory of zeros. If actor and critic
    have a memory each, the critic's is measured. The null is what the same memory left before it learnt, along the same
    episodes.
    """
    name, memory = next(iter(run.memories(SHM, "shm").items()))
    played = run.play(episodes)

    def along(agent: Agent) -> Along:
        return follow(agent, run.memories(SHM, "shm", agent)[name], played, run.seed)

    by_agent = run.with_null(along)
    scores = {which: of.metrics() for which, of in by_agent.items()}
    stats, C, M, shown = by_agent["trained"]
    rows = [
        {"episode": i, "t": t + 1, "product_mean": p, "below_one_mean": b, "below_one_share": s}
        for i, n in enumerate(played.length.tolist())
        for t, (p, b, s) in enumerate(stats[:, i, :n].T.tolist())
    ]
    pictures = {"picture": picture(stats[1], memory.calibration), "matrices": matrices(C, M, shown + 1)}
    about = {"memory": name, "calibration": memory.calibration, "draw": memory.draw, "episodes": episodes}
    metrics = beside_null(scores, [metric for metric in scores["trained"] if metric.startswith("below_one")])
    return Result(metrics, rows, pictures, about, {"C": C, "M": M, "t": shown + 1})


class Along(NamedTuple):
    """The calibrations of a memory along episodes.

    stats: `product_stats` of P_t at every slot [3, episodes, slots], NaN after an episode's end
    C, M: C_t and M_t [shown, k, k] of the first episode
    shown: the slots of these, from 0
    """

    stats: NDArray[np.float64]
    C: NDArray[np.float64]
    M: NDArray[np.float64]
    shown: NDArray[np.int64]

    def metrics(self) -> dict[str, float]:
        """Means over episodes."""
        mean, below, share = np.nanmean(self.stats, 1)
        return {
            "below_one_at_end": float(below[-1]),
            **{f"below_one_at_{t}": float(below[t - 1]) for t in (10, 100, 1000) if t <= len(below)},
            "share_below_one_at_end": float(share[-1]),
            "steps_to_one_percent": float((below > 0.01).sum()),
            "product_mean_at_end": float(mean[-1]),
        }


@torch.no_grad()
def follow(agent: Agent, memory: SHM, played: Episodes, seed: int) -> Along:
    """What the calibrations of an agent's memory leave along episodes.

    memory: that of the agent
    seed: of the rows of draw=fresh
    """
    seen: list[tuple[Any, ...]] = []  # what the memory reads
    with memory.register_forward_pre_hook(lambda module, args: seen.append(args)):
        agent.trunks.read(played.batch)
    lengths, slots = played.length.numpy(), int(played.length.max())
    shown = np.unique(np.linspace(0, int(lengths[0]) - 1, 4).astype(int))  # the slots whose matrices are drawn
    stats, pairs = np.full((3, len(lengths), slots), np.nan), []
    product = torch.ones(len(lengths), memory.k, memory.k, dtype=torch.float64)
    for t, (C, M) in enumerate(calibrations(memory, seen[0][0][:, :slots], seed)):
        product = product * C
        stats[:, :, t] = product_stats(product)
        if t in shown:
            pairs.append((C[0].numpy(), M[0].numpy()))
    stats[:, np.arange(slots) >= lengths[:, None]] = np.nan
    C_shown, M_shown = (np.stack(matrices) for matrices in zip(*pairs, strict=True))
    return Along(stats, C_shown, M_shown, shown)


@torch.no_grad()
def calibrations(memory: SHM, x: Tensor, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """C_t and M_t [N, k, k] of every slot of episodes x [N, T, D] in turn, in float64.

    Episode 0 has the random draws of acting, episode n those after n redraws. Draws depend on seed and age alone, so
    that all episodes of one rollout would have the same. The rows of draw=fresh come from `seed`.
    """
    exact = deepcopy(memory).double()
    state = exact.initial_state(len(x))
    state["seed"] = state["seed"] + torch.arange(len(x), dtype=state["seed"].dtype)  # as `redraw` does
    inside = torch.zeros(len(x), dtype=torch.bool)  # the state is that of a start already
    for t, slot in enumerate(x.double().unbind(1)):
        zeros = torch.zeros_like(state["M"])
        after = []
        for M in (zeros + 1, zeros, state["M"]):
            with Streams(seed).module_init(f"shm {t}"):
                after.append(exact.step(slot, state | {"M": M}, inside)[1])
        state = after[-1]
        yield after[0]["M"] - after[1]["M"], state["M"]


def product_stats(product: Tensor) -> np.ndarray:
    """Mean, mean of the elements below 1 (1 if there are none) and share of these, of matrices [N, k, k]: [3, N]."""
    flat = product.flatten(1)
    below = flat < 1
    count = below.sum(1)
    mean_below = torch.where(count > 0, (flat * below).sum(1) / count.clamp(min=1), 1.0)
    return torch.stack([flat.mean(1), mean_below, count / flat.shape[1]]).numpy()


def picture(below: np.ndarray, calibration: str) -> Any:
    """The mean of the elements of P_t below 1 [N, T], for each episode and averaged over episodes."""
    drawing, axes = figure(3.5)
    panel, t = axes[0, 0], np.arange(1, below.shape[1] + 1)
    panel.plot(t, below.T, color=COLOURS[5], lw=0.8, alpha=0.5)
    panel.plot(t, np.nanmean(below, 0), color=COLOURS[0], lw=2.5, label="mean of episodes")
    panel.plot([], [], color=COLOURS[5], label="an episode")
    panel.set(xlabel="t (slots)", ylabel="mean of elements below 1", ylim=(-0.03, 1.05))
    panel.set(title=f"what the product of C₁ … C_t leaves\n(calibration={calibration})")
    whole_numbers(panel.xaxis)
    panel.legend()
    return drawing


def matrices(C: np.ndarray, M: np.ndarray, t: np.ndarray) -> Any:
    """C_t and M_t [slots, k, k] of an episode at slots t."""
    drawing, axes = figure(2.25 * len(t), len(t), 2)
    for column, (name, stack, centre) in enumerate((("C", C, 1.0), ("M", M, 0.0))):
        reach = max(float(np.abs(stack - centre).max()), 1e-12)
        for panel, matrix, when in zip(axes[:, column], stack, t, strict=True):
            shown = panel.imshow(matrix, cmap="RdBu_r", vmin=centre - reach, vmax=centre + reach)
            panel.set(title=f"{name} at t = {when}", xticks=[], yticks=[])
            as_image(panel)
        drawing.colorbar(shown, ax=axes[:, column], location="bottom", shrink=0.9, aspect=30)
    drawing.supxlabel("column (key)")
    drawing.supylabel("row (value)")
    return drawing
