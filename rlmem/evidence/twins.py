"""Observability gap, memory bias and memory improvability of an item whose rows are run on twins as well."""

from collections.abc import Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from rlmem.config.compose import load
from rlmem.evidence.cells import Cell
from rlmem.evidence.outcome import Outcome
from rlmem.evidence.parts import Twins
from rlmem.evidence.spec import Experiment
from rlmem.stats.tables import Table
from rlmem.stats.twins import Compared, table

Runs = NDArray[np.float64]
ALIKE = 0.1
"""Agents are of equal capacity if they differ by at most this share of the parameters of the one without memory."""


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


def capacity(experiment: Experiment, planned: Sequence[Cell]) -> list[str]:
    """A line with the parameters of the agents, which should be equally many; none for items without twins.

    They are counted on the first game of each. Rows that are far from the one without memory are named.
    """
    if experiment.twins is None:
        return []
    from rlmem.run.assemble import assemble
    from rlmem.run.forecast import parameters

    first: dict[str, Cell] = {}
    for cell in planned:
        if cell.row not in experiment.twin_of:
            first.setdefault(cell.row, cell)
    made = {row: assemble(load(cell.overrides), dry_run=True) for row, cell in first.items()}
    numbers = {row: parameters(parts.agent) for row, parts in made.items()}
    for parts in made.values():
        parts.env.close()
    line = f"parameters of the agents: {', '.join(f'{row} {number:,}' for row, number in numbers.items())}"
    without = numbers.get(experiment.twins.memoryless)
    unlike = [row for row, number in numbers.items() if without and abs(number / without - 1) > ALIKE]
    return [f"{line}; more than {ALIKE:.0%} apart: {', '.join(unlike)}" if unlike else line] if numbers else []
