"""The cost of a reproduction, estimated from shipped results of similar runs."""

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cache
from math import ceil, isnan, nan
from typing import NamedTuple

import yaml

from rlmem.config.catalog import default_choices
from rlmem.config.paths import conf_dir, results_dir
from rlmem.reproduce.cells import Cell
from rlmem.reproduce.outcome import read_results


class Cost(NamedTuple):
    """The cost of runs together: environment steps, and seconds of one core, 0 where no such run was timed."""

    steps: int
    seconds: float


def cost_of(planned: Sequence[Cell]) -> Cost:
    """The cost of the runs of these cells; 0 seconds if for one of them no run of such an algorithm was ever timed."""
    steps, seconds = 0, 0.0
    for cell in planned:
        each = steps_of(cell.overrides)
        steps += each * len(cell.seeds)
        seconds += _rate(kind(cell.overrides)) * each * len(cell.seeds)
    return Cost(steps, 0.0 if isnan(seconds) else seconds)


def steps_of(lines: Iterable[str]) -> int:
    """total_steps of a run: from its last such override, else from its groups' options, else the default."""
    given = dict(line.lstrip("+").partition("=")[::2] for line in lines)
    if "total_steps" in given:
        return int(float(given["total_steps"]))
    algo, _, env = kind(lines)
    found = (_yaml(file).get("total_steps") for file in (f"_tasks/{algo}/{env}", f"algo/{algo}", "config"))
    return next((int(steps) for steps in found if steps is not None), 0)


def kind(lines: Iterable[str]) -> tuple[str, ...]:
    """(algo, memory, env) of a run with these overrides."""
    given = default_choices() | dict(line.partition("=")[::2] for line in lines)
    return tuple(str(given[group]) for group in ("algo", "memory", "env"))


def duration(seconds: float) -> str:
    """`40 s`, `25 min`, `3 h`, `12 days`: rounded up."""
    for unit, length, most in (("s", 1, 100), ("min", 60, 100), ("h", 3600, 72)):
        if seconds <= most * length:
            return f"{max(1, ceil(seconds / length))} {unit}"
    return f"{ceil(seconds / 86400)} days"


def _rate(wanted: tuple[str, ...]) -> float:
    """Seconds per step of the most similar runs; NaN if there are none."""
    return next((statistics.median(found) for n in (3, 2, 1) if (found := _rates().get(wanted[:n]))), nan)


@cache
def _rates() -> dict[tuple[str, ...], list[float]]:
    """Seconds per step of every shipped run, by its kind and every prefix of it."""
    rates = defaultdict(list)
    root = results_dir()
    files = sorted(root.glob("*/*.csv")) if root else []
    for record in (r for f in files if not f.name.endswith(".curves.csv") for r in read_results(f)):
        if record.steps and record.seconds > 0 and record.overrides:
            own = kind(record.overrides.split(" "))
            for length in (1, 2, 3):
                rates[own[:length]].append(record.seconds / record.steps)
    return rates


@cache
def _yaml(name: str) -> dict:
    file = conf_dir() / f"{name}.yaml"
    return yaml.safe_load(file.read_text(encoding="utf-8")) or {} if file.exists() else {}
