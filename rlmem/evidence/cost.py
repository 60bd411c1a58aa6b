"""The cost of a reproduction, estimated from shipped runs of the same kind."""

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cache
from math import ceil, isnan, nan
from typing import NamedTuple

import yaml

from rlmem.config.catalog import default_choices
from rlmem.config.paths import conf_dir, results_dir
from rlmem.evidence.experiment import Cell
from rlmem.evidence.records import read_results


class Cost(NamedTuple):
    """The cost of runs together.

    steps: environment steps
    seconds: seconds of one core, estimated from medians of shipped runs of the same kind, whose width, batches and
        other settings may differ; 0 if a kind has no shipped runs
    """

    steps: int
    seconds: float


def cost_of(planned: Sequence[Cell]) -> Cost:
    """The cost of the runs of these cells."""
    steps = [steps_of(cell.overrides) * len(cell.seeds) for cell in planned]
    per_step = [_seconds_per_step().get(kind(cell.overrides), nan) for cell in planned]
    seconds = sum(rate * number for rate, number in zip(per_step, steps, strict=True))
    return Cost(sum(steps), 0.0 if isnan(seconds) else seconds)


def steps_of(lines: Iterable[str]) -> int:
    """total_steps of a run: from its last such override, else from its groups' options, else the default."""
    assigned = dict(line.lstrip("+").partition("=")[::2] for line in lines)
    if "total_steps" in assigned:
        return int(float(assigned["total_steps"]))
    algo, _, env = kind(lines)
    candidates = (_yaml(file).get("total_steps") for file in (f"_tasks/{algo}/{env}", f"algo/{algo}", "config"))
    return next((int(steps) for steps in candidates if steps is not None), 0)


def kind(lines: Iterable[str]) -> tuple[str, ...]:
    """(algo, memory, env) of a run with these overrides."""
    choices = default_choices() | dict(line.partition("=")[::2] for line in lines)
    return tuple(str(choices[group]) for group in ("algo", "memory", "env"))


def duration(seconds: float) -> str:
    """`40 s`, `25 min`, `3 h`, `12 days`: rounded up."""
    for unit, length, most in (("s", 1, 100), ("min", 60, 100), ("h", 3600, 72)):
        if seconds <= most * length:
            return f"{max(1, ceil(seconds / length))} {unit}"
    return f"{ceil(seconds / 86400)} days"


@cache
def _seconds_per_step() -> dict[tuple[str, ...], float]:
    """Medians over the shipped runs that were timed, by their kind."""
    root, times = results_dir(), defaultdict[tuple[str, ...], list[float]](list)
    files = [file for file in sorted(root.glob("*/*.csv")) if not file.name.endswith(".curves.csv")] if root else []
    for record in (record for file in files for record in read_results(file)):
        if record.steps and record.seconds > 0 and record.overrides:
            times[kind(record.overrides.split(" "))].append(record.seconds / record.steps)
    return {key: statistics.median(seconds) for key, seconds in times.items()}


@cache
def _yaml(name: str) -> dict:
    file = conf_dir() / f"{name}.yaml"
    return yaml.safe_load(file.read_text(encoding="utf-8")) or {} if file.exists() else {}
