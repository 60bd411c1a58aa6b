"""An experiment file, the runs that a table or figure of a paper consists of, and what of it a budget runs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from itertools import product
from typing import Any, Literal

from pydantic import Field, PrivateAttr

from rlmem.config.messages import mistake, nearest
from rlmem.evidence.expect import Expectation, Expected, Untestable, parse_all
from rlmem.evidence.registration import Registration, Version
from rlmem.evidence.sections import (
    AnalysisSection,
    Axis,
    Budget,
    Exceptional,
    Expectations,
    Leaderboard,
    Lines,
    Part,
    Peer,
    Published,
    Seeds,
    Twins,
)

BUDGETS = ("smoke", "laptop", "paper")
BudgetName = Literal["smoke", "laptop", "paper"]
TRAINED = ("train", "population")
"""The ways to run an item that train agents."""


class Experiment(Part):
    """One table or figure, as its file describes it.

    title, claim, source: the first line of the file, what the paper claims, and where it does so
    runs: another item whose runs are used, such as the figure that a table is read off; keys that this file does not
        give, in its budgets too, are taken from there
    run: `train` for training runs, `population` for populations, or the name of a measurement in
        `rlmem.evidence.runner`, which makes all cells at once
    metric, higher: the number in a cell, see `rlmem.evidence.metrics`, and whether more of it is better
    overrides, exceptions: overrides of every run, and of single cells
    rows, columns: name -> overrides; a list of such mappings is crossed
    seeds: a list of seeds, or how many there are
    budgets: name -> how much of the experiment is run
    expect: what must hold for the claim to hold, see `rlmem.evidence.expect`
    published: which published numbers stand beside ours
    peers: name of a row -> the measured curves of another library
    task: whose reference normalises the metrics that ask for it, for all columns, per column, or per word of a
        column's name; where none is given, that of the run's environment
    twins: the row without memory, beside which every row is also run on the game's fully observed twin
    leaderboard: what ranks the rows by all columns together
    analyses: the analyses of every finished run
    draw: the function of `rlmem.evidence.drawings` that makes a picture and a short table of the numbers
    also: further metrics that are shown beside the first
    mean: whether the mean over the columns of a row is meaningful
    alone: whether runs must not share the machine, because their time is measured
    options: options of a measurement or of populations
    """

    title: str
    runs: str | None = None
    claim: str
    source: str
    run: str = "train"
    metric: str
    higher: bool = True
    overrides: Lines = ()
    rows: Axis
    columns: Axis = Field({"": ()})
    seeds: Seeds = (0, 1, 2)
    exceptions: tuple[Exceptional, ...] = ()
    budgets: dict[BudgetName, Budget]
    expect: Expectations = ()
    published: Published | None = None
    peers: dict[str, Peer] = Field(default_factory=dict)
    task: str | dict[str, str] | None = None
    twins: Twins | None = None
    leaderboard: Leaderboard | None = None
    analyses: tuple[AnalysisSection, ...] = ()
    draw: Literal["heat_maps"] | None = None
    also: tuple[str, ...] = ()
    mean: bool = True
    alone: bool = False
    options: dict[str, Any] = Field(default_factory=dict)
    _name: str = PrivateAttr("")
    _text: str | None = PrivateAttr(None)
    _registered: Mapping[str, Registration] = PrivateAttr(default_factory=dict)

    @property
    def name(self) -> str:
        """`<paper>/<item>`."""
        return self._name

    @property
    def text(self) -> str | None:
        """The whole file of an experiment that is not shipped; None for a shipped one."""
        return self._text

    @property
    def registered(self) -> Mapping[str, Registration]:
        """Budget -> the expectations that are registered."""
        return self._registered

    def known_as(
        self, name: str, text: str | None = None, registered: Mapping[str, Registration] | None = None
    ) -> Experiment:
        """The experiment with its name, its text and its registered expectations."""
        experiment = self.model_copy()
        experiment._name, experiment._text, experiment._registered = name, text, registered or {}
        return experiment

    def task_of(self, column: str) -> str | None:
        """The task whose reference normalises the metrics of a column; None: that of a run's environment."""
        if isinstance(self.task, dict):
            return next((self.task[name] for name in (column, *column.split()) if name in self.task), None)
        return self.task

    def budget(self, name: str) -> Budget:
        """The budget of this name. Raises UserError if the experiment has none."""
        if name not in self.budgets:
            raise mistake(f"--budget {name}", "no such budget", near=nearest(name, self.budgets), accepted=self.budgets)
        return self.budgets[name]

    def at(self, budget: str) -> Planned:
        """What is run and expected at a budget. Raises UserError for an unknown one."""
        chosen, expect = self.budget(budget), self.expect
        if chosen.expect is not None:
            clauses = {expected.clause for expected in chosen.expect}
            untestable = (e for e in self.expect if isinstance(e, Untestable) and e.clause not in clauses)
            expect = (*chosen.expect, *untestable)
        registration = self.registered.get(budget, Registration())
        run, metric = chosen.run or self.run, chosen.metric or self.metric
        return Planned(self, budget, run, metric, self.higher, expect, chosen.looks, registration)


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


@dataclass(frozen=True)
class Planned:
    """An experiment at a budget. `Experiment.at` makes it.

    run, metric, higher, expect, looks: as in an experiment, with what the budget replaces
    registration: the expectations that are registered for the budget, and the date of the first counted run
    own_rows: the rows that a user has added to those of the file
    """

    experiment: Experiment
    budget: str
    run: str
    metric: str
    higher: bool
    expect: tuple[Expected, ...]
    looks: int
    registration: Registration
    own_rows: Mapping[str, Lines] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """`<paper>/<item>`."""
        return self.experiment.name

    @property
    def chosen(self) -> Budget:
        """The section of the budget in the file."""
        return self.experiment.budget(self.budget)

    @property
    def is_trained(self) -> bool:
        """Whether agents are trained; a measurement trains none."""
        return self.run in TRAINED

    @property
    def scale(self) -> float:
        """The factor that puts our numbers on the scale of the paper's table."""
        return self.experiment.published.scale if self.experiment.published else 1.0

    @property
    def rows(self) -> dict[str, Lines]:
        """All rows: those of the file, and the user's with their twins."""
        twins = {Twins.name(row): lines for row, lines in self.own_rows.items()} if self.experiment.twins else {}
        return {**self.experiment.rows, **self.own_rows, **twins}

    @property
    def twin_of(self) -> dict[str, str]:
        """The name of a row on the fully observed twin -> the row."""
        rows = self.rows if self.experiment.twins else {}
        return {Twins.name(row): row for row in rows if Twins.name(row) in rows}

    @property
    def expectations(self) -> tuple[Expectation, ...]:
        return tuple(expected for expected in self.expect if isinstance(expected, Expectation))

    @property
    def untestable(self) -> tuple[Untestable, ...]:
        return tuple(expected for expected in self.expect if isinstance(expected, Untestable))

    @property
    def version(self) -> Version:
        """The expectations as they are now."""
        expected = tuple(" ".join(e.text.split()) for e in self.expectations)
        return Version("", self.metric, self.higher, expected, self.looks)

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of the budget."""
        return self.chosen.seeds or self.experiment.seeds

    @property
    def tests_means(self) -> bool:
        """True if means over the columns of the budget are what the expectations are about.

        Those that the budget takes over from the experiment are about all columns of the budget `paper`.
        """
        budgets = self.chosen, self.experiment.budget("paper")
        own, whole = (_among(self.experiment.columns, budget.columns) for budget in budgets)
        return self.chosen.expect is not None or {*whole} <= {*own}

    @property
    def at_full_scale(self) -> bool:
        """True if runs are as long and as large as the claim has them: at the budget `paper`, or with its settings."""
        keys = ("run", "overrides", "exceptions", "options")
        own, whole = ([getattr(each, key) for key in keys] for each in (self.chosen, self.experiment.budget("paper")))
        return own == whole

    def with_rows(self, rows: Mapping[str, Lines]) -> Planned:
        """The same with rows of the user's own behind those of the file. Raises UserError for names that are there."""
        names = {*self.experiment.rows, *self.experiment.columns, *self.experiment.peers}
        if known := next((row for row in rows if row in names), None):
            problem, example = "is a name of the file already", f"--rows my_{known}=memory=gru"
            raise mistake(f"--rows {known}", problem, example=example)
        return replace(self, own_rows={**self.own_rows, **{name: tuple(lines) for name, lines in rows.items()}})

    def expecting(self, version: Version) -> Planned:
        """The same runs with another version of the expectations."""
        expect = parse_all(list(version.expect))
        return replace(self, metric=version.metric, higher=version.higher, expect=expect, looks=version.looks)

    def cells(self, wanted: Sequence[str] = (), seeds: Sequence[int] = ()) -> list[Cell]:
        """The cells in the order of the file.

        wanted: names or patterns of rows, columns or `row/column`; () for all cells
        seeds: some of the seeds; () for all

        Raises UserError for a pattern that fits nothing, and for a seed that the budget lacks.
        """
        fit = {*_among(self.rows, self.chosen.rows), *self.own_rows}
        rows = [row for row in self.rows if row in fit or self.twin_of.get(row) in fit]
        columns = _among(self.experiment.columns, self.chosen.columns)
        every = [cell for row in rows for column in columns if (cell := self._cell(row, column))]
        for pattern in wanted:
            if not any(_fits(pattern, cell) for cell in every):
                names = [*rows, *columns]
                example = f"--cells {every[0].name.replace(' ', '_')}" if every else None
                near = nearest(pattern, [*names, *words(names), *(cell.name for cell in every)])
                raise mistake(f"--cells {pattern}", "no such cell", near=near, accepted=names, example=example)
        known = [str(seed) for seed in self.seeds]
        if unknown := [str(seed) for seed in seeds if str(seed) not in known]:
            raise mistake(f"--seeds {unknown[0]}", "no such seed", accepted=known, example=f"--seeds {known[0]}")
        some = [cell for cell in every if not wanted or any(_fits(pattern, cell) for pattern in wanted)]
        return [replace(cell, seeds=tuple(s for s in cell.seeds if not seeds or s in seeds)) for cell in some]

    def skipped(self) -> dict[tuple[str, str], str]:
        """(row, column) -> reason, for the cells that are left out at this budget."""
        planned = {(cell.row, cell.column) for cell in self.cells()}
        every, otherwise = (
            (*self.experiment.exceptions, *self.chosen.exceptions),
            f"not part of the budget {self.budget}",
        )
        return {
            place: next((e.reason for e in self._concerning(*place, every) if e.skip), otherwise)
            for place in product(self.rows, self.experiment.columns)
            if place not in planned
        }

    def _concerning(self, row: str, column: str, exceptions: Iterable[Exceptional]) -> list[Exceptional]:
        """Those of the exceptions that apply to a cell; one of a row applies to its twin, too."""
        names = dict.fromkeys((row, self.twin_of.get(row, row)))
        return [e for e in exceptions if any(e.concerns(name, column) for name in names)]

    def _cell(self, row: str, column: str) -> Cell | None:
        special, own = (self._concerning(row, column, part.exceptions) for part in (self.experiment, self.chosen))
        if any(exception.skip for exception in (*special, *own)):
            return None
        experiment = self.experiment
        lines = [*experiment.overrides, *self.rows[row], *experiment.columns[column]]
        lines += [line for exception in special for line in exception.overrides]
        lines += [*self.chosen.overrides, *(line for exception in own for line in exception.overrides)]
        lines += experiment.twins.full if experiment.twins and row in self.twin_of else ()
        # The last override of every key counts, at the place of the first one.
        overrides = tuple({line.lstrip("+~").partition("=")[0]: line for line in lines}.values())
        reasons = tuple(e.reason for e in (*special, *own) if not e.overrides or {*e.overrides} & {*overrides})
        return Cell(row, column, overrides, self.seeds, reasons)


def words(names: Sequence[str]) -> list[str]:
    """The parts of crossed names."""
    return [word for name in names for word in name.split()]


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
