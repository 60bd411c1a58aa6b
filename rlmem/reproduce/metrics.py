"""The numbers of a run that a table can show, from its record."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from rlmem.config.messages import nearest, sentence
from rlmem.errors import UserError
from rlmem.record import rundir
from rlmem.record.facts import RunRecord
from rlmem.stats import expert_normalised, reference_of

GREEDY, TRAINING = "eval/greedy/return_mean", "train/return_mean"


@dataclass(frozen=True)
class Metric:
    """A number of a run.

    about: what it is, in words
    key: the key of metrics.jsonl
    reduce: makes the number of the key's values over the run, [row] -> float
    """

    about: str
    key: str
    reduce: Callable[[np.ndarray], float]


def _last(values: np.ndarray) -> float:
    return float(values[-1])


def _best(values: np.ndarray) -> float:
    return float(np.fmax.reduce(values))  # of what is known


def _late(values: np.ndarray, percent: int = 5) -> float:
    """The mean of the last so many of a hundred values, one at least."""
    return float(values[-max(1, len(values) * percent // 100) :].mean())


METRICS = {
    "final_eval": Metric("greedy evaluation return at the end", GREEDY, _last),
    "late_eval": Metric("greedy evaluation return, mean of the last twentieth of the evaluations", GREEDY, _late),
    "late_15_eval": Metric(
        "greedy evaluation return, mean of the last 15 % of the evaluations", GREEDY, partial(_late, percent=15)
    ),
    "best_eval": Metric("best greedy evaluation return so far, as published: no unbiased estimate", GREEDY, _best),
    "mmer": Metric("MMER: running maximum of the mean training return, as published", TRAINING, _best),
    "final_train": Metric("mean training return at the end", TRAINING, _last),
    "success": Metric("success rate of greedy evaluation episodes at the end", "eval/greedy/success_rate", _last),
    "sampled_eval": Metric("evaluation return of the sampling policy at the end", "eval/sampled/return_mean", _last),
}
NORMALISED = "normalised "
"""Before a metric: its value between a random policy's and an expert's (`rlmem.stats.expert_normalised`)."""
BESIDE = ("final_eval", "best_eval", "mmer", "final_train")
"""What is read of every training run, whatever the table shows."""


def curve_key(metric: str) -> str:
    """The key of metrics.jsonl behind a metric, for its learning curve."""
    return GREEDY if metric.startswith("analysis/") else made_of(metric.removeprefix(NORMALISED))[0]


def made_of(metric: str) -> tuple[str, Callable[[np.ndarray], float]]:
    """The key of metrics.jsonl behind a metric, and what is made of its values over a run."""
    if known := METRICS.get(metric):
        return known.key, known.reduce
    how, key = _split(metric)
    return key, REDUCTIONS[how]


def require_known(metric: str, where: str) -> None:
    """UserError if `metric` is none: a name of METRICS, `last KEY`, `best KEY`, `late KEY`, `analysis/WHAT/NAME`."""
    metric = metric.removeprefix(NORMALISED)
    if metric in METRICS or metric.startswith("analysis/"):
        return
    if _split(metric)[0] not in REDUCTIONS:
        accepted = [*METRICS, *(f"{how} KEY" for how in REDUCTIONS), "analysis/WHAT/NAME"]
        raise UserError(
            sentence(f"{where}: {metric}", "no such metric", near=nearest(metric, METRICS), accepted=accepted)
        )


REDUCTIONS: dict[str, Callable[[np.ndarray], float]] = {
    "last": _last,
    "best": _best,
    "late": _late,
    "least": lambda values: float(np.fmin.reduce(values)),
}


def _split(metric: str) -> tuple[str, str]:
    how, _, key = metric.partition(" ")
    return how, key


def read(run: RunRecord, metrics: Sequence[str]) -> dict[str, float]:
    """Those of `metrics` that the run has, by name."""
    found = {}
    for metric in metrics:
        plain = metric.removeprefix(NORMALISED)
        if plain.startswith("analysis/"):
            value = _analysed(run.run_dir, plain)
        else:
            key, reduce = made_of(plain)
            values = np.array([row[key] for row in run.rows if key in row], dtype=np.float64)
            value = reduce(values) if len(values) else None
        if value is not None:
            found[metric] = value if plain == metric else _normalised(run.run_dir, value)
    return found


def _normalised(run_dir: Path, value: float) -> float:
    """UserError if no expert is known for the run's environment."""
    env = rundir.read(run_dir)[1]["choices"]["env"]
    try:
        return float(expert_normalised(value, reference_of(env)))
    except ValueError as error:
        raise UserError(f"{run_dir}: {error}") from error


def curve(run: RunRecord, key: str, most: int = 200) -> tuple[list[int], list[float]]:
    """Steps and finite values of a key over a run; of more than `most` points, the means of `most` stretches."""
    points = [(step, value) for step, value in run.series(key) if value is not None and np.isfinite(value)]
    if len(points) <= most:
        return [int(step) for step, _ in points], [float(value) for _, value in points]
    parts = np.array_split(np.array(points, dtype=np.float64), most)
    return [int(part[-1, 0]) for part in parts], [float(part[:, 1].mean()) for part in parts]


def _analysed(run_dir: Path, metric: str) -> float | None:
    _, what, name = metric.split("/", 2)
    try:
        summary = json.loads((run_dir / "analysis" / what / "summary.json").read_text(encoding="utf-8"))
        return float(summary["metrics"][name])
    except (OSError, ValueError, KeyError, TypeError):
        return None
