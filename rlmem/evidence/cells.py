"""The cells of an experiment at a budget, and the training run of each seed."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from itertools import product

from rlmem.config.messages import nearest, sentence
from rlmem.errors import UserError
from rlmem.evidence.parts import Lines
from rlmem.evidence.spec import Experiment, words


@dataclass(frozen=True)
class Cell:
    """A cell of the table: the overrides of its runs but the seed, and `reasons` for those that other cells lack.

    An exception none of whose overrides is left, since the budget has others, gives no reason.
    """

    row: str
    column: str
    overrides: Lines
    seeds: tuple[int, ...]
    reasons: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.row}/{self.column}" if self.column else self.row

    def label(self, seed: int) -> str:
        """The cell and a seed as part of the name of a run directory."""
        return re.sub(r"[^\w.+-]+", "_", f"{self.row}-{self.column}-seed{seed}").replace("--", "-").strip("_-")[:80]

    def lines(self, seed: int) -> Lines:
        return (*self.overrides, f"seed={seed}")


def cells(experiment: Experiment, budget: str, wanted: Sequence[str] = (), seeds: Sequence[int] = ()) -> list[Cell]:
    """The cells in the order of the file.

    wanted: names or patterns of rows, columns or `row/column`; () for all cells
    seeds: some of the seeds; () for all

    Raises UserError for a pattern that fits nothing, and for a seed that the budget lacks.
    """
    chosen = experiment.budget(budget)
    rows, columns = _rows(experiment, chosen.rows), _among(experiment.columns, chosen.columns)
    every = [made for row in rows for column in columns if (made := _cell(experiment, budget, row, column))]
    for pattern in wanted:
        if not any(_fits(pattern, cell) for cell in every):
            names = [*rows, *columns]
            example = f"--cells {every[0].name.replace(' ', '_')}" if every else None
            near = nearest(pattern, [*names, *words(names), *(cell.name for cell in every)])
            raise UserError(sentence(f"--cells {pattern}", "no such cell", near=near, accepted=names, example=example))
    known = [str(seed) for seed in chosen.seeds or experiment.seeds]
    if unknown := [str(seed) for seed in seeds if str(seed) not in known]:
        example = f"--seeds {known[0]}"
        raise UserError(sentence(f"--seeds {unknown[0]}", "no such seed", accepted=known, example=example))
    some = [cell for cell in every if not wanted or any(_fits(pattern, cell) for pattern in wanted)]
    return [replace(cell, seeds=tuple(s for s in cell.seeds if not seeds or s in seeds)) for cell in some]


def skipped(experiment: Experiment, budget: str) -> dict[tuple[str, str], str]:
    """(row, column) -> reason, for the cells that are left out at this budget."""
    every = (*experiment.exceptions, *experiment.budget(budget).exceptions)
    there = {(cell.row, cell.column) for cell in cells(experiment, budget)}
    return {
        place: next(
            (e.reason for e in every if e.skip and experiment.concerned(e, *place)), f"not part of the budget {budget}"
        )
        for place in product(experiment.rows, experiment.columns)
        if place not in there
    }


def _cell(experiment: Experiment, budget: str, row: str, column: str) -> Cell | None:
    chosen = experiment.budget(budget)
    concerned = lambda exception: experiment.concerned(exception, row, column)  # noqa: E731
    special, own = (list(filter(concerned, part.exceptions)) for part in (experiment, chosen))
    if any(exception.skip for exception in (*special, *own)):
        return None
    lines = [*experiment.overrides, *experiment.rows[row], *experiment.columns[column]]
    lines += [line for exception in special for line in exception.overrides]
    lines += [*chosen.overrides, *(line for exception in own for line in exception.overrides)]
    lines += experiment.twins.full if experiment.twins and row in experiment.twin_of else ()
    overrides = merged(lines)
    reasons = tuple(e.reason for e in (*special, *own) if not e.overrides or {*e.overrides} & {*overrides})
    return Cell(row, column, overrides, chosen.seeds or experiment.seeds, reasons)


def merged(lines: Sequence[str]) -> Lines:
    """The last override of every key, at the place of the first one."""
    return tuple({line.lstrip("+~").partition("=")[0]: line for line in lines}.values())


def _rows(experiment: Experiment, patterns: Sequence[str] | None) -> list[str]:
    """The rows that fit one of the patterns, and the twins of these."""
    fit = _among(experiment.rows, patterns)
    return [row for row in experiment.rows if row in fit or experiment.twin_of.get(row) in fit]


def _among(names: Iterable[str], patterns: Sequence[str] | None) -> list[str]:
    """The names that fit one of the patterns; all names without patterns."""
    return [name for name in names if patterns is None or any(_matches(pattern, name) for pattern in patterns)]


def _fits(pattern: str, cell: Cell) -> bool:
    row, slash, column = pattern.partition("/")
    matches = _matches(row, cell.row), _matches(column if slash else row, cell.column)
    return all(matches) if slash else any(matches)


def _matches(pattern: str, name: str) -> bool:
    """Whether a name fits a pattern. A word of a crossed name is enough; `_` stands for a space."""
    return any(fnmatch(text, pattern) for text in (name, name.replace(" ", "_"), *name.split()))
