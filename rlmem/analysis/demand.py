"""Share of the recall density of every slot that lies on what the task demands."""

from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import Space
from numpy.typing import NDArray

from rlmem.acting.workers import closing
from rlmem.agents.actor_critic import Agent
from rlmem.analysis.features import name_of
from rlmem.analysis.loaded import Episodes, LoadedRun
from rlmem.analysis.output import Result, beside_null, curve_rows
from rlmem.analysis.recall import densities
from rlmem.config.messages import sentence
from rlmem.config.schema import WRAPPER
from rlmem.core.errors import UserError
from rlmem.record.figures import as_image, figure

Array = NDArray[np.float64]


class Covered(NamedTuple):
    """Recall densities over the demand, of the slots t in which the task demands something.

    density: [t, S], the mean over the episodes that demand something in slot t
    demanded: [t, S], the share of these episodes that demand the observation of each slot
    inside: [t], how much of the density is of demanded observations, the mean over these episodes
    uniform: [t], how much of a density that is the same for all slots so far would be
    """

    density: Array
    demanded: Array
    inside: Array
    uniform: Array


def measure(run: LoadedRun, *, episodes: int = 8, slots: int = 40) -> Result:
    """The recall density of the values in slot t, as a map of slots t by observations i, over the task's memory demand.

    The demand of slot t are the observations that acting best in it needs (arXiv:2508.04282), which an environment
    tells by `demand()`. A value that recalls what is demanded and nothing else has all of its density there. It is
    compared with a density that is the same for all slots so far, and with that of the agent before it learnt, on the
    same greedy episodes.

    slots: the most slots t that are looked at, evenly spread over those that demand something
    """
    told, played = demand_of(run), run.play(episodes)
    needs = demands(told, played)
    demanding = np.flatnonzero(needs.any((0, 2)))
    _, ends, begins = np.nonzero(needs)
    if not len(demanding):
        problem = "demanded no observation in these episodes"
        raise UserError(f"env={run.config.choices['env']} {problem}; e.g. --episodes 50")
    chosen = demanding[np.unique(np.linspace(0, len(demanding) - 1, min(slots, len(demanding))).round().astype(int))]
    space = run.parts.env.single_action_space
    by_agent = run.with_null(lambda agent: covered(agent, played, needs, chosen, space))
    trained = by_agent["trained"]
    metrics = {
        **beside_null({name: {"inside": float(its.inside.mean())} for name, its in by_agent.items()}, ("inside",)),
        "inside_uniform": float(trained.uniform.mean()),
        "demanded_mean": float(needs[:, chosen].sum(2)[needs[:, chosen].any(2)].mean()),
        "oldest_demanded": float((ends - begins).max()),
        "slots": float(len(chosen)),
    }
    rows = curve_rows(
        by_agent, "slot", lambda its: {"slot": chosen, "inside": its.inside, "inside_uniform": its.uniform}
    )
    about = {"of": name_of(run.agent, space), "episodes": episodes, "slots": chosen.tolist()}
    arrays = {"demanded": trained.demanded, **{f"density_{of}": its.density for of, its in by_agent.items()}}
    return Result(metrics, rows, {"picture": picture(by_agent, chosen)}, about, arrays)


def demand_of(run: LoadedRun) -> NDArray[np.bool_]:
    """The memory demand [T, T] of the environment. Raises UserError if it does not tell, or is wrapped."""
    if wrappers := run.config.values.get(WRAPPER):
        reason = "changes what is seen when, and with it the demand"
        raise UserError(f"wrapper={','.join(wrappers)}: {reason}; expected a run without wrappers")
    with closing(run.environment(1)) as env:
        task: Any = env.unwrapped
        told: NDArray[np.bool_] | None = task.demand() if hasattr(task, "demand") else None
        horizons = task.horizons() if hasattr(task, "horizons") else None
    if told is not None:
        return told
    name, reason = run.config.choices["env"], "does not tell its memory demand (an environment does by `demand()`)"
    if horizons == (0, 0):
        reason = "shows all that the best actions depend on, so that nothing need be recalled"
    raise UserError(sentence(f"env={name}", reason, example="a run with env=repeat_previous"))


def demands(told: NDArray[np.bool_], played: Episodes) -> NDArray[np.bool_]:
    """The demand [N, S, S] of every acted slot, the second axis, from that of an episode [T, T]."""
    S = played.batch.shape[1]
    whole = np.pad(told, (0, max(S - len(told), 0)))[:S, :S]
    return whole & played.batch.mask.numpy()[:, :, None]


def covered(
    agent: Agent, played: Episodes, needs: NDArray[np.bool_], slots: NDArray[np.int64], space: Space
) -> Covered:
    """The recall densities of an agent over the demand `needs` [N, S, S], in the given slots.

    space: of the actions
    """
    parts: list[tuple[Array, Array, float, float]] = []
    for t in slots.tolist():
        demanded = needs[:, t]
        some = demanded.any(1)
        size = densities(agent, played, torch.full((len(needs),), t), space).nan_to_num().numpy()[some]
        demanded = demanded[some]
        inside = (size * demanded).sum(1).mean()
        parts.append((size.mean(0), demanded.mean(0), float(inside), float(demanded.sum(1).mean() / (t + 1))))
    density, shares, inside_all, uniform = zip(*parts, strict=True)
    return Covered(np.array(density), np.array(shares), np.array(inside_all), np.array(uniform))


def picture(by_agent: dict[str, Covered], slots: NDArray[np.int64]) -> Any:
    """Maps of slots t (rows, downwards) by observations: what is demanded, and the densities."""
    maps = {"demanded": by_agent["trained"].demanded}
    for name, its in by_agent.items():
        maps[f"{name}: {its.inside.mean():.0%} inside"] = its.density
    drawing, axes = figure(7.2, len(maps), sharex=True)
    most = int(slots.max()) + 1
    for panel, (title, values) in zip(axes[:, 0], maps.items(), strict=True):
        shown = panel.pcolormesh(
            np.arange(most + 1) - 0.5, np.arange(len(slots) + 1), values[:, :most], vmin=0, cmap="cividis"
        )
        ticks = np.unique(np.linspace(0, len(slots) - 1, 5).astype(int))
        panel.set(title=title, ylabel="slot t", yticks=ticks + 0.5)
        panel.set_yticklabels([str(slots[i]) for i in ticks])
        panel.invert_yaxis()
        as_image(panel)
        drawing.colorbar(shown, ax=panel)
    axes[-1, 0].set(xlabel="slot of the observation")
    return drawing
