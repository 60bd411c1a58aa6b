"""Whether values depend on lambda, which they do only where what an agent remembers is not Markov."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from rlmem.analysis.loaded import LoadedRun, load_run
from rlmem.analysis.output import Result
from rlmem.errors import UserError
from rlmem.stats.figures import COLOURS, figure

Array = NDArray[np.float64]
LAMBDAS = (0.0, 0.95)
DISTINCT, COMPONENTS = 128, 32
"""The most distinct features that have a value of their own each; of more, the principal components that values are
fitted to, beside a bias."""
SPLITS, RESAMPLES = 10, 50
ROUNDING = 1e-9
"""The error of a share where no noise is left."""
Z = 1.959964
"""Half-width of a 95 % interval in standard errors."""


@dataclass
class Discrepancy:
    """The squared difference of values with both lambdas, as a share of the variance of returns.

    share: an estimate without bias from noise, so it may be negative
    error: its standard error
    by_time: root mean square of the difference by the slot of an episode [T], in standard deviations of returns
    """

    share: float
    error: float
    by_time: Array


def measure(run: LoadedRun, *, episodes: int = 200, twin: Path | None = None) -> Result:
    """The lambda-discrepancy of the critic's memory (Allen et al. 2024, arXiv:2407.07333, eq. 3), by least squares.

        w(lambda) = (sum_t z_t (f_t - gamma f_{t+1})^T)^{-1} sum_t z_t r_t,   z_t = gamma lambda z_{t-1} + f_t

    LSTD(lambda) (Boyan 2002) on the frozen features f of episodes of the sampling policy. In a Markov process both
    values are the same; the discrepancy is the mean square of their difference as a share of the returns' variance.
    Differences that two halves of the episodes find are multiplied, so that noise does not look like a discrepancy.
    What features cannot express makes values differ too: that is what the twin tells.

    twin: a run on the fully observed twin of the game, measured beside it
    """
    found = {"run": discrepancy(run, episodes)}
    if twin is not None:
        found["twin"] = discrepancy(load_run(twin, None, run.seed), episodes)
    metrics = dict[str, float]()
    for name, one in found.items():
        prefix = "" if name == "run" else f"{name}_"
        metrics |= {
            f"{prefix}share": one.share,
            f"{prefix}error": one.error,
            f"{prefix}in_errors": one.share / max(one.error, ROUNDING),
        }
    rows = [
        {"of": name, "slot": t, "difference": float(value)}
        for name, one in found.items()
        for t, value in enumerate(one.by_time)
    ]
    about = {"lambdas": list(LAMBDAS), "episodes": episodes, "twin": None if twin is None else str(twin)}
    return Result(metrics, rows, {"picture": picture(found)}, about)


def discrepancy(run: LoadedRun, episodes: int) -> Discrepancy:
    """Of so many episodes of the sampling policy. Raises UserError if their returns do not differ."""
    played, algo = run.play(episodes, sampled=True), cast(Any, run.parts.algo)
    gamma = algo.gamma
    with torch.no_grad():
        features = run.agent.trunks.read_critic(played.batch).double().numpy()
    lengths = played.length.tolist()
    starts = np.cumsum([0, *(n + 1 for n in lengths)])
    fitted_to = basis(np.concatenate([features[i, : n + 1] for i, n in enumerate(lengths)]))
    reward, ended = (x.numpy() for x in (played.batch.reward.double(), played.batch.terminated))
    equations, fitted, returns = [], [], []
    for i, n in enumerate(lengths):
        f = fitted_to[starts[i] : starts[i + 1]]
        after = f[1:] * ~ended[i, :n, None]
        equations.append([_equation(f[:-1], after, reward[i, :n], gamma, lam) for lam in LAMBDAS])
        fitted.append(f[:-1])
        returns.append(_returns(reward[i, :n], gamma))
    variance = np.concatenate(returns).var()
    if variance < 1e-12:
        raise UserError(f"analyze markov: {run.path}: all returns are equal, so that values tell nothing apart")
    return _estimated(equations, fitted, variance)


def basis(features: Array) -> Array:
    """What values are linear in [n, K]: indicators of distinct feature vectors [n, F], or principal components."""
    distinct, which = np.unique(features.round(6), axis=0, return_inverse=True)
    if len(distinct) <= DISTINCT:
        return np.eye(len(distinct))[which.ravel()]
    centred = features - features.mean(0)
    _, scale, axes = np.linalg.svd(centred, full_matrices=False)
    axes = axes[:COMPONENTS][scale[:COMPONENTS] > 1e-6 * scale[0]]
    return np.column_stack([centred @ axes.T, np.ones(len(features))])


def _equation(f: Array, after: Array, reward: Array, gamma: float, lam: float) -> tuple[Array, Array]:
    """An episode's part of LSTD's matrix [K, K] and right side [K]."""
    trace = np.empty_like(f)
    running = np.zeros(f.shape[1])
    for t, row in enumerate(f):
        running = gamma * lam * running + row
        trace[t] = running
    return trace.T @ (f - gamma * after), trace.T @ reward


def _returns(reward: Array, gamma: float) -> Array:
    found, running = np.empty_like(reward), 0.0
    for t in range(len(reward) - 1, -1, -1):
        found[t] = running = reward[t] + gamma * running
    return found


def _estimated(equations: list[list[tuple[Array, Array]]], fitted: list[Array], variance: float) -> Discrepancy:
    """The product of the differences that halves of the episodes find, over halves that are drawn and drawn again."""
    rng, N = np.random.default_rng(0), len(fitted)
    matrices, sides = (np.array([[one[k] for one in each] for each in equations]) for k in (0, 1))  # [N, 2, K(, K)]
    every = np.concatenate(fitted)
    alike = every.T @ every / len(every)

    def difference(chosen: NDArray[np.intp]) -> Array:
        weights = []
        for A, b in zip(matrices[chosen].sum(0), sides[chosen].sum(0), strict=True):
            ridge = 1e-8 * np.trace(A) / len(A)
            weights.append(np.linalg.solve(A + ridge * np.eye(len(A)), b))
        return weights[0] - weights[1]

    def share(halves: Iterable[Any]) -> float:
        return float(np.mean([difference(one) @ alike @ difference(other) for one, other in halves])) / variance

    halves = [np.array_split(rng.permutation(N), 2) for _ in range(SPLITS)]
    again = lambda part: rng.choice(part, len(part))  # noqa: E731 - within a half, so that both stay independent
    resampled = [share((again(one), again(other)) for one, other in halves) for _ in range(RESAMPLES)]
    apart = difference(np.arange(N))
    longest = max(map(len, fitted))
    squares = [np.mean([(f[t] @ apart) ** 2 for f in fitted if t < len(f)]) for t in range(longest)]
    return Discrepancy(share(halves), float(np.std(resampled)), np.sqrt(np.array(squares) / variance))


def picture(found: dict[str, Discrepancy]) -> Any:
    """The share with its 95 % interval, and how large the difference is in each slot."""
    made, axes = figure(6.2, 2)
    top, bottom = axes[0, 0], axes[1, 0]
    for i, (name, one) in enumerate(found.items()):
        top.errorbar(one.share, i, xerr=Z * one.error, fmt="o", color=COLOURS[i], capsize=4)
        bottom.plot(one.by_time, color=COLOURS[i], label=name)
    top.axvline(0, color="black", lw=0.8)
    top.set(yticks=range(len(found)), ylim=(-0.5, len(found) - 0.5), xlabel="share of the returns' variance")
    top.set_yticklabels(list(found))
    top.set(title=f"squared difference of values with lambda {LAMBDAS[0]:g} and {LAMBDAS[1]:g}, 95 % interval")
    bottom.set(xlabel="slot of the episode", ylabel="difference (standard deviations)", ylim=(0, None))
    bottom.legend(frameon=False)
    return made
