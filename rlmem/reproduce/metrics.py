"""The metrics that a table can show, read from the record of a run."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from rlmem.errors import UserError
from rlmem.record import rundir
from rlmem.record.facts import RunRecord
from rlmem.stats import expert_normalised, reference_of

GREEDY, TRAINING = "eval/greedy/return_mean", "train/return_mean"
Reduction = Callable[[np.ndarray], float]
"""Reduces the values of a key over a run to one number, [row] -> float."""


def _late(values: np.ndarray, percent: int) -> float:
    """The mean of the last `percent` % of the values, of at least one."""
    return float(values[-max(1, len(values) * percent // 100) :].mean())


REDUCTIONS: dict[str, Reduction] = {
    "last": lambda values: float(values[-1]),
    "best": lambda values: float(np.fmax.reduce(values)),  # NaNs are ignored
    "least": lambda values: float(np.fmin.reduce(values)),
    "late": lambda values: _late(values, 5),
    "late_15": lambda values: _late(values, 15),
}
METRICS: dict[str, tuple[str, str, str]] = {
    "final_eval": ("greedy evaluation return at the end", GREEDY, "last"),
    "late_eval": ("greedy evaluation return, mean of the last twentieth of the evaluations", GREEDY, "late"),
    "late_15_eval": ("greedy evaluation return, mean of the last 15 % of the evaluations", GREEDY, "late_15"),
    "best_eval": ("best greedy evaluation return so far, as published: no unbiased estimate", GREEDY, "best"),
    "mmer": ("MMER: running maximum of the mean training return, as published", TRAINING, "best"),
    "final_train": ("mean training return at the end", TRAINING, "last"),
    "success": ("success rate of greedy evaluation episodes at the end", "eval/greedy/success_rate", "last"),
    "sampled_eval": ("evaluation return of the sampling policy at the end", "eval/sampled/return_mean", "last"),
}
"""Name of a metric -> it in words, its key of metrics.jsonl, and the name of its reduction.

`last KEY`, `best KEY`, `least KEY` and `late KEY` are metrics of any key, too.
"""
NORMALISED = "normalised "
"""Prefix of a metric that is normalised by a random policy and an expert (`rlmem.stats.expert_normalised`)."""
BESIDE = ("final_eval", "best_eval", "mmer", "final_train")
"""The metrics that are read from every training run, whatever the table shows."""


def curve_key(metric: str) -> str:
    """The key of metrics.jsonl behind a metric, for its learning curve."""
    return GREEDY if metric.startswith("analysis/") else made_of(metric.removeprefix(NORMALISED))[0]


def made_of(metric: str) -> tuple[str, Reduction]:
    """The key of metrics.jsonl behind a metric, and the reduction of its values over a run."""
    how, _, key = metric.partition(" ")
    _, key, how = METRICS.get(metric, (metric, key, how))
    return key, REDUCTIONS[how]


def in_words(metric: str) -> str:
    """The description of a metric, or its name if it has none."""
    return METRICS[metric][0] if metric in METRICS else metric


def read(run: RunRecord, metrics: Sequence[str]) -> dict[str, float]:
    """Those of `metrics` that the run has, by name. Raises UserError for an environment without a known expert."""
    found = {}
    for metric in metrics:
        plain = metric.removeprefix(NORMALISED)
        if plain.startswith("analysis/"):
            value = _analysed(run.run_dir, *plain.split("/", 2)[1:])
        else:
            key, reduce = made_of(plain)
            values = np.array([row[key] for row in run.rows if key in row], dtype=np.float64)
            value = reduce(values) if len(values) else None
        if value is not None and plain != metric:
            env = rundir.read(run.run_dir)[1]["choices"]["env"]
            try:
                value = float(expert_normalised(value, reference_of(env)))
            except ValueError as error:
                raise UserError(f"{run.run_dir}: {error}") from error
        if value is not None:
            found[metric] = value
    return found


def curve(run: RunRecord, key: str, most: int = 200) -> tuple[list[int], list[float]]:
    """Steps and finite values of a key over a run; more than `most` points are averaged over `most` stretches."""
    points = [(step, value) for step, value in run.series(key) if value is not None and np.isfinite(value)]
    if len(points) <= most:
        return [int(step) for step, _ in points], [float(value) for _, value in points]
    parts = np.array_split(np.array(points, dtype=np.float64), most)
    return [int(part[-1, 0]) for part in parts], [float(part[:, 1].mean()) for part in parts]


def _analysed(run_dir: Path, what: str, name: str) -> float | None:
    try:
        summary = json.loads((run_dir / "analysis" / what / "summary.json").read_text(encoding="utf-8"))
        return float(summary["metrics"][name])
    except (OSError, ValueError, KeyError, TypeError):
        return None
