"""The table of runs that belong to no experiment."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rlmem.report.groups import Group
from rlmem.reproduce import metrics
from rlmem.reproduce.expect import across
from rlmem.stats import percentile_bounds
from rlmem.stats.resampling import SEED
from rlmem.stats.tables import Cell, Table, Value


def returns(shown: Group) -> Table:
    """Mean over seeds with its interval, one line per row and column that has finished runs."""
    rng = np.random.default_rng(SEED)
    names = [name for name in (shown.metric, *metrics.BESIDE) if any(name in r.metrics for r in shown.records)]
    names = list(dict.fromkeys(names))
    places = list(dict.fromkeys((record.row, record.column) for record in shown.records))
    several = any(column for _, column in places)
    lines: list[list[Cell]] = []
    for row, column in places:
        runs = [record.metrics for record in shown.records if (record.row, record.column) == (row, column)]
        ended = [r for r in runs if shown.metric in r]
        cells: list[Cell] = [_value(np.array([r[name] for r in ended if name in r]), rng) for name in names]
        lines.append([row, *([column] if several else []), *cells[:1], len(ended), *cells[1:]])
    about = {name: metrics.METRICS[name].about for name in names if name in metrics.METRICS}
    head = [f"{about.get(name, name)} [95 % CI]" if name == shown.metric else name for name in names]
    columns = ["row", *(["column"] if several else []), *head[:1], "runs", *head[1:]]
    return Table(f"{shown.name}: runs that have ended", columns, lines)


def _value(runs: NDArray[np.float64], rng: np.random.Generator) -> Value:
    found = across({("", ""): runs}, "", [""], rng)
    if found is None:
        return Value(None)
    low, high = map(float, percentile_bounds(found[1]))
    return Value(found[0], low=low, high=high, n=len(runs))
