"""Past observations that the value at an episode's end depends on (Morad et al. 2024, arXiv:2402.09900)."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from rlmem.agents.actor_critic import Agent
from rlmem.analysis.features import derivative_sizes
from rlmem.analysis.loaded import Episodes, LoadedRun
from rlmem.analysis.output import LOOKS, Result, beside_null, curve_rows, ragged
from rlmem.core.errors import UserError
from rlmem.record.figures import COLOURS, as_image, figure, whole_numbers


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
    episodes of its own. The null is the same agent before it learnt, on the episodes of the chosen checkpoint.

    older_than: age in slots from which on observations count as older
    all_checkpoints: add a map of sensitivity over training
    """
    steps = run.steps() if all_checkpoints else [run.step]
    last, played, curves = run.step, {}, {}
    for step in steps:
        run.load(step)
        played[step] = run.play(episodes)
        curves[step] = by_age(sensitivities(run.agent, played[step]), played[step].length)
    run.load(last)
    by_agent = run.with_null(lambda agent: by_age(sensitivities(agent, played[last]), played[last].length))
    nulls = {name: shares(its, older_than) for name, its in by_agent.items()}
    metrics = {
        **beside_null(nulls, nulls["trained"]),
        "sensitivity_mean": float(by_agent["trained"].mean.mean()),
        "longest_episode": float(len(by_agent["trained"].mean)),
    }
    columns = lambda curve: {"sensitivity": curve.mean, "share_this_old_or_older": curve.outside}  # noqa: E731
    rows = curve_rows(curves, "age", columns, of="step")
    value = run.agent.value_name
    about = {"value": value, "older_than": older_than, "episodes": episodes, "steps": steps}
    return Result(
        metrics, rows, {"picture": picture(curves, last, by_agent.get("untrained"), older_than, value)}, about
    )


def shares(of: ByAge, older_than: int) -> dict[str, float]:
    """How much of the sensitivity is of ages `older_than` and above; the greatest age with half of it behind."""
    older = float(of.outside[min(older_than, len(of.outside) - 1)])
    return {"share_older": older, "share_inside": 1 - older, "age_of_half": float((of.outside >= 0.5).sum() - 1)}


def sensitivities(agent: Agent, episodes: Episodes) -> Tensor:
    """The sensitivity to every slot's observation [N, S]; 0 after the end of an episode."""
    last = lambda: episodes.at_last(agent.value(episodes.batch)).sum()  # noqa: E731
    return derivative_sizes(agent.trunks.critic, last)


def by_age(sensitivity: Tensor, length: Tensor) -> ByAge:
    """The curves of slots [N, S] of episodes with `length` [N] acted slots."""
    if not sensitivity.isfinite().all():
        raise UserError("the gradient is not finite; e.g. --step best")
    rows = ragged([row[:n][::-1] for row, n in zip(sensitivity.double().numpy(), length.tolist(), strict=True)])
    total = np.nansum(rows, 1)
    if not total.any():
        raise UserError("the value depends on no observation; e.g. --step of another checkpoint")
    shares = np.nan_to_num(rows[total > 0]) / total[total > 0, None]
    outside = np.append(shares[:, ::-1].cumsum(1)[:, ::-1].mean(0), 0.0)
    return ByAge(np.nanmean(rows, 0), outside)


def picture(curves: dict[int, ByAge], step: int, null: ByAge | None, k: int, value: str) -> Any:
    """Sensitivity by age; the share of older observations, and of the untrained `null`; a map of all checkpoints."""
    several = len(curves) > 1
    drawing, axes = figure(7.0 if several else 4.8, 2 + several, sharex=True)
    mean, outside = curves[step]
    ages = np.arange(len(mean))
    top, bottom = axes[0, 0], axes[1, 0]
    top.fill_between(ages, mean, step="mid", color=COLOURS[0], alpha=0.35)
    top.step(ages, mean, where="mid", color=COLOURS[0], lw=1.8)
    top.set(ylabel="sensitivity", title=f"|d{value}/do| of the last step, by age (checkpoint {step:,})", ylim=(0, None))
    bottom.plot(np.arange(len(outside)), outside, label="this old or older", **LOOKS["trained"])
    if null is not None:
        bottom.plot(np.arange(len(null.outside)), null.outside, label="untrained", **LOOKS["untrained"])
    if k < len(outside):
        top.axvline(k, color=COLOURS[1], lw=1.2)
        bottom.axvline(k, color=COLOURS[1], lw=1.2)
        bottom.plot(k, outside[k], "o", color=COLOURS[1], ms=8, label=f"age {k} or older: {outside[k]:.0%}")
    bottom.set(ylabel="share of sensitivity", ylim=(-0.05, 1.05))
    bottom.legend(loc="upper left", frameon=True, edgecolor="none")
    if several:
        heat_map(drawing, axes[2, 0], curves)
    axes[-1, 0].set(xlabel="age of the observation (slots before the last step)", xlim=(len(ages) - 0.5, -0.5))
    whole_numbers(axes[-1, 0].xaxis)
    return drawing


def heat_map(drawing: Any, axes: Any, curves: dict[int, ByAge]) -> None:
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
    drawing.colorbar(cells, ax=axes, label="sensitivity")
