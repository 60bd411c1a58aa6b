"""What a report says of an item beside its numbers: how much was run, where, and what differs from the paper."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from rlmem.reproduce.cells import cells, skipped
from rlmem.reproduce.cost import duration
from rlmem.reproduce.metrics import GREEDY, TRAINING, curve_key
from rlmem.reproduce.outcome import Outcome, Record
from rlmem.reproduce.verdict import misprinted

INTERVALS = (
    "Intervals are 95 % percentile bootstraps over seeds. They speak of other seeds on these tasks, and from few seeds "
    "they are too narrow: of normal scores, those of 3 seeds cover the truth 75 % of the time, of 5 seeds 84 %, of 10 "
    "seeds 90 %. One seed has none."
)
KEYS = {GREEDY: "greedy evaluation return", TRAINING: "training return"}
"""Curves in words."""
NAMED = 4
"""Cells of a reason that are named."""


def runs(outcome: Outcome) -> str:
    """`12 of 36`: runs that ended, of those that this budget asks for."""
    planned = sum(len(cell.seeds) for cell in cells(outcome.experiment, outcome.budget))
    return f"{sum(record.state == 'done' for record in outcome.records)} of {planned}"


def facts(records: Sequence[Record]) -> dict[str, str]:
    """Name -> what is known of all runs together; what is not known is left out."""
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
    """(reason, which cells) of every exception that concerns what is run, of every cell that is left out, and of
    every misprint of the paper's table, which concerns none of ours."""
    planned = cells(outcome.experiment, outcome.budget)
    changed: dict[str, list[str]] = defaultdict(list)
    for cell in planned:
        for reason in cell.reasons:
            changed[reason].append(cell.name)
    left: dict[str, list[str]] = defaultdict(list)
    for (row, column), reason in skipped(outcome.experiment, outcome.budget).items():
        left[reason].append(f"{row}/{column}" if column else row)
    told = [(reason, _which(names)) for reason, names in changed.items()]
    told += [(sentence, "") for sentence in misprinted(outcome)]
    return told + [(f"left out: {reason}", _which(names)) for reason, names in left.items()]


def curve_name(outcome: Outcome) -> str:
    return words(curve_key(outcome.experiment.metric))


def words(key: str) -> str:
    """A key of metrics.jsonl in words, if there are any."""
    return KEYS.get(key, key)


def axes_of(outcome: Outcome) -> tuple[list[str], list[str]]:
    """Rows and columns of what is run at this budget, in the order of the file."""
    planned = cells(outcome.experiment, outcome.budget)
    return _each(cell.row for cell in planned), list(dict.fromkeys(cell.column for cell in planned))


def _which(names: Sequence[str]) -> str:
    if len(names) <= NAMED:
        return ", ".join(names)
    return f"{len(names)} cells, such as {', '.join(names[:NAMED])}"


def _each(names: Iterable[str]) -> list[str]:
    """Without repetitions and empty ones."""
    return [name for name in dict.fromkeys(names) if name]
