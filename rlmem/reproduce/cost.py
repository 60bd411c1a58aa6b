"""What a reproduction will cost, told from runs of the same kind whose results are shipped."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cache
from math import ceil

import yaml

from rlmem.config.catalog import default_choices
from rlmem.config.paths import conf_dir, results_dir
from rlmem.reproduce import populations
from rlmem.reproduce.cells import Cell
from rlmem.reproduce.outcome import Record, read_results
from rlmem.reproduce.spec import Experiment
from rlmem.system.hardware import cores

Kind = tuple[str, ...]
"""(algo, memory, env), or the beginning of it."""


def cost_line(name: str, experiment: Experiment, budget: str, planned: Sequence[Cell]) -> str:
    """`memoroids/figure4 at laptop: 12 cells, 36 runs, 720,000 steps, about 25 min on these 2 cores (...)`."""
    runs = sum(len(cell.seeds) for cell in planned)
    parts = [f"{name} at the budget {budget}: {len(planned)} cells, {runs} runs"]
    if experiment.run in ("train", "population"):
        steps, seconds = steps_and_seconds(experiment, budget, planned)
        told = (
            f"about {duration(seconds / cores())} on {cores()} cores" if seconds else "nobody has timed such runs yet"
        )
        parts += [f"{steps:,} steps", told]
    return ", ".join(parts)


def steps_and_seconds(experiment: Experiment, budget: str, planned: Sequence[Cell]) -> tuple[int, float]:
    """Environment steps of all runs, and seconds of one core for them; 0 where nobody has timed such runs."""
    agents = populations.agents_of(experiment, budget) if experiment.run == "population" else 1
    steps = sum(len(cell.seeds) * steps_of(cell.overrides) for cell in planned)
    return agents * steps, agents * estimate(planned)


def estimate(planned: Iterable[Cell]) -> float:
    """Seconds of one core for all runs; 0 if no such algorithm was ever timed."""
    total = 0.0
    for cell in planned:
        rate = _rate(kind(cell.overrides))
        if rate is None:
            return 0.0
        total += rate * steps_of(cell.overrides) * len(cell.seeds)
    return total


def steps_of(lines: Iterable[str]) -> int:
    """total_steps of a run with these overrides: the last that is said in them, in what their groups fix, or at all."""
    given = dict(line.lstrip("+").partition("=")[::2] for line in lines)
    if "total_steps" in given:
        return int(float(given["total_steps"]))
    algo, _, env = kind(lines)
    for file in (f"_tasks/{algo}/{env}", f"algo/{algo}", "config"):
        if (steps := _yaml(file).get("total_steps")) is not None:
            return int(steps)
    return 0


def kind(lines: Iterable[str]) -> Kind:
    """(algo, memory, env) of a run with these overrides."""
    given = dict(line.partition("=")[::2] for line in lines)
    return tuple(str(given.get(group, _defaults()[group])) for group in ("algo", "memory", "env"))


@cache
def _defaults() -> dict[str, str | list[str]]:
    return default_choices()


def duration(seconds: float) -> str:
    """`40 s`, `25 min`, `3 h`, `12 days`: rounded up."""
    for unit, length, most in (("s", 1, 100), ("min", 60, 100), ("h", 3600, 72)):
        if seconds <= most * length:
            return f"{max(1, ceil(seconds / length))} {unit}"
    return f"{ceil(seconds / 86400)} days"


def _rate(wanted: Kind) -> float | None:
    """Seconds per step of the runs that are most like it."""
    for length in (3, 2, 1):
        if found := _rates().get(wanted[:length]):
            return statistics.median(found)
    return None


@cache
def _rates() -> dict[Kind, list[float]]:
    """Seconds per step of every shipped run, by its kind and the beginnings of it."""
    rates: dict[Kind, list[float]] = defaultdict(list)
    for record in _shipped():
        if record.steps and record.seconds > 0 and record.overrides:
            own = kind(record.overrides.split(" "))
            for length in (1, 2, 3):
                rates[own[:length]].append(record.seconds / record.steps)
    return rates


def _shipped() -> Iterable[Record]:
    root = results_dir()
    files = [] if root is None else [f for f in root.glob("*/*.csv") if not f.name.endswith(".curves.csv")]
    return (record for file in sorted(files) for record in read_results(file))


@cache
def _yaml(name: str) -> dict:
    file = conf_dir() / f"{name}.yaml"
    return yaml.safe_load(file.read_text(encoding="utf-8")) or {} if file.exists() else {}
