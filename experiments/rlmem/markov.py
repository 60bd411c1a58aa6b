"""Dependence of values on lambda, which they show only where what an agent remembers is not Markov."""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from rlmem.analysis.loaded import Episodes, LoadedRun
from rlmem.analysis.output import Result, curve_rows
from rlmem.core.errors import UserError
from rlmem.record.figures import COLOURS, figure, whole_numbers

Array = NDArray[np.float64]
LAMBDAS = (0.0, 0.95)
DISTINCT, COMPONENTS = 128, 32
"""The most distinct features that have a value of their own each; of more, the principal components that values are
fitted to, beside a bias."""
GROUPS, SPLITS = 20, 10
"""Groups of episodes, and how many times they are split into halves."""
FLAT = 1e-12
"""A variance of returns up to which they are all equal."""
ROUNDING = 1e-9
"""The error of a share where no noise is left."""
Z = 1.959964
"""Half-width of a 95 % interval in standard errors."""


@dataclass
class Discrepancy:
    """The squared difference of values with both lambdas, as a share of the variance of returns.

    share: an estimate without bias from noise, so it may be negative
    error: its standard error
    by_time: root mean square of the difference by the slot of an episode [T], in standard deviations of returns;
        negative where the estimate of the square is
    """

    share: float
    error: float
    by_time: Array


@dataclass
class Equations:
    """What LSTD of both lambdas needs, and the variance of returns, as sums over each of G groups of episodes.

    A: the matrices, [G, 2, K, K]
    b: the right sides, [G, 2, K]
    alike: products of the features that values are linear in, [G, K, K]
    moments: of the returns, to the powers 0, 1 and 2, [G, 3]
    """

    A: Array
    b: Array
    alike: Array
    moments: Array


def measure(run: LoadedRun, *, episodes: int = 200, twin: Path | None = None) -> Result:
    """The lambda-discrepancy of the critic's memory (Allen et al. 2024, arXiv:2407.07333, eq. 3), by least squares.

        w(lambda) = (sum_t z_t (f_t - gamma f_{t+1})^T)^{-1} sum_t z_t r_t,   z_t = gamma lambda z_{t-1} + f_t

    LSTD(lambda) (Boyan 2002) on the frozen features f of episodes of the sampling policy. In a Markov process both
    values are the same; the discrepancy is the mean square of their difference as a share of the returns' variance.
    Differences that two halves of the episodes find are multiplied, so that noise does not look like a discrepancy.
    What features cannot express makes values differ too: that is what the twin tells.

    episodes: of the sampling policy, at least 20
    twin: a run with env.observe=full, measured beside it
    """
    if episodes < GROUPS:
        problem = f"{episodes} episodes; expected at least {GROUPS}, from whose groups the error is estimated"
        raise UserError(f"{problem}")
    runs = {"run": run} if twin is None else {"run": run, "twin": run.twin(twin)}
    gaps = {name: discrepancy(each, episodes) for name, each in runs.items()}
    metrics = dict[str, float]()
    for name, one in gaps.items():
        prefix = "" if name == "run" else f"{name}_"
        metrics |= {
            f"{prefix}share": one.share,
            f"{prefix}error": one.error,
            f"{prefix}in_errors": one.share / max(one.error, ROUNDING),
        }
    rows = curve_rows(gaps, "slot", lambda its: {"difference": its.by_time})
    about = {"lambdas": list(LAMBDAS), "episodes": episodes, "twin": None if twin is None else str(twin)}
    return Result(metrics, rows, {"picture": picture(gaps)}, about)


def discrepancy(run: LoadedRun, episodes: int) -> Discrepancy:
    """Of so many episodes of the sampling policy. Raises UserError if their returns do not differ."""
    played = run.play(episodes, sampled=True)
    with torch.no_grad():
        features = run.agent.trunks.read_critic(played.batch).double().numpy()
    discrepancy = of_episodes(features, played, cast(Any, run.parts.algo).gamma)
    if discrepancy is None:
        raise UserError(f"{run.path}: all returns are equal, so that values tell nothing apart")
    return discrepancy


def of_episodes(features: Array, played: Episodes, gamma: float) -> Discrepancy | None:
    """From the features [N, S, F] of at least GROUPS episodes; None if all returns are equal."""
    lengths = played.length.tolist()
    starts = np.cumsum([0, *(n + 1 for n in lengths)])
    fitted_to = basis(np.concatenate([features[i, : n + 1] for i, n in enumerate(lengths)]))
    fitted = [fitted_to[a : b - 1] for a, b in pairwise(starts)]
    after = [fitted_to[a + 1 : b] for a, b in pairwise(starts)]
    reward, ended = (x.numpy() for x in (played.batch.reward.double(), played.batch.terminated))
    returns = [discounted(reward[i, :n], gamma) for i, n in enumerate(lengths)]
    if np.concatenate(returns).var() < FLAT:
        return None
    K, centre = fitted_to.shape[1], np.concatenate(returns).mean()
    of = Equations(
        np.zeros((GROUPS, 2, K, K)), np.zeros((GROUPS, 2, K)), np.zeros((GROUPS, K, K)), np.zeros((GROUPS, 3))
    )
    for i, n in enumerate(lengths):
        group, change = i % GROUPS, fitted[i] - gamma * after[i] * ~ended[i, :n, None]
        for k, lam in enumerate(LAMBDAS):
            traced = traces(fitted[i], gamma * lam)
            of.A[group, k] += traced.T @ change
            of.b[group, k] += traced.T @ reward[i, :n]
        of.alike[group] += fitted[i].T @ fitted[i]
        of.moments[group] += [np.sum((returns[i] - centre) ** power) for power in range(3)]
    halves, every = splits(), np.ones(GROUPS, bool)
    value, error = estimated(of, halves)
    return Discrepancy(value, error, by_slot(fitted, *differences_of(of, halves, every)) / np.sqrt(variance(of, every)))


def basis(features: Array) -> Array:
    """What values are linear in [n, K]: indicators of distinct feature vectors [n, F], or principal components."""
    distinct, which = np.unique(features.round(6), axis=0, return_inverse=True)
    if len(distinct) <= DISTINCT:
        return np.eye(len(distinct))[which.ravel()]
    centred = features - features.mean(0)
    _, scale, axes = np.linalg.svd(centred, full_matrices=False)
    axes = axes[:COMPONENTS][scale[:COMPONENTS] > 1e-6 * scale[0]]
    return np.column_stack([centred @ axes.T, np.ones(len(features))])


def traces(f: Array, decay: float) -> Array:
    """z_t = decay z_{t-1} + f_t of an episode's features [n, K]."""
    trace, running = np.empty_like(f), np.zeros(f.shape[1])
    for t, row in enumerate(f):
        trace[t] = running = decay * running + row
    return trace


def discounted(reward: Array, gamma: float) -> Array:
    """The returns from every slot of an episode, [n]."""
    return traces(reward[::-1, None], gamma)[::-1, 0]


def splits() -> NDArray[np.bool_]:
    """Which groups are in the first half of each split, [SPLITS, GROUPS]; the same ones always."""
    rng = np.random.default_rng(0)
    return np.array([rng.permutation(GROUPS) < GROUPS // 2 for _ in range(SPLITS)])


def estimated(of: Equations, halves: NDArray[np.bool_]) -> tuple[float, float]:
    """The share and its standard error, by the jackknife: from how it changes if one of the groups is left out.

    The jackknife is on average not too small (Efron and Stein 1981). Where there is no discrepancy the share is a
    product of noise alone, and the error is up to one and a half times as large as it should be.

    halves: the first halves of the splits, [S, G], which stay the same whatever is left out
    """
    without = np.array([share(of, halves, subset) for subset in ~np.eye(halves.shape[1], dtype=bool)])
    error = np.sqrt((len(without) - 1) * without.var())
    return share(of, halves, np.ones(halves.shape[1], bool)), float(error)


def share(of: Equations, halves: NDArray[np.bool_], groups: NDArray[np.bool_]) -> float:
    """The product of the differences that both halves of `groups` [G] find, the mean over splits."""
    spread = variance(of, groups)
    if spread < FLAT:
        return 0.0
    first, second = differences_of(of, halves, groups)
    alike = of.alike[groups].sum(0) / of.moments[groups, 0].sum()
    return float(((first @ alike) * second).sum(1).mean() / spread)


def variance(of: Equations, groups: NDArray[np.bool_]) -> float:
    """The variance of the returns in `groups` [G]."""
    count, total, squares = of.moments[groups].sum(0)
    return float(squares / count - (total / count) ** 2)


def differences_of(of: Equations, halves: NDArray[np.bool_], groups: NDArray[np.bool_]) -> tuple[Array, Array]:
    """The differences of weights [S, K] that the first and the second halves of `groups` find."""
    return differences(of, halves & groups), differences(of, ~halves & groups)


def differences(of: Equations, chosen: NDArray[np.bool_]) -> Array:
    """w(first lambda) - w(second lambda) [S, K], each from the groups that a row of `chosen` [S, G] has."""
    A, b = (np.tensordot(chosen.astype(np.float64), part, 1) for part in (of.A, of.b))
    ridge = 1e-8 * A.trace(axis1=-2, axis2=-1)[..., None, None] / A.shape[-1]
    weights = np.linalg.solve(A + ridge * np.eye(A.shape[-1]), b[..., None])[..., 0]
    return weights[:, 0] - weights[:, 1]


def by_slot(fitted: list[Array], first: Array, second: Array) -> Array:
    """The signed root of the product of two differences by slot [T], the mean over splits and episodes [n, K] each."""
    every = np.concatenate(fitted)
    products = ((every @ first.T) * (every @ second.T)).mean(1)
    slots = np.concatenate([np.arange(len(f)) for f in fitted])
    means = np.bincount(slots, products) / np.bincount(slots)
    return np.sign(means) * np.sqrt(np.abs(means))


def picture(gaps: dict[str, Discrepancy]) -> Any:
    """The share with its 95 % interval, and how large the difference is in each slot."""
    drawing, axes = figure(6.2, 2)
    top, bottom = axes[0, 0], axes[1, 0]
    for i, (name, one) in enumerate(gaps.items()):
        top.errorbar(one.share, i, xerr=Z * one.error, fmt="o", color=COLOURS[i], capsize=4)
        bottom.plot(one.by_time, color=COLOURS[i], label=name)
    top.axvline(0, color="black", lw=0.8)
    top.set(yticks=range(len(gaps)), ylim=(-0.5, len(gaps) - 0.5), xlabel="its square / variance of returns")
    top.set_yticklabels(list(gaps))
    top.set(title=f"difference of values, lambda {LAMBDAS[0]:g} and {LAMBDAS[1]:g}; 95 % interval")
    bottom.axhline(0, color="black", lw=0.8)
    bottom.set(xlabel="slot of the episode", ylabel="difference (standard deviations)")
    whole_numbers(bottom.xaxis)
    bottom.legend(frameon=False)
    return drawing
