"""Runs of no experiment that are twins: they differ in `env.observe` alone, and one of them has it at `full`."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from rlmem.evidence.outcome import Record
from rlmem.evidence.page.labels import COLUMN, Settings
from rlmem.stats.twins import Compared

OBSERVE, FULL = "env.observe", "full"
MEMORYLESS = "mlp"
"""The option of `memory` that has none."""


def twins(settings: Sequence[Settings], records: Sequence[Record], metric: str) -> list[Compared]:
    """Every agent that was run on a game and on its twin, beside the one without memory that was run on both.

    Agents without memory are compared with those of the same game, algorithm and steps; where there are several, with
    none.
    """
    returns: dict[Any, dict[str, list[Record]]] = defaultdict(lambda: defaultdict(list))  # by agent and observe
    games: dict[Any, Any] = {}
    for own, record in zip(settings, records, strict=True):
        if metric in record.metrics and OBSERVE in own.values:
            agent = _hashable(own.options), _hashable({k: v for k, v in own.values.items() if k != OBSERVE})
            returns[agent][own.values[OBSERVE]].append(record)
            games[agent] = _game(own), own.options.get("memory")
    found = []
    for agent, by in returns.items():
        game, memory = games[agent]
        without = [own for other, own in returns.items() if games[other] == (game, MEMORYLESS)]
        one = without[0] if len(without) == 1 and memory != MEMORYLESS else {}
        for shown in by if FULL in by else ():
            if shown != FULL:
                beside = (_of(one[shown], metric), _of(one[FULL], metric)) if {shown, FULL} <= one.keys() else None
                first, runs = by[shown][0], (_of(by[shown], metric), _of(by[FULL], metric))
                row = " ".join(word for word in first.row.split() if not word.endswith(f"observe={shown}"))
                found.append(Compared(row, first.column, *runs, beside))
    return found


def _game(own: Settings) -> Any:
    """What an agent without memory must have in common with one that it is compared with."""
    values = {k: v for k, v in own.values.items() if k.startswith("env.") and k not in (OBSERVE, "env.num_envs")}
    return own.options.get(COLUMN), own.options.get("algo"), own.values.get("total_steps"), _hashable(values)


def _of(records: Sequence[Record], metric: str) -> list[float]:
    return [record.metrics[metric] for record in records]


def _hashable(values: Any) -> Any:
    return tuple(sorted(values.items()))
