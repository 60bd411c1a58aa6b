"""Observability gap, memory bias and memory improvability of an item whose rows are run on twins as well."""

from itertools import product

import numpy as np
from numpy.typing import NDArray

from rlmem.reproduction.outcome import Outcome
from rlmem.reproduction.parts import Twins
from rlmem.stats.tables import Table
from rlmem.stats.twins import Compared, table

Runs = NDArray[np.float64]


def diagnosis(outcome: Outcome) -> list[Table]:
    """A table of the rows and columns that have runs on a game and on its twin; none where there are no such runs."""
    experiment, scores = outcome.experiment, outcome.scores()
    if experiment.twins is None:
        return []

    def both(row: str, column: str) -> tuple[Runs, Runs] | None:
        partial, full = (scores.get((name, column)) for name in (row, Twins.name(row)))
        return None if partial is None or full is None else (partial, full)

    memoryless, compared = experiment.twins.memoryless, []
    for row, column in product(experiment.twin_of.values(), experiment.columns):
        if runs := both(row, column):
            beside = both(memoryless, column) if row != memoryless else None
            compared.append(Compared(row, column, *runs, beside))
    return [table(outcome.name, compared, experiment.higher)] if compared else []
