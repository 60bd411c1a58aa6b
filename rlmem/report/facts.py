"""What a report says about an item beside its numbers: what was run, where, and what differs from the paper."""

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from rlmem.report.bands import apart, disjoint
from rlmem.reproduce.cells import cells, skipped
from rlmem.reproduce.cost import duration
from rlmem.reproduce.metrics import GREEDY, TRAINING
from rlmem.reproduce.outcome import Curve, Outcome, Record
from rlmem.reproduce.verdict import misprinted

INTERVALS = (
    "Intervals are 95 % percentile bootstraps over seeds. They speak of other seeds on these tasks, and from few seeds "
    "they are too narrow: of normal scores, those of 3 seeds cover the truth 75 % of the time, of 5 seeds 84 %, of 10 "
    "seeds 90 %. One seed has none."
)
KEYS = {GREEDY: "greedy evaluation return", TRAINING: "training return"}
"""Key of a curve -> its description."""
NAMED = 4
"""The greatest number of cells or runs that a sentence names."""


def facts_of(records: Sequence[Record]) -> dict[str, str]:
    """Name -> what holds for all runs together; unknown facts are left out."""
    states = Counter(record.state for record in records)
    seconds = [record.seconds for record in records if np.isfinite(record.seconds)]
    steps = sum(record.steps for record in records)
    found = {
        "runs": ", ".join(f"{number} {state}" for state, number in states.items()),
        "seeds": ", ".join(str(seed) for seed in sorted({record.seed for record in records})),
        "steps": f"{steps:,} environment steps" if steps else "",
        "time": f"{duration(sum(seconds))} of training, one run after another" if seconds else "",
        "machine": "; ".join(_each(record.machine for record in records)),
        "version": ", ".join(f"rlmem {version}" for version in _each(record.version for record in records)),
        "commit": ", ".join(_each(record.commit for record in records)),
    }
    return {name: text for name, text in found.items() if text}


def departures(outcome: Outcome) -> list[tuple[str, str]]:
    """(reason, cells) of every exception at this budget, every cell left out, and every misprint of the paper."""
    planned = cells(outcome.experiment, outcome.budget)
    changed: dict[str, list[str]] = defaultdict(list)
    for cell in planned:
        for reason in cell.reasons:
            changed[reason].append(cell.name)
    left: dict[str, list[str]] = defaultdict(list)
    for (row, column), reason in skipped(outcome.experiment, outcome.budget).items():
        left[reason].append(f"{row}/{column}" if column else row)
    found = [(reason, _which(names)) for reason, names in changed.items()]
    found += [(sentence, "") for sentence in misprinted(outcome)]
    return found + [(f"left out: {reason}", _which(names)) for reason, names in left.items()]


def key_in_words(key: str) -> str:
    """The description of a key of metrics.jsonl, or the key if it has none."""
    return KEYS.get(key, key)


def unseen(records: Sequence[Record], curves: Sequence[Curve], key: str) -> list[str]:
    """Sentences that name the runs without a curve, and the runs that are drawn but in no mean."""
    cell: dict[tuple[str, str], list[Curve]] = defaultdict(list)
    for curve in curves:
        cell[curve.row, curve.column].append(curve)
    missing = Counter((run.row, run.column, run.seed) for run in records)
    missing.subtract((curve.row, curve.column, curve.seed) for curve in curves)
    counted, dots = zip(*map(apart, cell.values()), strict=True) if cell else ((), ())
    said = {
        f"no curve, since there is no value of {key}" if key else "no curve": list((+missing).elements()),
        "one point alone, a dot beside the mean": _named(itertools.chain(*dots)),
        "no mean, since no step is common to all": _named(itertools.chain(*(own for own in counted if disjoint(own)))),
    }
    return [f"{reason}: {_runs(runs)}" for reason, runs in said.items() if runs]


def uncounted(records: Sequence[Record], metric: str) -> list[str]:
    """Sentences that name the runs that a table of `metric` leaves out."""
    said: dict[str, list[tuple[str, str, int]]] = defaultdict(list)
    for run in records:
        if metric not in run.metrics:
            state = "ended without a finite value" if run.state == "done" else run.state
            said[state].append((run.row, run.column, run.seed))
    return [f"not in the table, {state}: {_runs(runs)}" for state, runs in said.items()]


def unreadable(half: Sequence[Path]) -> list[str]:
    """A sentence that names directories of runs that have not begun or lack a file."""
    names = [str(path) for path in half]
    return [f"left out, no config.yaml or no run.json: {_which(names, 'directories')}"] if names else []


def _named(curves: Iterable[Curve]) -> list[tuple[str, str, int]]:
    return [(curve.row, curve.column, curve.seed) for curve in curves]


def _runs(runs: Sequence[tuple[str, str, int]]) -> str:
    names = [f"{' on '.join(part for part in (row, column) if part)}, seed {seed}" for row, column, seed in runs]
    return _which([f"({name})" for name in names], "runs")


def _which(names: Sequence[str], things: str = "cells") -> str:
    if len(names) <= NAMED:
        return ", ".join(names)
    return f"{len(names)} {things}, such as {', '.join(names[:NAMED])}"


def _each(names: Iterable[str]) -> list[str]:
    """The names without repetitions and empty ones."""
    return [name for name in dict.fromkeys(names) if name]
