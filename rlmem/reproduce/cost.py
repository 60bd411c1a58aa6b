"""The cost of a reproduction, estimated from shipped results of similar runs."""

import statistics
from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from math import ceil

import yaml

from rlmem.config.catalog import default_choices
from rlmem.config.paths import conf_dir, results_dir
from rlmem.reproduce.cells import Cell
from rlmem.reproduce.outcome import Record, read_results

Kind = tuple[str, ...]
"""(algo, memory, env) or a prefix of it."""


def estimate(planned: Iterable[Cell]) -> float:
    """Seconds of one core for all runs; 0 if no run of such an algorithm was ever timed."""
    total = 0.0
    for cell in planned:
        rate = _rate(kind(cell.overrides))
        if rate is None:
            return 0.0
        total += rate * steps_of(cell.overrides) * len(cell.seeds)
    return total


def steps_of(lines: Iterable[str]) -> int:
    """total_steps of a run: from its last such override, else from its groups' options, else the default."""
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
    """Seconds per step of the most similar runs; None if there are none."""
    for length in (3, 2, 1):
        if found := _rates().get(wanted[:length]):
            return statistics.median(found)
    return None


@cache
def _rates() -> dict[Kind, list[float]]:
    """Seconds per step of every shipped run, by its kind and every prefix of it."""
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
