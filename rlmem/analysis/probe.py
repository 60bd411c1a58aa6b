"""Facts that a probe reads from a memory's outputs: past observations by age, and the environment's state."""

import warnings
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rlmem.agents.actor_critic import Agent
from rlmem.analysis.features import read_by, replaced
from rlmem.analysis.loaded import Episodes, Keeper, LoadedRun
from rlmem.analysis.output import LOOKS, Result
from rlmem.config.messages import sentence
from rlmem.core.errors import UserError
from rlmem.record.figures import COLOURS, figure

Array = NDArray[np.float64]
PROBES = ("linear", "nonlinear")
AGES = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
"""The ages of observations that are asked for, as far as episodes are long."""
FEWEST = 40
"""The fewest slots that a probe is fitted to, and the fewest that it is tested in."""
MOST_FEATURES = 64
"""Of observations and states with more features, these many that vary most are asked for."""
KNOWN = 0.5
"""The share of the variance from which on a fact counts as known."""


def measure(run: LoadedRun, *, episodes: int = 60, points: int = 1000) -> Result:
    """How well a linear and a small nonlinear probe read facts from the outputs of the actor's memory.

    Facts are the observation of k slots ago, for ages k; that of the next slot (age -1), to see what can be foreseen;
    and the state of the environment, where it tells. The score is the share of a fact's variance that a probe explains
    in episodes that it was not fitted to: 1 for all of it, 0 for no more than the mean.

    Four sources are probed: the trained memory; the same memory before it learnt; the memory's input in the same slot,
    which knows no past; and a control task, the trained memory asked for the facts of another episode at the same slot,
    which only time and base rates can tell (after Hewitt and Liang 2019, arXiv:1909.03368).

    episodes: greedy ones; probes are fitted to two thirds and tested on the others
    points: slots that a probe is fitted to, at most, drawn at random
    """
    if episodes < 6:
        raise UserError(f"{episodes} episodes; expected at least 6, some to fit and some to test")
    states: list[Array] = []
    played = run.play(episodes, partial(Keeper, look=state_of, records=states))
    outputs = run.with_null(lambda agent: read(agent, played))
    seen, inputs = facts(run.agent, played)
    sources = {**outputs, "input": inputs, "control": outputs["trained"]}
    acted = played.batch.mask.numpy()
    columns = {str(age): shifted(seen, acted, age) for age in (-1, *AGES)}
    if all(state is not None for state in states):
        columns["state"] = varied(np.stack(states, 1).astype(np.float64), acted), acted
    scores = {fact: of for fact, column in columns.items() if (of := score(sources, *column, points, run.seed))}
    if not scores:
        problem = "no observation varies enough, or episodes are too few and short to fit a probe"
        raise UserError(sentence(f"{run.path}", problem, example="--episodes 200"))
    metrics = {f"{name}/{fact}": value for fact, of in scores.items() for name, value in of.items()}
    reaching = [f"{probe}{'' if name == 'trained' else f'_{name}'}" for probe in PROBES for name in (*outputs, "input")]
    metrics |= {f"reach_{source}": reach(scores, source) for source in reaching}
    rows = [{"fact": fact, **of} for fact, of in scores.items()]
    about = {"episodes": episodes, "points": points, "facts": list(scores)}
    title = f"what probes read from {run.config.choices['memory']}"
    return Result(metrics, rows, {"picture": picture(scores, title)}, about)


def state_of(env: Any) -> Array | None:
    """The states of environments [N, F] as numbers: the full one, or the number of its label one-hot; None: untold."""
    if names := getattr(env, "label_names", ()):
        return np.eye(len(names))[env.labels()]
    return env.full_state() if hasattr(env, "full_state") else None


@torch.no_grad()
def read(agent: Agent, episodes: Episodes) -> Array:
    """The outputs of the actor's memory in every slot [N, S, H]. Raises UserError if they are not finite."""
    trunk = agent.trunks.actor
    y = trunk.read(episodes.batch, None)[..., : trunk.memory.output_size].double().numpy()
    if not np.isfinite(y[episodes.batch.mask.numpy()]).all():
        raise UserError("the memory's outputs are not finite; e.g. --step best")
    return y


@torch.no_grad()
def facts(agent: Agent, episodes: Episodes) -> tuple[Array, Array]:
    """The features of the observations [N, S, F] that vary most, and the inputs of the actor's memory [N, S, D]."""
    trunk, seen = agent.trunks.actor, []

    def keep(features: torch.Tensor) -> torch.Tensor:
        seen.append(features)
        return features

    with replaced([trunk], keep):
        inputs = read_by(trunk, episodes.batch).double().numpy()
    return varied(seen[0].double().flatten(2).numpy(), episodes.batch.mask.numpy()), inputs


def varied(features: Array, acted: NDArray[np.bool_]) -> Array:
    """Those of the features [N, S, F] that vary in the acted slots [N, S], at most MOST_FEATURES of them."""
    spread = features[acted].var(0)
    order = np.argsort(-spread, kind="stable")[:MOST_FEATURES]
    return features[..., np.sort(order[spread[order] > 0])]


def shifted(seen: Array, acted: NDArray[np.bool_], age: int) -> tuple[Array, NDArray[np.bool_]]:
    """What was seen `age` slots before each slot [N, S, F], and in which acted slots there was such a slot [N, S]."""
    S = seen.shape[1]
    before = np.arange(S) - age
    return seen[:, np.clip(before, 0, S - 1)], acted & (before >= 0) & (before < S)


def score(sources: dict[str, Array], fact: Array, asked: NDArray[np.bool_], points: int, seed: int) -> dict[str, float]:
    """The scores of both probes with every source, by name; {} where there are too few slots or nothing varies.

    sources: [N, S, H] each; `control` is asked for the fact of the next episode
    fact: [N, S, F]
    asked: [N, S], the slots in which the fact is asked for
    points: how many slots a probe is fitted to at most, and tested in
    seed: of the draw of slots, and of the nonlinear probe's first weights
    """
    N, scores = len(fact), {}
    fit = np.arange(N) % 3 < 2
    for name, source in sources.items():
        other = name == "control"
        target, valid = (np.roll(fact, 1, 0), np.roll(asked, 1, 0)) if other else (fact, asked)
        places = [np.argwhere(asked & valid & of[:, None]) for of in (fit, ~fit)]
        if not fact.shape[-1] or min(map(len, places)) < FEWEST:
            return {}
        rng = np.random.default_rng(seed)
        drawn = [rng.permutation(at)[:points] for at in places]
        (x, x_test), (y, y_test) = ([part[tuple(at.T)] for at in drawn] for part in (source, target))
        if (y.var(0) == 0).all() or (y_test.var(0) == 0).all():
            return {}
        for probe, explained in zip(PROBES, fitted(x, x_test, y, y_test, seed), strict=True):
            scores[probe + ("" if name == "trained" else f"_{name}")] = explained
    return scores


def fitted(x: Array, x_test: Array, y: Array, y_test: Array, seed: int) -> tuple[float, float]:
    """The share of the variance of y_test [m, F] that probes explain from x_test [m, H], fitted to x and y [n, ...].

    Linear: ridge regression with the penalty that leaving out one point at a time prefers. Nonlinear: one hidden layer
    of 64 ReLUs on the same standardised inputs.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import RidgeCV
    from sklearn.neural_network import MLPRegressor

    spread = x.std(0)
    moving = spread > 1e-8 * max(float(spread.max()), 1e-300)
    if not moving.any():  # a source that is constant knows the mean
        return (explained(np.broadcast_to(y.mean(0), y_test.shape), y_test, y),) * 2
    x, x_test = ((of[:, moving] - x[:, moving].mean(0)) / spread[moving] for of in (x, x_test))
    scale = y.std(0)
    scale[scale == 0] = 1.0
    centred = (y - y.mean(0)) / scale
    linear = RidgeCV(alphas=np.logspace(-4, 4, 9)).fit(x, centred)
    layers = MLPRegressor(
        hidden_layer_sizes=(64,), alpha=1e-3, learning_rate_init=3e-3, early_stopping=True, random_state=seed % 2**32
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        layers.fit(x, centred if centred.shape[1] > 1 else centred[:, 0])
    guesses = [of.predict(x_test).reshape(y_test.shape) * scale + y.mean(0) for of in (linear, layers)]
    return explained(guesses[0], y_test, y), explained(guesses[1], y_test, y)


def explained(guess: Array, truth: Array, fitted_to: Array) -> float:
    """1 - squared errors [m, F] / those of the mean that the probe was fitted to, both summed."""
    return float(1 - np.square(truth - guess).sum() / np.square(truth - fitted_to.mean(0)).sum())


def reach(scores: dict[str, dict[str, float]], source: str) -> float:
    """The greatest age at which a source explains KNOWN more than what tells without memory; -1: none.

    Without memory the input of the same slot tells, and time, which the control task asks for: the better of the two.

    source: a probe and what it reads, as in `scores`: "linear", "linear_untrained"; the input is compared with time
    """
    probe, _, read_from = source.partition("_")
    others = [f"{probe}_{other}" for other in ("input", "control") if other != read_from]
    past = {int(fact): of for fact, of in scores.items() if fact not in ("state", "-1")}
    return float(max((age for age, of in past.items() if of[source] - max(of[o] for o in others) >= KNOWN), default=-1))


def picture(scores: dict[str, dict[str, float]], title: str) -> Any:
    """The scores by age, for each source; crosses on the right are those of the state."""
    drawing, axes = figure(5.2, 2, sharex=True, sharey=True)
    ages = [int(fact) for fact in scores if fact != "state"]
    places = [*range(len(ages)), len(ages)]
    looks: dict[str, dict[str, Any]] = {
        "": LOOKS["trained"] | {"label": "trained"},
        "_untrained": LOOKS["untrained"] | {"label": "untrained"},
        "_input": {"color": COLOURS[2], "lw": 1.4, "ls": "-.", "label": "input of the slot alone"},
        "_control": {"color": COLOURS[1], "lw": 1.4, "ls": ":", "label": "control: another episode"},
    }
    for panel, probe in zip(axes[:, 0], PROBES, strict=True):
        for source, look in looks.items():
            if probe + source not in next(iter(scores.values())):
                continue
            curve = [max(scores[str(age)][probe + source], -0.1) for age in ages]
            panel.plot(places[: len(curve)], curve, marker="o", ms=3, **look)
            if "state" in scores:
                panel.plot(places[-1], max(scores["state"][probe + source], -0.1), "x", ms=7, color=look["color"])
        panel.set(ylabel="share of variance", title=f"{title}: {probe} probe", ylim=(-0.12, 1.05))
    labels = [*map(str, ages), *(["state"] if "state" in scores else [])]
    axes[1, 0].set(xticks=places[: len(labels)], xlabel="age of the observation that is asked for (-1: the next one)")
    axes[1, 0].set_xticklabels(labels)
    axes[0, 0].legend(loc="best", fontsize=8)
    return drawing
