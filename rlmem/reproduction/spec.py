"""An experiment file: the runs that a table or figure of a paper consists of, and the results that it claims."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, Field, PrivateAttr, ValidationError

from rlmem.config.catalog import yaml_problem
from rlmem.config.messages import got, nearest, sentence
from rlmem.config.paths import experiments_dir
from rlmem.errors import UserError
from rlmem.reproduction.expect import Expectation, Untestable
from rlmem.reproduction.parts import (
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

BUDGETS = ("smoke", "laptop", "paper")
BudgetName = Literal["smoke", "laptop", "paper"]


class Experiment(Part):
    """One table or figure.

    title, claim, source: the first line of the file, what the paper claims, and where it does so
    runs: another item whose runs are used, such as the figure that a table is read off; keys that this file does not
        give, in its budgets too, are taken from there
    run: `train` for training runs, `population` for populations, or the name of a measurement in
        `rlmem.reproduction.measure`, which makes all cells at once
    metric, higher: the number in a cell, see `rlmem.reproduction.metrics`, and whether more of it is better
    overrides, exceptions: overrides of every run, and of single cells
    rows, columns: name -> overrides; a list of such mappings is crossed
    seeds: a list of seeds, or how many there are
    budgets: name -> how much of the experiment is run
    expect: what must hold for the claim to hold, see `rlmem.reproduction.expect`
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


def read(file: Path, own: bool = False, whole: bool = False) -> Experiment:
    """The experiment in a file, whose first comment line is its title. Raises UserError with every problem.

    own: the file is not shipped, so its text is kept with its results
    whole: the file holds such a text, which needs no other file
    """
    title, content = _content(file)
    if (other := content.get("runs")) and not whole:
        content = _upon(_content(_beside(file, str(other)))[1], content)
    try:
        experiment = Experiment.model_validate({"title": title, **content})
    except ValidationError as error:
        raise UserError(*(_sentence(file, problem) for problem in error.errors())) from error
    experiment = _with_twins(file, experiment)
    if problems := list(_inconsistent(experiment)):
        raise UserError(*(f"{file}: {problem}" for problem in problems))
    if own:
        experiment._text = f"# {title}\n{yaml.safe_dump(content, sort_keys=False, allow_unicode=True)}"
    return experiment


def _with_twins(file: Path, experiment: Experiment) -> Experiment:
    """The experiment with the rows on fully observed twins behind its own, if it asks for them. Raises UserError."""
    rows, twins = experiment.rows, experiment.twins
    if twins is None:
        return experiment
    if twins.memoryless not in rows:
        near = nearest(twins.memoryless, rows)
        raise UserError(sentence(f"{file}: twins: {twins.memoryless}", "no such row", near=near, accepted=rows))
    if taken := next((row for row in rows if Twins.name(row) in rows), None):
        what = "is the name of a twin; give the row another name"
        raise UserError(sentence(f"{file}: rows: {Twins.name(taken)}", what))
    return experiment.model_copy(update={"rows": {**rows, **{Twins.name(row): rows[row] for row in rows}}})


def _content(file: Path) -> tuple[str, dict[str, Any]]:
    """The title, from the first comment line, and the keys, in which the files of peers have whole paths."""
    try:
        text = file.read_text(encoding="utf-8")
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise UserError(yaml_problem(error, file)) from error
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{file}: cannot be read ({' '.join(str(error).split())}); expected an experiment") from error
    if not isinstance(content, dict):
        raise UserError(sentence(str(file), "no mapping", accepted=Experiment.model_fields))
    peers = content.get("peers")
    for peer in peers.values() if isinstance(peers, dict) else ():
        if isinstance(peer, dict) and isinstance(peer.get("file"), str):
            peer["file"] = str(file.resolve().parent / peer["file"])
    return text.partition("\n")[0].removeprefix("#").strip(), content


def _upon(base: dict[str, Any], content: dict[str, Any]) -> dict[str, Any]:
    """`base` updated with the keys of `content`, and each of its budgets likewise."""
    shared, own = base.get("budgets"), content.get("budgets")
    if not isinstance(shared, Mapping) or not isinstance(own, Mapping):
        return base | content
    both = {k: shared[k] | v for k, v in own.items() if isinstance(v, dict) and isinstance(shared.get(k), dict)}
    return base | content | {"budgets": {**shared, **own, **both}}


def _beside(file: Path, item: str) -> Path:
    """The file of another item. Raises UserError if there is none."""
    folder, shipped = file.resolve().parent, experiments_dir()
    roots = [folder.parent, shipped] if shipped else [folder.parent]
    path = next((path for root in roots if (path := root / f"{item}.yaml").is_file()), None)
    if path is None:
        known = [other.relative_to(folder.parent).with_suffix("").as_posix() for other in folder.glob("*.yaml")]
        raise UserError(sentence(f"{file}: runs: {item}", "no such item", near=nearest(item, known), accepted=known))
    return path


def _sentence(file: Path, problem: Mapping[str, Any]) -> str:
    where, last = ".".join(map(str, problem["loc"])), str(problem["loc"][-1])
    if problem["type"] == "extra_forbidden":
        parts: dict[str, type[BaseModel]] = {"budgets": Budget, "exceptions": Exceptional, "published": Published}
        parts |= {"peers": Peer, "analyses": Analysis, "twins": Twins, "leaderboard": Leaderboard}
        accepted = list(parts.get(str(problem["loc"][0]), Experiment).model_fields)
        return sentence(f"{file}: {where}", "unknown key", near=nearest(last, accepted), accepted=accepted)
    message = problem["msg"].removeprefix("Value error, ")
    given = "" if problem["type"] == "missing" else f"; got {got(problem['input'])}"
    return f"{file}: {where}: {message[:1].lower()}{message[1:]}{given}"


def _inconsistent(experiment: Experiment) -> Iterator[str]:
    """A sentence for every name of a row or column that is not defined, and for every budget that is missing."""
    budgets = experiment.budgets.items()
    special = [("exceptions", e) for e in experiment.exceptions]
    special += [(f"budgets.{name}.exceptions", e) for name, budget in budgets for e in budget.exceptions]
    every = [*experiment.expect, *(e for _, budget in budgets for e in budget.expect or ())]
    expected = [e for e in every if isinstance(e, Expectation)]
    known = experiment.also if experiment.is_trained else ()
    for metric in dict.fromkeys(e.metric for e in expected if e.metric and e.metric not in known):
        yield sentence("expect", f"`{metric}` is not in `also`", near=nearest(metric, known), accepted=known)
    for axis, names in (("row", list(experiment.rows)), ("column", list(experiment.columns))):
        parts = [*names, *words(names)]  # a word of a crossed name is enough in some places
        used: list[tuple[str, str | None, list[str]]]
        used = [(where, getattr(exception, axis), parts) for where, exception in special]
        used += [(f"budgets.{k}.{axis}s", name, parts) for k, b in budgets for name in getattr(b, f"{axis}s") or ()]
        beside = [*names, *experiment.peers] if axis == "row" else names
        used += [("expect", name, beside) for e in expected for name in (e.rows if axis == "row" else e.columns)]
        used += [(f"published.{axis}s", name, names) for name in getattr(experiment.published, f"{axis}s", ())]
        if axis == "column":
            mapped: dict[str, Mapping[str, object]]
            mapped = {f"peers.{name}.columns": peer.columns for name, peer in experiment.peers.items()}
            mapped |= {"task": experiment.task} if isinstance(experiment.task, dict) else {}
            mapped |= {"leaderboard.bounds": experiment.leaderboard.bounds} if experiment.leaderboard else {}
            used += [(where, name, names) for where, mapping in mapped.items() for name in mapping]
        for where, name, accepted in used:
            if name is not None and name not in accepted:
                yield sentence(where, f"`{name}` is no name here", near=nearest(name, accepted), accepted=accepted)
    yield from _unranked(experiment)
    yield from (f"peers: `{name}` is a row already" for name in experiment.peers if name in experiment.rows)
    lacking = [name for name in BUDGETS if name not in experiment.budgets]
    yield from (f"budgets: {name} is missing; expected {', '.join(BUDGETS)}" for name in lacking)


def _unranked(experiment: Experiment) -> Iterator[str]:
    """A sentence for everything that a leaderboard lacks."""
    board = experiment.leaderboard
    if board is None:
        return
    if board.beside not in experiment.rows:
        near = nearest(board.beside, experiment.rows)
        yield sentence("leaderboard.beside", f"`{board.beside}` is no row", near=near, accepted=experiment.rows)
    if lacking := [name for name in experiment.columns if name not in board.bounds]:
        yield f"leaderboard.bounds: {', '.join(lacking)} is missing; expected the returns that score 0 and 1"
    if wrong := [name for name, (low, high) in board.bounds.items() if not low < high]:
        yield f"leaderboard.bounds.{wrong[0]}: expected [the return that scores 0, a larger one that scores 1]"
    for key, metric in (("cost", board.cost), ("second", board.second)):
        if metric is not None and metric not in experiment.also:
            yield sentence(f"leaderboard.{key}", f"`{metric}` is not in `also`", accepted=experiment.also)


def words(names: Sequence[str]) -> list[str]:
    """The parts of crossed names."""
    return [word for name in names for word in name.split()]
