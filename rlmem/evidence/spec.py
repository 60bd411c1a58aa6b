"""An experiment file: the runs that a table or figure of a paper consists of, and the results that it claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PrivateAttr

from rlmem.config.messages import nearest, sentence
from rlmem.errors import UserError
from rlmem.evidence.expect import Expectation, Untestable, parse_all
from rlmem.evidence.parts import (
    Analysis,
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
    named,
)
from rlmem.evidence.registration import Registration, Registrations, Version

BUDGETS = ("smoke", "laptop", "paper")
BudgetName = Literal["smoke", "laptop", "paper"]


class Experiment(Part):
    """One table or figure.

    title, claim, source: the first line of the file, what the paper claims, and where it does so
    runs: another item whose runs are used, such as the figure that a table is read off; keys that this file does not
        give, in its budgets too, are taken from there
    run: `train` for training runs, `population` for populations, or the name of a measurement in
        `rlmem.evidence.measure`, which makes all cells at once
    metric, higher: the number in a cell, see `rlmem.evidence.metrics`, and whether more of it is better
    overrides, exceptions: overrides of every run, and of single cells
    rows, columns: name -> overrides; a list of such mappings is crossed
    seeds: a list of seeds, or how many there are
    budgets: name -> how much of the experiment is run
    expect: what must hold for the claim to hold, see `rlmem.evidence.expect`
    published: which published numbers stand beside ours
    peers: name of a row -> the measured curves of another library
    task: whose reference normalises the metrics that ask for it, of all columns or by column; where none is given, that
        of the run's environment
    twins: the row without memory, beside which every row is also run on the game's fully observed twin
    leaderboard: what ranks the rows by all columns together
    analyses: the analyses of every finished run
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
    twins: Annotated[Twins | None, BeforeValidator(named)] = None
    leaderboard: Leaderboard | None = None
    analyses: tuple[Analysis, ...] = ()
    also: tuple[str, ...] = ()
    mean: bool = True
    alone: bool = False
    options: dict[str, Any] = Field(default_factory=dict)
    _text: str | None = PrivateAttr(None)
    _own_rows: dict[str, Lines] = PrivateAttr(default_factory=dict)
    _registered: Registrations = PrivateAttr(default_factory=dict)

    @property
    def text(self) -> str | None:
        """The whole file of an experiment that is not shipped; None for a shipped one."""
        return self._text

    @property
    def is_trained(self) -> bool:
        """Whether agents are trained; a measurement trains none."""
        return self.run in ("train", "population")

    @property
    def is_exact(self) -> bool:
        """Whether every run gives the same numbers, because they follow from equations alone."""
        return self.run == "impulse"

    @property
    def scale(self) -> float:
        """The factor that puts our numbers on the scale of the paper's table."""
        return self.published.scale if self.published else 1.0

    def with_text(self, text: str) -> Experiment:
        """The experiment of a file that is not shipped, with all that the file says."""
        made = self.model_copy()
        made._text = text
        return made

    @property
    def registered(self) -> Registrations:
        """The registered expectations, by budget."""
        return self._registered

    def with_registered(self, registered: Registrations) -> Experiment:
        """The experiment with registered expectations."""
        made = self.model_copy()
        made._registered = {budget: known for budget, known in registered.items() if known != Registration()}
        return made

    @property
    def version(self) -> Version:
        """The expectations as they are now; of an experiment `at` a budget, those of the budget."""
        return Version("", self.metric, self.higher, tuple(" ".join(e.text.split()) for e in self.expectations))

    def expecting(self, version: Version, budget: str) -> Experiment:
        """The experiment with another version of its expectations at a budget."""
        chosen: dict[str, Any] = {"metric": version.metric, "expect": parse_all(list(version.expect))}
        own: dict[Any, Budget] = {budget: self.budget(budget).model_copy(update=chosen)}
        update = {"higher": version.higher, "budgets": {**self.budgets, **own}}
        return self.model_copy(update=update)

    @property
    def own_rows(self) -> dict[str, Lines]:
        """The rows that a user has added to those of the file, by `with_rows`."""
        return self._own_rows

    def with_rows(self, rows: Mapping[str, Lines]) -> Experiment:
        """The experiment with rows of the user's own behind its own, in all its budgets. Raises UserError."""
        if not rows:
            return self
        taken = [*self.rows, *self.columns, *self.peers]
        if known := next((row for row in rows if row in taken and row not in self.own_rows), None):
            what, example = "is a name of the file already", f"--rows my_{known}=memory=gru"
            raise UserError(sentence(f"--rows {known}", what, example=example))
        added = {name: tuple(lines) for name, lines in rows.items()}
        twins = {Twins.name(name): lines for name, lines in added.items()} if self.twins else {}
        limited = {
            name: budget.model_copy(update={"rows": tuple(dict.fromkeys([*budget.rows, *added]))})
            for name, budget in self.budgets.items()
            if budget.rows is not None
        }
        update = {"rows": {**self.rows, **added, **twins}, "budgets": {**self.budgets, **limited}}
        made = self.model_copy(update=update)
        made._own_rows = {**self._own_rows, **added}
        return made

    @property
    def twin_of(self) -> dict[str, str]:
        """The name of a row on the fully observed twin -> the row."""
        every = self.rows if self.twins else ()
        return {Twins.name(row): row for row in every if Twins.name(row) in self.rows}

    def concerned(self, exception: Exceptional, row: str, column: str) -> bool:
        """Whether an exception applies to a cell; one of a row applies to its twin, too."""
        return exception.concerns(row, column) or exception.concerns(self.twin_of.get(row, row), column)

    def task_of(self, column: str) -> str | None:
        """The task whose reference normalises the metrics of a column; None: that of a run's environment."""
        return self.task.get(column) if isinstance(self.task, dict) else self.task

    def at(self, budget: str) -> Experiment:
        """The experiment with the keys of a budget in place of its own. Raises UserError if it has no such budget."""
        own = self.budget(budget)
        changed = {key: value for key in ("run", "metric") if (value := getattr(own, key)) is not None}
        if own.expect is not None:
            clauses = {expected.clause for expected in own.expect}
            changed["expect"] = (*own.expect, *(u for u in self.untestable if u.clause not in clauses))
        return self.model_copy(update=changed)

    @property
    def expectations(self) -> tuple[Expectation, ...]:
        return tuple(expected for expected in self.expect if isinstance(expected, Expectation))

    @property
    def untestable(self) -> tuple[Untestable, ...]:
        return tuple(expected for expected in self.expect if isinstance(expected, Untestable))

    def budget(self, name: str) -> Budget:
        """The budget of this name. Raises UserError if the experiment has none."""
        if name not in self.budgets:
            where = f"--budget {name}"
            raise UserError(sentence(where, "no such budget", near=nearest(name, self.budgets), accepted=self.budgets))
        return self.budgets[name]


def words(names: Sequence[str]) -> list[str]:
    """The parts of crossed names."""
    return [word for name in names for word in name.split()]
