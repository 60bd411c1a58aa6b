"""Statistics of many runs: aggregates, the stratified bootstrap, comparisons, and Welch's t intervals for few runs.

Scores are a matrix [run, task]: the runs of one algorithm, with a column for each task. The aggregates and the
bootstrap are those of Agarwal et al. 2021 (arXiv:2108.13264); docs/statistics.md describes what is resampled. All tasks
have equal weight. Nothing draws from a global generator. A NaN is a diverged run, and makes what contains it NaN.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, fsum, inf, isfinite, log, log1p, nan
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import nctdtr, nctdtrinc, stdtrit

Array = NDArray[np.float64]
Scores = ArrayLike | Mapping[str, ArrayLike]
"""[run, task]; the runs of one task [run]; or {task: [run]}, where every task has the same number of runs."""
Statistic = Callable[[Array], Any]
"""Scores [..., run, task] -> [...]."""
Index = NDArray[np.integer[Any]]
REPETITIONS = 2000
SEED = 20240527
"""Seeds the generators of reports and verdicts, so that the same runs always have the same intervals."""
LEVEL = 0.95
POCOCK = (0.95, 0.9706, 0.9779, 0.9818, 0.9842, 0.9858, 0.987, 0.988, 0.9888, 0.9894)
"""Level of each of n looks at growing samples, n = 1, 2, ..., that together err as one at LEVEL (Pocock 1977)."""
AT_ONCE = 2**17
"""How many numbers are resampled together: 1 MiB, and of pairs of runs that times their number."""
POWER = 0.8
FAR = 1e4
"""Standard errors beyond which a value is as good as known; the noncentral t distribution has no inverse far out."""
ROUNDING = 1e-12
"""The share of the terms of a sum below which it is their rounding."""
Range = tuple[float, float]
ANY: Range = (-inf, inf)
"""The range of what may have any value."""
MOST = 1000
"""The greatest number of runs that `runs_to_decide` gives."""


def matrix(scores: Scores) -> Array:
    """Scores as a matrix [run, task], with tasks in the order of the mapping; arrays [..., run, task] stay as they are.

    Raises ValueError where there is no run or no task, and where tasks have different numbers of runs: whether to leave
    runs out or to weight them is up to the caller.
    """
    if isinstance(scores, Mapping):
        counts = {task: np.size(runs) for task, runs in scores.items()}
        if len(set(counts.values())) > 1:
            ends = (choose(counts, key=counts.__getitem__) for choose in (min, max))
            unequal = ", ".join(f"{task} has {counts[task]}" for task in ends)
            raise ValueError(f"every task needs the same number of runs; {unequal}")
        scores = np.array([np.asarray(runs, dtype=np.float64) for runs in scores.values()]).T
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim == 1:
        values = values[:, None]
    if values.ndim < 2 or values.size == 0:
        raise ValueError(f"scores are [run, task], at least one of each; got the shape {values.shape}")
    return values


def mean(scores: Scores) -> Any:
    """Mean of all scores; every task has the same weight."""
    return matrix(scores).mean((-2, -1))


def median(scores: Scores) -> Any:
    """Median over tasks of the mean over runs; for a single task this is the mean of its runs."""
    return np.median(matrix(scores).mean(-2), axis=-1)


def iqm(scores: Scores) -> Any:
    """Interquartile mean (Agarwal et al. 2021, arXiv:2108.13264): the mean of the middle half of all scores, pooled.

    floor(N / 4) scores are dropped on each side. The result is NaN if any score is NaN.
    """
    values = matrix(scores)
    pooled = np.sort(values.reshape(*values.shape[:-2], -1), axis=-1)
    cut = pooled.shape[-1] // 4
    middle = pooled[..., cut : pooled.shape[-1] - cut].mean(-1)
    return np.where(np.isnan(pooled[..., -1]), np.nan, middle)[()]


def optimality_gap(scores: Scores, target: float = 1.0) -> Any:
    """How far scores stay below `target` on average: mean of max(target - score, 0)."""
    return target - np.minimum(matrix(scores), target).mean((-2, -1))


AGGREGATES: dict[str, Statistic] = {"mean": mean, "median": median, "iqm": iqm, "optimality_gap": optimality_gap}
"""Every aggregate, by its name in tables and figures."""


@dataclass(frozen=True)
class Interval:
    """An estimate and the bounds of its percentile bootstrap interval."""

    value: float
    low: float
    """NaN if a task has only one run."""
    high: float
    level: float
    """Nominal coverage, 0.95 for 95 %."""
    runs: int
    """Runs per task."""
    tasks: int


def interval(
    scores: Scores,
    statistic: Statistic = iqm,
    *,
    rng: np.random.Generator,
    repetitions: int = REPETITIONS,
    level: float = LEVEL,
) -> Interval:
    """A statistic of scores [run, task] or [run], with its stratified bootstrap interval."""
    values = matrix(scores)
    replicates = bootstrap(values, statistic, rng=rng, repetitions=repetitions)
    return _around(statistic(values), replicates, level, *values.shape)


def _around(value: Any, replicates: Array, level: float, runs: int, tasks: int) -> Interval:
    """An estimate with the bounds of its replicates [repetition], which a single run has not."""
    low, high = percentile_bounds(replicates, level) if runs > 1 else (nan, nan)
    return Interval(float(value), float(low), float(high), level, runs, tasks)


def bootstrap(
    scores: Scores, statistic: Statistic, *, rng: np.random.Generator, repetitions: int = REPETITIONS
) -> Array:
    """The statistic of every resample, [repetitions, ...]."""
    values = matrix(scores)
    runs, tasks = values.shape
    if repetitions < 1:
        raise ValueError(f"a bootstrap needs at least one repetition; got {repetitions}")
    return np.concatenate([statistic(resample(values, picked)) for picked in picks(runs, tasks, repetitions, rng)])


def resample(scores: Array, picked: Index) -> Array:
    """Run `picked[..., i, task]` of each task: scores [run, task], picked [..., run, task] -> [..., run, task]."""
    return scores[picked, np.arange(scores.shape[1])]


def percentile_bounds(replicates: Array, level: float = LEVEL) -> tuple[Any, Any]:
    """The bounds, each [...], that leave (1 - level) / 2 of the replicates [repetitions, ...] on either side."""
    if not 0 < level < 1:
        raise ValueError(f"level is a coverage between 0 and 1, such as 0.95; got {level}")
    low, high = np.quantile(replicates, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return low, high


def picks(
    runs: int, tasks: int, repetitions: int, rng: np.random.Generator, among: Index | None = None
) -> Iterator[NDArray[np.int64]]:
    """The runs of `repetitions` resamples, in chunks [n, run, task]. The size of the chunks changes no draw.

    among: the number of runs that a row is drawn from, [run, 1]; None: as many as there are rows
    """
    most = max(1, AT_ONCE // (runs * tasks))
    for begin in range(0, repetitions, most):
        yield rng.integers(runs if among is None else among, size=(min(most, repetitions - begin), runs, tasks))


def probability_of_improvement(
    x: Scores, y: Scores, *, rng: np.random.Generator, repetitions: int = REPETITIONS, level: float = LEVEL
) -> Interval:
    """P(X > Y): the chance that a run of X beats a run of Y on a task drawn at random, ties counting one half.

    It is the mean over tasks (Agarwal et al. 2021, arXiv:2108.13264, sec. 4.3) of Mann-Whitney's U over the number of
    pairs, for scores [run_x, task] and [run_y, task]. The bootstrap resamples the runs of X and those of Y
    independently, within each task. Tasks are matched by position, or by name where both are mappings. `runs` is the
    smaller number of runs of the two; the bounds are NaN unless both have two.
    """
    if isinstance(x, Mapping) and isinstance(y, Mapping):
        if x.keys() != y.keys():
            raise ValueError(f"both need the same tasks; only one has {', '.join(sorted(x.keys() ^ y.keys()))}")
        y = {task: y[task] for task in x}
    first, second = matrix(x), matrix(y)
    n, m, tasks = len(first), len(second), first.shape[1]
    if tasks != second.shape[1]:
        raise ValueError(f"both need the same tasks; got {tasks} and {second.shape[1]}")
    u = mann_whitney_u(first, second)
    drawn = [
        mann_whitney_u(resample(first, picked[:, :n]), resample(second, picked[:, n:])).mean(-1) / (n * m)
        for picked in picks(n + m, tasks, repetitions, rng, np.repeat([n, m], [n, m])[:, None])
    ]
    return _around(u.mean() / (n * m), np.concatenate(drawn), level, min(n, m), tasks)


def mann_whitney_u(x: Array, y: Array) -> Array:
    """U of X for each task: x [..., run_x, task], y [..., run_y, task] -> [..., task]. NaN where a score is.

    U counts the pairs (i, j) with x_i > y_j, and half of those with x_i = y_j (Mann and Whitney 1947).
    """
    a, b = x[..., :, None, :], y[..., None, :, :]
    wins = np.where(np.isnan(a) | np.isnan(b), np.nan, (a > b) + 0.5 * (a == b))
    return np.asarray(wins.sum((-3, -2)))


def performance_profile(scores: Scores, thresholds: ArrayLike) -> Array:
    """The fraction of scores above every threshold tau, [threshold]; NaN where a run has diverged.

        F(tau) = mean over runs and tasks of [score > tau], the run-score distribution

    (Agarwal et al. 2021, arXiv:2108.13264, sec. 4.2), of scores [run, task].
    """
    values = matrix(scores)
    above = (values[..., None] > np.atleast_1d(np.asarray(thresholds, dtype=np.float64))).mean((0, 1))
    return np.full_like(above, np.nan) if np.isnan(values).any() else above


def ranks(
    scores: Mapping[str, Scores],
    statistic: Statistic = iqm,
    *,
    rng: np.random.Generator,
    repetitions: int = REPETITIONS,
    level: float = LEVEL,
) -> dict[str, Interval]:
    """The rank of every algorithm, 1 for the largest statistic, with its stratified bootstrap interval.

    scores: algorithm -> its scores [run, task]; all algorithms have the same tasks

    In a resample the runs of every algorithm are drawn anew, independently, within each task, and all are ranked.
    Bounds are rounded outwards to whole ranks. Equal algorithms share the better rank, and those whose statistic is NaN
    the last one. An algorithm with one run has no bounds, and does not vary in those of the others.
    """
    values = {name: matrix(each) for name, each in scores.items()}
    if not values:
        return {}
    known = np.nan_to_num(np.array([statistic(each) for each in values.values()], float), nan=-np.inf)
    drawn = [bootstrap(each, statistic, rng=rng, repetitions=repetitions) for each in values.values()]
    replicates = np.nan_to_num(np.stack(drawn, axis=-1), nan=-np.inf)  # [repetition, algorithm]
    better = (replicates[:, None, :] > replicates[:, :, None]).sum(-1)
    of_names = {}
    for k, (name, each) in enumerate(values.items()):
        rank = _around(1 + (known > known[k]).sum(), 1.0 + better[:, k], level, *each.shape)
        of_names[name] = replace(rank, low=float(np.floor(rank.low)), high=float(np.ceil(rank.high)))
    return of_names


class Sample(NamedTuple):
    """The runs of a sample with its weight in a contrast, and the range of values that a run can have."""

    weight: float
    runs: Array
    possible: Range = ANY


@dataclass(frozen=True)
class Contrast:
    """A weighted sum of means of independent samples, plus a constant (Welch 1947, Biometrika 34).

        v = sum_i w_i^2 s_i^2 / n_i,   degrees of freedom  v^2 / sum_i ((w_i^2 s_i^2 / n_i)^2 / (n_i - 1))

    value: the estimate; NaN if a number is not finite
    variances: w_i^2 s_i^2 of each sample, NaN for a sample of one run
    runs: n_i
    samples: the samples themselves, where they are known
    """

    value: float
    variances: tuple[float, ...] = ()
    runs: tuple[int, ...] = ()
    samples: tuple[Sample, ...] = field(default=(), compare=False, repr=False)

    @property
    def error(self) -> float:
        """The standard error of the estimate; NaN if a sample has a single run."""
        return sum(variance / n for variance, n in zip(self.variances, self.runs, strict=True) if n) ** 0.5

    @property
    def freedom(self) -> float:
        """Welch's degrees of freedom; infinite where no sample varies."""
        parts = [variance / n for variance, n in zip(self.variances, self.runs, strict=True)]
        shares = sum(part**2 / (n - 1) for part, n in zip(parts, self.runs, strict=True) if part)
        return sum(parts) ** 2 / shares if shares else inf

    def bounds(self, level: float = LEVEL, possible: Range = ANY, one_more: bool = False) -> tuple[float, float]:
        """The bounds of the t interval; NaN if there are none, and equal to the value where no sample varies.

        possible: the values that the estimate can have, within which the interval stays
        one_more: if the interval also has the bounds of `with_one_more`
        """
        if not isfinite(self.value + sum(self.variances)):
            return nan, nan
        half = float(stdtrit(self.freedom, (1 + level) / 2)) * self.error if self.error else 0.0
        low, high = self.value - half, self.value + half
        if one_more:
            lower, upper = self.with_one_more(level)
            low, high = min(low, lower), max(high, upper)
        return within(self.value, low, high, possible)

    def with_one_more(self, level: float = LEVEL) -> tuple[float, float]:
        """The bounds if every sample could have had one more run, at the end of the range of its values.

        The bounds of the single means (`mean_bound`) are combined as MOVER combines them (Zou and Donner 2008, Stat.
        Med. 27). Where no end is known, a sample adds nothing on that side if it varies; equal runs give no bound.
        """
        squares = [0.0, 0.0]
        for weight, runs, possible in self.samples:
            for side, end in enumerate(possible if weight > 0 else possible[::-1]):
                bound = mean_bound(runs, end, (1 - level) / 2) if isfinite(end) or not np.ptp(runs) else runs.mean()
                squares[side] += (weight * (runs.mean() - bound)) ** 2
        return self.value - squares[0] ** 0.5, self.value + squares[1] ** 0.5


def mean_bound(runs: ArrayLike, end: float, tail: float) -> float:
    """The one-sided bound, towards `end`, of the mean of values that do not lie beyond `end`.

    It is the quantile at `tail` of the mean of the runs and of one more run at `end`, with weights that are drawn from
    a flat Dirichlet distribution (Gaffke 2005). That it holds for all distributions is conjectured (Learned-Miller and
    Thomas 2019, arXiv:1905.06208). For runs that have two values it is Clopper and Pearson's bound: three equal runs
    at 1 show a mean above tail^(1/3), which is 0.29 for a tail of 2.5 %. The density of that weighted mean is a
    B-spline (Curry and Schoenberg 1966).
    """
    from scipy.interpolate import BSpline  # they take long to import, and most commands do not need them
    from scipy.optimize import brentq

    values = np.asarray(runs, dtype=np.float64)
    sign = 1.0 if end <= values.mean() else -1.0
    knots = np.sort(sign * np.append(values, end))
    least, width = knots[0], np.ptp(knots)
    if width in (0, inf):
        return float(end)
    below = BSpline.basis_element((knots - least) / width, extrapolate=False).antiderivative()
    whole, last = float(below(1 - ROUNDING)), 1 - ROUNDING
    quantile = brentq(lambda at: float(below(at)) / whole - tail, 0.0, last)
    return float(sign * (least + width * quantile))


def within(value: float, low: float, high: float, possible: Range) -> tuple[float, float]:
    """The bounds of an interval around a value, within what is possible."""
    return max(low, min(possible[0], value)), min(high, max(possible[1], value))


def contrast(samples: Iterable[tuple[float, ArrayLike] | Sample], constant: float = 0.0) -> Contrast:
    """The contrast of (weight, runs of a sample [run]) and a constant. A sample without runs makes it NaN.

    A sum that is nothing but the rounding of its terms is zero: runs that do not vary would else decide by it.
    """
    terms, variances, whole = [constant], [], []
    for weight, runs, *possible in samples:
        sample = Sample(weight, np.asarray(runs, dtype=np.float64), *possible)
        finite = len(sample.runs) > 0 and bool(np.isfinite(sample.runs).all())
        terms.append(weight * float(sample.runs.mean()) if finite else nan)
        varies = finite and np.ptp(sample.runs) > 0  # the variance of equal numbers is not always zero
        spread = float(sample.runs.var(ddof=1)) if varies else 0.0
        variances.append(weight**2 * spread if finite and len(sample.runs) > 1 else nan)
        whole.append(sample)
    value = fsum(terms)
    if abs(value) <= ROUNDING * fsum(map(abs, terms)):
        value = 0.0
    return Contrast(value, tuple(variances), tuple(len(sample.runs) for sample in whole), tuple(whole))


def runs_to_decide(
    margins: Sequence[Contrast], level: float = LEVEL, against: float = LEVEL, one_more: bool = False
) -> tuple[int, int | None] | None:
    """The range of the number of runs of each sample that would decide whether all margins are positive.

    So many runs give an outcome with a chance of POWER: intervals at `level` above zero, or one at `against` below it.
    The range covers what is likely of the margins: the noncentrality of the smallest one, in standard errors, lies with
    a confidence of POWER between the ends that the noncentral t distribution gives.

    one_more: if the intervals are those of `Contrast.with_one_more`

    The greater number is None if none is known, as where a margin may be zero; all is None beyond MOST runs, and if
    nothing is known of the spread.
    """
    worst = min(margins, key=lambda margin: margin.value)
    if not isfinite(worst.value + sum(worst.variances)) or not worst.runs:
        return None
    if one_more and not all(map(isfinite, worst.with_one_more(level))):
        return None
    seen, error = min(worst.runs), worst.error
    power = 1 - (1 - POWER) / len(margins)
    likely = [worst.value]
    if error and abs(worst.value) < FAR * error:
        tails = ((1 + POWER) / 2, (1 - POWER) / 2)
        likely = [float(nctdtrinc(worst.freedom, tail, worst.value / error)) * error for tail in tails]
    ends = [_runs_for(value, worst, seen, level if value > 0 else against, power, one_more) for value in likely]
    known = [end for end in ends if end is not None]
    if not known:
        return None
    decided = None not in ends and min(likely) * max(likely) > 0
    return max(min(known), seen + 1), max(*known, seen + 1) if decided else None


def _runs_for(value: float, seen: Contrast, runs: int, level: float, power: float, one_more: bool) -> int | None:
    """The number of runs that decide with a chance of `power` if the margin is `value`; None beyond MOST."""
    tail, margin, least = (1 - level) / 2, abs(value), 2
    if one_more:  # the mean of n equal runs may still lie (1 - tail^(1/n)) of the way towards the end of their range
        ways = [(p[0] if (w > 0) == (value > 0) else p[1], w, r.mean()) for w, r, p in seen.samples]
        way = sum((w * (mean - end)) ** 2 for end, w, mean in ways if isfinite(end)) ** 0.5
        if margin < way:
            least = max(least, ceil(log(tail) / log1p(-margin / way))) if margin else MOST + 1

    def chance(number: int) -> float:
        if not seen.error:
            return float(margin > 0)
        freedom = seen.freedom * (number - 1) / (runs - 1)
        return 1 - float(nctdtr(freedom, margin / seen.error * (number / runs) ** 0.5, stdtrit(freedom, 1 - tail)))

    number = least + bisect_left(range(least, MOST + 1), power, key=chance)
    return number if number <= MOST else None
