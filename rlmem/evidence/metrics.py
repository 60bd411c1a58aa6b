"""The metrics that a table can show: how each is read from the record of a run, its scale, and its range of values."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from math import inf, nan
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from rlmem.config import plainyaml
from rlmem.config.catalog import default_choices, node_of
from rlmem.config.messages import mistake, nearest
from rlmem.config.paths import conf_dir
from rlmem.config.targets import locate
from rlmem.core import received
from rlmem.core.errors import UserError
from rlmem.evidence.statistics import ANY, Array, Range
from rlmem.record import rundir
from rlmem.record.facts import RunRecord

GREEDY, TRAINING = "eval/greedy/return_mean", "train/return_mean"
Reduction = Callable[[np.ndarray, np.ndarray], float]
"""Reduces the values of a key over a run to one number: environment steps [row], values [row] -> float."""
STEPS_TO = re.compile(r"steps_to_(-?\d+(?:\.\d+)?)")
"""The metrics `steps_to_VALUE`: the steps until a greedy evaluation reaches VALUE, infinite if none does."""


def _late(values: np.ndarray, percent: int) -> float:
    """The mean of the last `percent` % of the values, of at least one."""
    return float(values[-max(1, len(values) * percent // 100) :].mean())


def _area(steps: np.ndarray, values: np.ndarray) -> float:
    """The area under the curve over its steps, by trapezoids; before the first row the curve has its value there."""
    under = values[0] * steps[0] + np.sum(np.diff(steps) * (values[1:] + values[:-1]) / 2)
    return float(under / steps[-1]) if steps[-1] else float(values[-1])


def _reached(value: float) -> Reduction:
    """The steps of the first row with at least `value`; infinite if there is none."""
    return lambda steps, values: float(np.min(steps[values >= value], initial=np.inf))


REDUCTIONS: dict[str, Reduction] = {
    "last": lambda steps, values: float(values[-1]),
    "log_last": lambda steps, values: float(np.log(values[-1])) if values[-1] > 0 else np.nan,
    "best": lambda steps, values: float(np.fmax.reduce(values)),  # NaNs are ignored
    "least": lambda steps, values: float(np.fmin.reduce(values)),
    "late": lambda steps, values: _late(values, 5),
    "late_15": lambda steps, values: _late(values, 15),
    "area": _area,
}
GIVEN = re.compile(r"(?P<metric>.+) given (?P<other>.+) >= (?P<least>\S+)")
"""The metrics `METRIC given OTHER >= LEAST`: METRIC of the runs whose OTHER is at least LEAST, NaN of the others."""
METRICS = {name: tuple(entry) for name, entry in plainyaml.read(Path(__file__).with_name("metrics.yaml")).items()}
"""Name of a metric -> its description, its key of metrics.jsonl, and the name of its reduction.

`last KEY`, `log_last KEY`, `best KEY`, `least KEY`, `late KEY` and `area KEY` are metrics of any key, too; see also
`STEPS_TO`.
"""
NORMALISED = "normalised "
"""Prefix of a metric on a scale where a random policy has 0 and an expert 100 (`Reference`)."""
BESIDE = ("final_eval", "best_eval", "mmer", "final_train")
"""The metrics that are read from every training run, whatever the table shows."""
MOST = 200
"""The greatest number of points of a learning curve that is kept."""


@dataclass(frozen=True)
class Reference:
    """The returns of a task that score 0 and 100: a random policy's, and an expert's.

    random: mean return of a policy that draws its actions uniformly
    expert: mean return of an expert, or the one from which the task counts as solved
    least, most: the bounds of returns
    """

    random: float
    expert: float
    least: float = -inf
    most: float = inf

    @property
    def returns(self) -> Range:
        return self.least, self.most

    @property
    def scale(self) -> float:
        """Score per unit of return, by which standard deviations of returns are multiplied, too."""
        return 100 / (self.expert - self.random)


REFERENCES, GAMES, D4RL, ANSWERS = (
    {task: Reference(*returns) for task, returns in of_tasks.items()}
    for of_tasks in plainyaml.read(Path(__file__).with_name("references.yaml")).values()
)
"""The references of PyBullet's robots, Gymnasium's games, MuJoCo's robots and guesses; the file names their sources."""


def expert_normalised(returns: ArrayLike, reference: Reference) -> Array:
    """100 (R - R_random) / (R_expert - R_random) (Lu et al. 2024, arXiv:2405.17358, appendix D.5, eq. 3)."""
    return (np.asarray(returns, dtype=np.float64) - reference.random) * reference.scale


def reference_of(task: str) -> Reference:
    """The reference of a game, robot or guess by its id in GAMES, D4RL or ANSWERS, or of a robot of PyBullet: `ant`,
    `ant_p`, `half_cheetah_v`, `Cheetah-V`.

    Raises ValueError for any other task.
    """
    if task in (known := GAMES | D4RL | ANSWERS):
        return known[task]
    robot = re.sub(r"[-_][fpv]$", "", task.lower())
    robot = "half_cheetah" if robot in ("cheetah", "halfcheetah") else robot
    if robot not in REFERENCES:
        names = ", ".join((*REFERENCES, *known))
        raise ValueError(f"no expert's return is known for {task}; there is one for {names}")
    return REFERENCES[robot]


def curve_key(metric: str) -> str:
    """The key of metrics.jsonl behind a metric, or behind the first part of one of GIVEN, for its learning curve."""
    if match := GIVEN.fullmatch(metric):
        own, _ = map(curve_key, match.group("metric", "other"))
        return own
    return GREEDY if metric.startswith("analysis/") else made_of(metric.removeprefix(NORMALISED))[0]


def in_tables(metric: str, values: ArrayLike) -> Array:
    """The values of a metric over runs that tables and expectations are about: of GIVEN, those that are not NaN."""
    values = np.asarray(values, dtype=np.float64)
    return values[~np.isnan(values)] if GIVEN.fullmatch(metric) else values


def made_of(metric: str) -> tuple[str, Reduction]:
    """The key of metrics.jsonl behind a metric, and the reduction of its values over a run. Raises UserError."""
    if match := STEPS_TO.fullmatch(metric):
        return GREEDY, _reached(float(match[1]))
    how, _, key = metric.partition(" ")
    _, key, how = METRICS.get(metric, (metric, key, how))
    if how not in REDUCTIONS or not key:
        near, accepted = nearest(metric, METRICS), [*METRICS, "steps_to_VALUE", "last KEY"]
        raise mistake(f"metric: {metric}", "no such metric", near=near, accepted=accepted)
    return key, REDUCTIONS[how]


def in_words(metric: str) -> str:
    """The description of a metric, or its name if it has none."""
    if match := GIVEN.fullmatch(metric):
        return f"{in_words(match['metric'])} of the runs with {in_words(match['other'])} of at least {match['least']}"
    plain = metric.removeprefix(NORMALISED)
    scale = "" if plain == metric else " (a random policy's return is 0, an expert's 100)"
    if match := STEPS_TO.fullmatch(plain):
        return f"steps until a greedy evaluation reaches {match[1]}{scale}; infinite if none does"
    return METRICS[plain][0] + scale if plain in METRICS else metric


def read(run: RunRecord, metrics: Sequence[str], task: str | None = None) -> dict[str, float]:
    """Those of `metrics` that the run has, by name.

    task: whose reference (`reference_of`) normalises; None: that of the run's environment

    Raises UserError for a task without a known expert.
    """
    values = {}
    for metric in metrics:
        plain, value = metric.removeprefix(NORMALISED), None
        if match := GIVEN.fullmatch(metric):
            own, other = (read(run, [name], task).get(name) for name in match.group("metric", "other"))
            if own is not None and other is not None:
                values[metric] = own if other >= float(match["least"]) else nan
            continue
        # Only a run that has a value has a directory, which names its task.
        scale = lambda name=metric: scale_of(name, task or _task_of(run), run.run_dir)  # noqa: E731
        if plain.startswith("analysis/"):
            value = _analysed(run.run_dir, *plain.split("/", 2)[1:])
            if value is not None and plain != metric and (reference := scale()):
                value = float(expert_normalised(value, reference))
        elif points := run.series(made_of(plain)[0]):
            value = reduced(metric, points, scale() if plain != metric else None)
        if value is not None:
            values[metric] = value
    return values


def reduced(metric: str, points: Sequence[tuple[int, float | None]], reference: Reference | None = None) -> float:
    """A metric of the (step, value) of its key over a run, of which there is at least one; None stands for NaN.

    reference: what normalises the values, for a metric with the prefix NORMALISED
    """
    steps, values = np.array(points, dtype=np.float64).T
    reduce = made_of(metric.removeprefix(NORMALISED))[1]
    return reduce(steps, values if reference is None else expert_normalised(values, reference))


def scale_of(metric: str, task: str, where: object) -> Reference | None:
    """What normalises a metric; None for one that is not normalised. Raises UserError, which begins with `where`."""
    try:
        return reference_of(task) if metric.startswith(NORMALISED) else None
    except ValueError as error:
        raise UserError(f"{where}: {error}") from error


def _task_of(run: RunRecord) -> str:
    """The environment of a run: `env.id` where it has one."""
    config, about = rundir.read(run.run_dir)
    return str(config.get("env", {}).get("id") or about["choices"]["env"])


def thinned(series: Sequence[tuple[int, float | None]], most: int = MOST) -> tuple[list[int], list[float]]:
    """Steps and finite values of (step, value); more than `most` points are averaged over `most` stretches."""
    points = [(step, value) for step, value in series if value is not None and np.isfinite(value)]
    if len(points) <= most:
        return [int(step) for step, _ in points], [float(value) for _, value in points]
    parts = np.array_split(np.array(points, dtype=np.float64), most)
    return [int(part[-1, 0]) for part in parts], [float(part[:, 1].mean()) for part in parts]


def _analysed(run_dir: Path, analysis: str, name: str) -> float | None:
    try:
        summary = received.json_of(run_dir / "analysis" / analysis / "summary.json")
        return received.number(summary["metrics"][name])
    except (OSError, ValueError, LookupError, TypeError):
        return None


# The values that a metric can have at all, which bound the intervals of its means

RANGES: dict[str, Range] = {
    r".*/(success_rate|accuracy|accuracy_smoothed)": (0.0, 1.0),
    r"analysis/extrapolate/success/\d+": (0.0, 1.0),
    r"analysis/(sensitivity/share_older|shm/below_one_at_[a-z0-9]+)(_untrained)?": (0.0, 1.0),
    r"analysis/hidden/silhouette(_with_terminal)?(_untrained)?": (-1.0, 1.0),
}
"""Pattern of keys of metrics.jsonl and of numbers of analyses -> the least and the greatest value."""


def range_of_key(key: str, env: str, wrapper: str = "[]") -> Range:
    """The least and the greatest value of a key of metrics.jsonl, or of a number of an analysis.

    env: an option of conf/env, or the id of a game that has a reference
    """
    if known := next((known for pattern, known in RANGES.items() if re.fullmatch(pattern, key)), None):
        return known
    if not key.rpartition("/")[2].startswith("return_") or wrapper != "[]":
        return ANY
    return GAMES[env].returns if env in GAMES else range_of_returns(env)


def range_of(metric: str, overrides: Sequence[str]) -> Range:
    """The least and the greatest value of a metric of runs with these overrides."""
    chosen = {"env": str(default_choices()["env"]), "wrapper": "[]"} | dict(o.partition("=")[::2] for o in overrides)
    metric = metric.partition(" given ")[0]
    changed = {key for key in chosen if key.startswith("env.")} - {"env.id", "env.num_envs", "env.workers"}
    plain, env = metric.removeprefix(NORMALISED), chosen.get("env.id", chosen["env"])
    env = chosen["env"] if env in GAMES and changed else env
    try:
        key = plain if plain.startswith("analysis/") else made_of(plain)[0]
    except UserError:  # a measurement
        return ANY
    known = ANY if plain.startswith(("steps_to_", "log_")) else range_of_key(key, env, chosen["wrapper"])
    if plain == metric:
        return known
    least, most = expert_normalised(known, GAMES[env]) if env in GAMES else ANY
    return float(least), float(most)


@cache
def range_of_returns(env: str) -> Range:
    """The least and the greatest return of an option of conf/env, as its class declares them."""
    shipped = {file.stem: file for file in (conf_dir() / "env").glob("[!_]*.yaml")}  # a name may come from elsewhere
    if env not in shipped:
        return ANY
    node = node_of(shipped[env])
    try:
        target = locate(node["_target_"])
    except UserError:  # its package is not installed
        return ANY
    if node["_target_"] == "rlmem_envs.popgym.make":
        target = locate("rlmem_envs.registration.task_class")(node["name"])
    return getattr(target, "returns", ANY)
