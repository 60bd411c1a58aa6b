"""Which past observations the value at an episode's end depends on (Morad et al. 2024, arXiv:2402.09900)."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rlmem.agents.base import Agent
from rlmem.analysis.loaded import Episodes, LoadedRun
from rlmem.analysis.output import Result, ragged
from rlmem.errors import UserError
from rlmem.stats.figures import COLOURS, as_image, figure, whole_numbers


class ByAge(NamedTuple):
    """Sensitivities by age: an observation of age k was seen k slots before the last acted one.

    mean: sensitivity by age, averaged over the episodes that reach the age, [A]
    outside: share of an episode's sensitivity that belongs to ages k and above, averaged over episodes, [A + 1]
    """

    mean: NDArray[np.float64]
    outside: NDArray[np.float64]


def measure(run: LoadedRun, *, episodes: int = 10, older_than: int = 10, all_checkpoints: bool = False) -> Result:
    """|d Q(s_n, a_n) / d o_i| of the last acted slot n of greedy episodes (Morad et al. 2024, arXiv:2402.09900).

        sensitivity of o_i = sum over features f of |dQ / do_{i,f}|

    The derivative passes through memory and encoder over the whole episode, however training truncated it. An agent
    without Q (PPO, IMPALA) is measured by V(s_n). Observations of age k = `older_than` and above count as older: a
    segment of k slots that ends at n leaves them out. With `all_checkpoints`, each earlier checkpoint plays greedy
    episodes of its own.
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
    rows = [
        {"step": step, "age": age, "sensitivity": float(mean), "share_this_old_or_older": float(outside)}
        for step, curve in curves.items()
        for age, (mean, outside) in enumerate(zip(*curve, strict=False))
    ]
    value = run.agent.value_name
    about = {"value": value, "older_than": older_than, "episodes": episodes, "steps": steps}
    return Result(metrics, rows, {"picture": picture(curves, last, older_than, value)}, about)


def sensitivities(agent: Agent, episodes: Episodes) -> Tensor:
    """The sensitivity to every slot's observation [N, S]; 0 after the end of an episode."""
    encoder = agent.trunks.critic.encoder
    if getattr(encoder, "reads_leaves", False):
        what = "the encoder reads observations of several parts, by whose numbers it does not differentiate"
        raise UserError(f"analyze sensitivity: {what}; expected a run with observations of one part")
    leaves: list[Tensor] = []

    def as_leaf(module: nn.Module, args: tuple[Tensor, ...], features: Tensor) -> Tensor:
        """Make a leaf of the observation's features [N, S, F], the same one for the encoder and its shortcut."""
        if not leaves:
            leaves.append(features.detach().to(next(encoder.parameters()).dtype).clone().requires_grad_())
        return leaves[0]

    with nothing_blocked(agent), encoder.obs_features.register_forward_hook(as_leaf):
        value = episodes.at_last(agent.value(episodes.batch))
    if not leaves:
        raise UserError("analyze sensitivity: the encoder does not read observations through `obs_features`")
    (gradient,) = torch.autograd.grad(value.sum(), leaves)
    return gradient.abs().flatten(2).sum(-1)


@contextmanager
def nothing_blocked(agent: Agent) -> Iterator[None]:
    """In this context, memories that block gradients in training (LP-RNN) have their true derivatives."""
    blocking: list[Any] = [module for module in agent.modules() if getattr(module, "block_gradients", False)]
    try:
        for module in blocking:
            module.block_gradients = False
        yield
    finally:
        for module in blocking:
            module.block_gradients = True


def by_age(sensitivity: Tensor, length: Tensor) -> ByAge:
    """The curves of slots [N, S] of episodes with `length` [N] acted slots."""
    if not sensitivity.isfinite().all():
        raise UserError("analyze sensitivity: the gradient is not finite; e.g. --step best")
    rows = ragged([row[:n][::-1] for row, n in zip(sensitivity.double().numpy(), length.tolist(), strict=True)])
    total = np.nansum(rows, 1)
    if not total.any():
        raise UserError("analyze sensitivity: the value depends on no observation; e.g. --step of another checkpoint")
    shares = np.nan_to_num(rows[total > 0]) / total[total > 0, None]
    outside = np.append(shares[:, ::-1].cumsum(1)[:, ::-1].mean(0), 0.0)
    return ByAge(np.nanmean(rows, 0), outside)


def picture(curves: dict[int, ByAge], step: int, k: int, value: str) -> Any:
    """Sensitivity by age, the share of older observations, and for several checkpoints a map of steps by ages."""
    several = len(curves) > 1
    made, axes = figure(7.0 if several else 4.8, 2 + several, sharex=True)
    mean, outside = curves[step]
    ages = np.arange(len(mean))
    top, bottom = axes[0, 0], axes[1, 0]
    top.fill_between(ages, mean, step="mid", color=COLOURS[0], alpha=0.35)
    top.step(ages, mean, where="mid", color=COLOURS[0], lw=1.8)
    top.set(ylabel="sensitivity", title=f"|d{value}/do| of the last step, by age (checkpoint {step:,})", ylim=(0, None))
    bottom.plot(np.arange(len(outside)), outside, color=COLOURS[0], lw=2, label="this old or older")
    if k < len(outside):
        top.axvline(k, color=COLOURS[1], lw=1.2)
        bottom.axvline(k, color=COLOURS[1], lw=1.2)
        bottom.plot(k, outside[k], "o", color=COLOURS[1], ms=8, label=f"age {k} or older: {outside[k]:.0%}")
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

    rows = ragged([curve.mean for curve in curves.values()])
    rows[rows <= 0] = np.nan
    down, across = (np.arange(n + 1) - 0.5 for n in rows.shape)
    cells = axes.pcolormesh(across, down, rows, norm=LogNorm(np.nanmin(rows), np.nanmax(rows)), cmap="cividis")
    axes.set(yticks=range(len(rows)), ylabel="checkpoint", title="sensitivity over training")
    axes.set_yticklabels([f"{step:,}" for step in curves])
    axes.invert_yaxis()
    as_image(axes)
    made.colorbar(cells, ax=axes, label="sensitivity")
