"""Slots in which one noisy frame changes what an agent thinks of its actions, and what it does."""

from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import Space, spaces
from numpy.typing import NDArray
from torch import Tensor

from rlmem.agents.actor_critic import Agent
from rlmem.analysis.features import actions, knows_q, opinions, replaced
from rlmem.analysis.loaded import Episodes, LoadedRun
from rlmem.analysis.output import LOOKS, Result, beside_null, curve_rows, if_reached
from rlmem.core.errors import UserError
from rlmem.core.seeding import Streams
from rlmem.record.figures import figure, whole_numbers

Array = NDArray[np.float64]


class Changes(NamedTuple):
    """What noise in one frame changes, by age: in the slots that come so many slots after the frame.

    value: mean over slots of the greatest change of what the agent thinks of an action (`features.opinions`), [A]
    action: share of the slots in which the greedy action is another one, or where actions are continuous the mean of
        their greatest change, [A]
    before: the greatest such change in a slot before the frame, which is 0 unless a memory reads ahead
    spread: the standard deviation over slots of what it thinks without noise, to compare the changes with
    """

    value: Array
    action: Array
    before: float
    spread: float


def measure(run: LoadedRun, *, episodes: int = 16, frames: int = 16, noise: float = 1.0) -> Result:
    """What N(0, noise^2) on every feature of one observation changes in the slots after it (arXiv:2503.01450).

    Greedy episodes are read once as they were and once for each of `frames` slots, evenly spread over the episode,
    with noise in that slot alone; actions and rewards stay those of the episode. Averaged by age are max_a |Q' - Q|, or
    that of the probabilities of the actions for an agent without Q (PPO, IMPALA), and how often the greedy action is
    another one. The null is the same agent before it learnt, on the same episodes with the same noise.

    frames: noisy frames of each episode, one at a time
    noise: standard deviation of the noise
    """
    if not 0 < noise < np.inf:
        raise UserError(f"noise={noise} is no standard deviation; e.g. --noise 1")
    played, space = run.play(episodes), run.parts.env.single_action_space
    by_agent = run.with_null(
        lambda agent: changes(agent, played, space, frames, noise, run.seed),
    )
    continuous = isinstance(space, spaces.Box)
    nulls = {name: numbers(its, continuous) for name, its in by_agent.items()}
    acting = [name for name in nulls["trained"] if name.startswith(("flips", "action_change"))]
    metrics = beside_null(nulls, [*if_reached("half_life", nulls), "value_change_max", *acting])
    action = "action_change" if continuous else "flips"
    rows = curve_rows(by_agent, "age", lambda its: {"value_change": its.value, action: its.action})
    of = "Q(s, a)" if knows_q(run.agent) else "the action" if continuous else "pi(a | s)"
    about = {"of": of, "episodes": episodes, "frames": frames, "noise": noise}
    return Result(metrics, rows, {"picture": picture(by_agent, of, continuous)}, about)


@torch.no_grad()
def changes(agent: Agent, episodes: Episodes, space: Space, frames: int, noise: float, seed: int) -> Changes:
    """What noise in each of some frames of every episode changes.

    space: of the actions
    frames: how many of each episode, evenly spread from its first slot on
    noise: its standard deviation
    seed: root of the stream that it is drawn from
    """
    batch, length = episodes.batch, episodes.length.numpy()
    N, S = batch.shape
    generator, rows = Streams(seed).torch("contamination"), torch.arange(N)
    acted, slots = np.arange(S) < length[:, None], np.arange(S)
    value, action = opinions(agent, batch, space), actions(agent, batch)
    sums, counts, before = np.zeros((2, S)), np.zeros(S), 0.0
    for frame in range(frames):
        at = torch.from_numpy(length * frame // frames)
        drawn: dict[int, Tensor] = {}

        def noisy(features: Tensor, at: Tensor = at, drawn: dict[int, Tensor] = drawn) -> Tensor:
            """The features with noise in one slot of each row, the same for all who read so many features."""
            size, features = features.shape[-1], features.clone()
            if size not in drawn:
                drawn[size] = noise * torch.randn(N, size, generator=generator).to(features.dtype)
            features[rows, at] += drawn[size]
            return features

        with replaced(agent.trunks.trunks, noisy):
            other_value, other_action = opinions(agent, batch, space), actions(agent, batch)
        by_value = (other_value - value).abs().amax(-1).double().numpy()
        difference = (other_action.double() - action.double()).abs().flatten(2).amax(-1).numpy()
        by_action = difference if other_action.is_floating_point() else (difference > 0).astype(np.float64)
        age = slots - at.numpy()[:, None]
        after = acted & (age >= 0)
        for total, changed in zip(sums, (by_value, by_action), strict=True):
            total += np.bincount(age[after], changed[after], S)
        counts += np.bincount(age[after], minlength=S)
        before = max(before, float(by_value[acted & (age < 0)].max(initial=0)))
    reached = counts > 0
    spread = float(value.double()[torch.from_numpy(acted)].std(0, correction=0).mean())
    by_age = sums[:, reached] / counts[reached]
    return Changes(by_age[0], by_age[1], before, spread)


def half_life(curve: Array) -> tuple[int, bool]:
    """The slots after which a curve stays at or below half of its greatest value, and whether it does within it."""
    last = int(np.flatnonzero(curve > curve.max() / 2).max(initial=-1))
    return (last + 1, True) if last + 1 < len(curve) else (len(curve), False)


def numbers(of: Changes, continuous: bool) -> dict[str, float]:
    """What the changes come to.

    half_life: slots after which the change of values stays at or below half of its greatest
    half_life_reached: 1, or 0 if episodes end before; their length is the half-life then
    value_change_max: the greatest mean change
    value_spread, change_before: see `Changes`
    flips_at_0, flips_later: share of other actions in the noisy slot, and in later ones, each age with the same weight
    action_change_at_0, action_change_later: likewise for continuous actions
    """
    slots, reached = half_life(of.value)
    name = "action_change" if continuous else "flips"
    return {
        "half_life": float(slots),
        "half_life_reached": float(reached),
        "value_change_max": float(of.value.max()),
        "value_spread": of.spread,
        f"{name}_at_0": float(of.action[0]),
        f"{name}_later": float(of.action[1:].mean()) if len(of.action) > 1 else 0.0,
        "change_before": of.before,
    }


def picture(by_agent: dict[str, Changes], of: str, continuous: bool) -> Any:
    """The change of values, each curve divided by its greatest value, above; that of actions below."""
    drawing, axes = figure(4.8, 2, sharex=True)
    for name, its in by_agent.items():
        ages = np.arange(len(its.value))
        axes[0, 0].plot(ages, its.value / (its.value.max() or 1), label=name, **LOOKS[name])
        axes[1, 0].plot(ages, its.action, label=name, **LOOKS[name])
    axes[0, 0].axhline(0.5, color="black", lw=0.8, ls=":")
    axes[0, 0].set(ylabel=f"change of {of}\n/ its greatest", ylim=(0, 1.05), title="what noise in one frame changes")
    low = 0 if continuous else -0.02
    axes[1, 0].set(ylabel="change of the action" if continuous else "other greedy actions", ylim=(low, None))
    axes[1, 0].set(xlabel="age of the noise (slots since the noisy frame)")
    axes[0, 0].legend()
    whole_numbers(axes[1, 0].xaxis)
    return drawing
