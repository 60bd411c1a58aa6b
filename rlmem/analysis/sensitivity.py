"""Which past observations the value at an episode's end depends on: VML against RML."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlmem.agents.base import Agent
from rlmem.analysis.loaded import Episodes, LoadedRun, at_last
from rlmem.analysis.output import Result
from rlmem.analysis.values import nothing_blocked, observations_as_leaves, value_name, value_of
from rlmem.errors import UserError
from rlmem.stats.figures import COLOURS, as_image, figure, whole_numbers

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ByAge:
    """Sensitivities by age: an observation of age k was seen k slots before the last acted one.

    mean: sensitivity by age, averaged over the episodes that reach the age, [A]
    outside: share of an episode's sensitivity that belongs to ages k and above, averaged over episodes, [A + 1]
    """

    mean: Array
    outside: Array


def measure(run: LoadedRun, *, episodes: int = 10, older_than: int = 10, all_checkpoints: bool = False) -> Result:
    """|d Q(s_n, a_n) / d o_i| of the last acted slot n of greedy episodes (Morad et al. 2024, arXiv:2402.09900).

        sensitivity of o_i = sum over features f of |dQ / do_{i,f}|

    The derivative passes through memory and encoder over the whole episode, however training truncated it. An agent
    without Q (PPO, IMPALA) is measured by V(s_n). Ages k and above are "older than k": a segment of k slots that ends
    at n leaves them out.

    episodes: greedy episodes to play
    older_than: k
    all_checkpoints: measure every earlier checkpoint too, each on greedy episodes of its own
    """
    steps = run.steps() if all_checkpoints else [run.step]
    last, curves = run.step, {}
    for step in steps:
        run.load(step)
        curves[step] = by_age(sensitivities(run.agent, played := run.play(episodes)), played.length)
    run.load(last)
    found = curves[last]
    older = float(found.outside[min(older_than, len(found.outside) - 1)])
    metrics = {
        "share_older": older,
        "share_inside": 1 - older,
        "age_of_half": float((found.outside >= 0.5).sum() - 1),
        "sensitivity_mean": float(found.mean.mean()),
        "longest_episode": float(len(found.mean)),
    }
    about = {"value": value_name(run.agent), "older_than": older_than, "episodes": episodes, "steps": steps}
    rows = [row for step, curve in curves.items() for row in table(step, curve)]
    return Result(metrics, rows, {"picture": picture(curves, last, older_than, value_name(run.agent))}, about)


def sensitivities(agent: Agent, episodes: Episodes) -> Tensor:
    """The sensitivity to every slot's observation [N, S]; 0 after the end of an episode."""
    with nothing_blocked(agent), observations_as_leaves(agent.trunks.critic.encoder) as leaves:
        value = at_last(value_of(agent, episodes.batch), episodes.length)
    if not leaves:
        raise UserError("analyze sensitivity: the encoder does not read observations through `obs_features`")
    (gradient,) = torch.autograd.grad(value.sum(), leaves)
    return gradient.abs().flatten(2).sum(-1)


def by_age(sensitivity: Tensor, length: Tensor) -> ByAge:
    """The curves of slots [N, S] of episodes with `length` [N] acted slots."""
    if not sensitivity.isfinite().all():
        raise UserError("analyze sensitivity: the gradient is not finite; e.g. --step best")
    longest = int(length.max())
    rows = np.full((len(length), longest), np.nan)
    for row, slots, n in zip(rows, sensitivity.double().numpy(), length.tolist(), strict=True):
        row[:n] = slots[:n][::-1]
    total = np.nansum(rows, 1)
    if not total.any():
        raise UserError("analyze sensitivity: the value depends on no observation; e.g. --step of another checkpoint")
    shares = np.nan_to_num(rows[total > 0]) / total[total > 0, None]
    outside = np.append(shares[:, ::-1].cumsum(1)[:, ::-1].mean(0), 0.0)
    return ByAge(np.nanmean(rows, 0), outside)


def table(step: int, curve: ByAge) -> list[dict[str, Any]]:
    columns = zip(curve.mean, curve.outside, strict=False)
    return [
        {"step": step, "age": age, "sensitivity": float(mean), "share_this_old_or_older": float(outside)}
        for age, (mean, outside) in enumerate(columns)
    ]


def picture(curves: dict[int, ByAge], step: int, k: int, value: str) -> Any:
    """Sensitivity by age, the share of older observations, and for several checkpoints a map of steps by ages."""
    several = len(curves) > 1
    made, axes = figure(7.0 if several else 4.8, 2 + several, sharex=True)
    curve = curves[step]
    ages = np.arange(len(curve.mean))
    top, bottom = axes[0, 0], axes[1, 0]
    top.fill_between(ages, curve.mean, step="mid", color=COLOURS[0], alpha=0.35)
    top.step(ages, curve.mean, where="mid", color=COLOURS[0], lw=1.8)
    top.set(ylabel="sensitivity", title=f"|d{value}/do| of the last step, by age (checkpoint {step:,})", ylim=(0, None))
    bottom.plot(np.arange(len(curve.outside)), curve.outside, color=COLOURS[0], lw=2, label="this old or older")
    share = curve.outside[min(k, len(curve.outside) - 1)]
    if k < len(curve.outside):
        top.axvline(k, color=COLOURS[1], lw=1.2)
        bottom.axvline(k, color=COLOURS[1], lw=1.2)
        bottom.plot(k, share, "o", color=COLOURS[1], ms=8, label=f"age {k} or older: {share:.0%}")
    bottom.set(ylabel="share of sensitivity", ylim=(-0.05, 1.05))
    bottom.legend(loc="upper left", frameon=True, edgecolor="none")
    if several:
        heat_map(made, axes[2, 0], curves)
    axes[-1, 0].set(xlabel="age of the observation (slots before the last step)", xlim=(len(ages) - 0.5, -0.5))
    whole_numbers(axes[-1, 0].xaxis)
    return made


def heat_map(made: Any, axes: Any, curves: dict[int, ByAge]) -> None:
    """Sensitivity, on a logarithmic scale, of each checkpoint (rows, the first on top) and age."""
    from matplotlib.colors import LogNorm

    longest = max(len(curve.mean) for curve in curves.values())
    rows = np.full((len(curves), longest), np.nan)
    for row, curve in zip(rows, curves.values(), strict=True):
        row[: len(curve.mean)] = curve.mean
    rows[rows <= 0] = np.nan
    norm = LogNorm(np.nanmin(rows), np.nanmax(rows))
    cells = axes.pcolormesh(
        np.arange(longest + 1) - 0.5, np.arange(len(rows) + 1) - 0.5, rows, norm=norm, cmap="cividis"
    )
    axes.set(yticks=range(len(rows)), ylabel="checkpoint", title="sensitivity over training")
    axes.set_yticklabels([f"{step:,}" for step in curves])
    axes.invert_yaxis()
    as_image(axes)
    made.colorbar(cells, ax=axes, label="sensitivity")
