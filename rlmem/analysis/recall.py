"""Recall density: where in the past the values come from, and what smears it without any memory."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import Space
from numpy.typing import NDArray
from torch import Tensor

from rlmem.agents.actor_critic import Agent
from rlmem.analysis.features import derivative_sizes, name_of, reader, total
from rlmem.analysis.loaded import Episodes, LoadedRun
from rlmem.analysis.output import LOOKS, Result, beside_null, curve_rows, ragged
from rlmem.core.errors import UserError
from rlmem.record.figures import COLOURS, figure, whole_numbers

Array = NDArray[np.float64]


class Recall(NamedTuple):
    """The recall densities of E episodes.

    by_age: [E, A], by the age of the observation, in slots before the value's; NaN from before an episode's start
    future: [E], what belongs to slots after the value's, which is 0 unless a memory reads ahead
    """

    by_age: Array
    future: Array

    @property
    def mean(self) -> Array:
        """The density by age [A], of the episodes that reach the age."""
        return np.nanmean(self.by_age, 0)


def measure(run: LoadedRun, *, episodes: int = 10, twin: Path | None = None) -> Result:
    """The recall density at the last acted slot n of greedy episodes (arXiv:2503.01450).

        rho_i = |d sum_a Q(s_n, a) / d o_i|_1,   divided by its sum over i

    The derivative passes through memory and encoder over the whole episode, however training truncated it. An agent
    without Q (PPO, IMPALA) is measured by what decides its action (`rlmem.analysis.features.total`), since V(s) need
    not depend on what the action does. Where the environment shows all of its state, nothing has to be recalled, and
    what lies before the last slot is smearing. The null is the same agent before it learnt, on the same episodes.

    twin: a run of the same memory with env.observe=full, whose smearing is shown beside; a run that has it itself
        needs no twin
    """
    other = None if twin is None else run.twin(twin)
    played, space = run.play(episodes), run.parts.env.single_action_space
    by_agent = run.with_null(lambda agent: recall(agent, played, space))
    full = run.config.values["env"].get("observe") == "full"
    if other is not None:
        by_agent["twin"] = recall(other.agent, other.play(episodes), other.parts.env.single_action_space)
    nulls = {name: numbers(its) for name, its in by_agent.items() if name != "twin"}
    metrics = beside_null(nulls, ("before_last", "mean_age", "effective_slots"))
    if "untrained" in by_agent:
        metrics["distance_from_untrained"] = distance(by_agent["trained"], by_agent["untrained"])
    if full or twin is not None:
        metrics["smearing"] = numbers(by_agent["trained" if twin is None else "twin"])["before_last"]
    rows = curve_rows(by_agent, "age", lambda its: {"density": its.mean})
    of = name_of(run.agent, space)
    about = {"of": of, "episodes": episodes, "twin": None if twin is None else str(twin)}
    return Result(metrics, rows, {"picture": picture(by_agent, of)}, about)


def recall(agent: Agent, episodes: Episodes, space: Space) -> Recall:
    """The recall densities of an agent in episodes, at their last acted slots; without values that depend on nothing.

    space: of the actions

    Raises UserError if there are no others.
    """
    density = densities(agent, episodes, episodes.length - 1, space)
    finite = np.flatnonzero(density.isfinite().all(1).numpy())
    if not len(finite):
        raise UserError("the last value depends on no observation; e.g. --step of another checkpoint")
    rows, last = density.numpy()[finite], episodes.length.numpy()[finite]
    future = np.array([row[n:].sum() for row, n in zip(rows, last, strict=True)])
    return Recall(ragged([row[:n][::-1] for row, n in zip(rows, last, strict=True)]), future)


def densities(agent: Agent, episodes: Episodes, slots: Tensor, space: Space) -> Tensor:
    """The recall density over all slots [N, S] of the values in one slot [N] of each episode.

    It is NaN where the value depends on no observation. Raises UserError if a derivative is not finite.

    space: of the actions
    """
    rows = torch.arange(len(slots))
    there = lambda: total(agent, episodes.batch, space)[rows, slots].sum()  # noqa: E731
    size = derivative_sizes(reader(agent), there).double()
    if not size.isfinite().all():
        raise UserError("the gradient is not finite; e.g. --step best")
    return size / size.sum(1, keepdim=True)


def numbers(of: Recall) -> dict[str, float]:
    """What the densities come to, each a mean over the episodes.

    before_last: what lies before the last slot
    mean_age: of an observation, weighted by its density
    peak_age: where the mean density is greatest
    effective_slots: exp(entropy), how many slots it is spread over
    future: what lies after the last slot
    """
    density = np.nan_to_num(of.by_age)
    logs = np.log(density, out=np.zeros_like(density), where=density > 0)
    return {
        "before_last": float(density[:, 1:].sum(1).mean()),
        "mean_age": float((density @ np.arange(density.shape[1])).mean()),
        "peak_age": float(of.mean.argmax()),
        "effective_slots": float(np.exp(-(density * logs).sum(1)).mean()),
        "future": float(of.future.mean()),
    }


def distance(one: Recall, other: Recall) -> float:
    """Half of the summed |difference| of two mean densities: 0 for equal ones, 1 for ones that share no age."""
    means = [np.nan_to_num(of.by_age).mean(0) for of in (one, other)]
    ages = max(map(len, means))
    first, second = (np.pad(mean, (0, ages - len(mean))) for mean in means)
    return float(np.abs(first - second).sum() / 2)


def picture(by_agent: dict[str, Recall], of: str) -> Any:
    """The densities by age, above, and what is of an age or older, below."""
    drawing, axes = figure(4.8, 2, sharex=True)
    looks = LOOKS | {"twin": {"color": COLOURS[1], "lw": 1.6, "ls": ":"}}
    for name, its in by_agent.items():
        label = "twin that sees all (smearing)" if name == "twin" else name
        older = np.nan_to_num(its.by_age).mean(0)[::-1].cumsum()[::-1]
        axes[0, 0].step(np.arange(len(its.mean)), its.mean, where="mid", label=label, **looks[name])
        axes[1, 0].plot(np.arange(len(older)), older, label=label, **looks[name])
    axes[0, 0].set(ylabel="recall density", ylim=(0, None), title=f"recall of {of}, last step")
    axes[1, 0].set(ylabel="this old or older", ylim=(-0.05, 1.05))
    ages = max(its.by_age.shape[1] for its in by_agent.values())
    axes[1, 0].set(xlabel="age of the observation (slots before the last step)", xlim=(ages - 0.5, -0.5))
    axes[0, 0].legend(loc="best")
    whole_numbers(axes[1, 0].xaxis)
    return drawing
