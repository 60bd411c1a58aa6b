"""What a report says about an item beside its numbers: what was run, where, and what differs from the paper."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from pathlib import Path

import numpy as np

from rlmem.evidence.cost import duration
from rlmem.evidence.metrics import GREEDY, TRAINING
from rlmem.evidence.records import Curve, Record
from rlmem.evidence.verdict import Outcome

INTERVALS = (
    "Intervals of means, in tables and as bands of curves, are t intervals over seeds; comparisons use Welch's. "
    "Their level is 95 % if no other is given, and they end at the least and the greatest possible value. "
    "Rankings have percentile bootstrap intervals, which are too narrow for few seeds. An interval is about other "
    "seeds on the same tasks, not about other tasks. One seed has no interval."
)
KEYS = {GREEDY: "greedy evaluation return", TRAINING: "training return"}
"""Key of a curve -> its description."""
NAMED = 4
"""The greatest number of cells or runs that a sentence names."""


def facts_of(records: Sequence[Record]) -> dict[str, str]:
    """Name -> what holds for all runs together; unknown facts are left out."""
    machines, versions, commits = (
        [text for text in dict.fromkeys(map(attrgetter(name), records)) if text]
        for name in ("machine", "version", "commit")
    )
    seconds = [record.seconds for record in records if np.isfinite(record.seconds)]
    steps = sum(record.steps for record in records)
    found = {
        "runs": ", ".join(f"{number} {state}" for state, number in Counter(r.state for r in records).items()),
        "seeds": ", ".join(str(seed) for seed in sorted({record.seed for record in records})),
        "steps": f"{steps:,} environment steps" if steps else "",
        "time": f"{duration(sum(seconds))} of training, one run after another" if seconds else "",
        "machine": "; ".join(machines),
        "version": ", ".join(f"rlmem {version}" for version in versions),
        "commit": ", ".join(commits),
    }
    return {name: text for name, text in found.items() if text}


def departures(outcome: Outcome) -> list[tuple[str, str]]:
    """(reason, cells) of every exception at this budget, every cell left out, and every misprint of the paper."""
    changed: dict[str, list[str]] = defaultdict(list)
    for cell in outcome.planned.cells():
        for reason in cell.reasons:
            changed[reason].append(cell.name)
    left: dict[str, list[str]] = defaultdict(list)
    for (row, column), reason in outcome.planned.skipped().items():
        left[f"left out: {reason}"].append(f"{row}/{column}" if column else row)
    found = [*changed.items(), *((sentence, []) for sentence in outcome.misprints()), *left.items()]
    return [(reason, _which(names)) for reason, names in found]


def apart(curves: Sequence[Curve]) -> tuple[list[Curve], list[Curve]]:
    """Split curves into those for the mean, and those with a single point to which the mean would shrink."""
    long, dots = ([c for c in curves if (len(c.steps) > 1) is wanted] for wanted in (True, False))
    return (dots, []) if not long and len({dot.steps[0] for dot in dots}) == 1 else (long, dots)


def disjoint(curves: Sequence[Curve]) -> bool:
    """Whether no step lies within the range of all curves."""
    return bool(curves) and max(curve.steps[0] for curve in curves) > min(curve.steps[-1] for curve in curves)


def key_in_words(key: str) -> str:
    """The description of a key of metrics.jsonl, or the key if it has none."""
    return KEYS.get(key, key)


def unseen(records: Sequence[Record], curves: Sequence[Curve], key: str) -> list[str]:
    """Sentences that name the runs without a curve, and the runs that are drawn but in no mean."""
    cell: dict[tuple[str, str], list[Curve]] = defaultdict(list)
    for curve in curves:
        cell[curve.row, curve.column].append(curve)
    missing = Counter(run.place for run in records) - Counter(curve.place for curve in curves)
    counted, dots = zip(*map(apart, cell.values()), strict=True) if cell else ((), ())
    said = {
        f"no curve, since there is no value of {key}" if key else "no curve": missing.elements(),
        "one point alone, a dot beside the mean": (dot.place for dot in chain(*dots)),
        "no mean, since no step is common to all": (curve.place for curve in chain(*filter(disjoint, counted))),
    }
    return sentences(said)


def omissions(half: Sequence[Path], problems: Sequence[str]) -> list[str]:
    """Sentences about directories of runs that have not begun or lack a file, and about what cannot be read."""
    found = [f"left out, no config.yaml or no run.json: {_which(map(str, half), 'directories')}"] if half else []
    found += [f"left out, {problem}" for problem in problems[:NAMED]]
    return found + ([f"left out, {len(problems) - NAMED} more that cannot be read"] if len(problems) > NAMED else [])


def sentences(said: Mapping[str, Iterable[tuple[str, str, int]]]) -> list[str]:
    """A sentence for every reason that concerns runs, which it names."""
    named = {
        reason: [f"({' on '.join(filter(None, (row, column)))}, seed {seed})" for row, column, seed in runs]
        for reason, runs in said.items()
    }
    return [f"{reason}: {_which(names, 'runs')}" for reason, names in named.items() if names]


def _which(things: Iterable[str], kind: str = "cells") -> str:
    names = list(things)
    return ", ".join(names) if len(names) <= NAMED else f"{len(names)} {kind}, such as {', '.join(names[:NAMED])}"
