"""An experiment file: which runs a table or figure of a paper consists of, and what the paper says comes out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, InstanceOf, PrivateAttr, ValidationError

from rlmem.config.messages import got, nearest, sentence
from rlmem.config.paths import experiments_dir
from rlmem.config.yamlfile import yaml_problem
from rlmem.errors import UserError
from rlmem.reproduce.expect import Expectation, parse

Lines = tuple[str, ...]
BUDGETS = ("smoke", "laptop", "paper")
BudgetName = Literal["smoke", "laptop", "paper"]


def _crossed(given: Any) -> Any:
    """[{a: x, b: y}, {c: z}] as {"a c": x + z, "b c": y + z}: a list of mappings is crossed."""
    if not isinstance(given, list) or not all(isinstance(part, Mapping) for part in given):
        return given
    return {
        " ".join(name for name, _ in point): [line for _, lines in point for line in lines or ()]
        for point in product(*(part.items() for part in given))
    }


def _named(given: Any) -> Any:
    """{a: null} as {a: []}: a name that sets nothing."""
    return {str(k): v or [] for k, v in given.items()} if isinstance(given, Mapping) else given


def _seeds(given: Any) -> Any:
    """A number is that many seeds, from 0 on."""
    return list(range(given)) if isinstance(given, int) and not isinstance(given, bool) else given


Axis = Annotated[dict[str, Lines], BeforeValidator(lambda given: _named(_crossed(given)))]
Seeds = Annotated[tuple[int, ...], BeforeValidator(_seeds), Field(min_length=1)]


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Exceptional(Part):
    """Overrides of some cells alone, or their absence (`skip`), with the reason."""

    row: str | None = None
    column: str | None = None
    overrides: Lines = ()
    skip: bool = False
    reason: str

    def concerns(self, row: str, column: str) -> bool:
        """Names may leave words of a crossed name out: `ffm` concerns the row `ffm tape`."""
        fits = lambda wanted, name: wanted is None or wanted == name or wanted in name.split()  # noqa: E731
        return fits(self.row, row) and fits(self.column, column)


def _expectation(given: Any) -> Any:
    return parse(given) if isinstance(given, str) else given


Expectations = tuple[Annotated[InstanceOf[Expectation], BeforeValidator(_expectation)], ...]


class Budget(Part):
    """How much of an experiment is run. rows, columns: those alone; what is not given is the experiment's own.

    files: path -> the arguments of `rlmem` that make what the runs read, where it is not there
    """

    run: str | None = None
    metric: str | None = None
    expect: Expectations | None = None
    files: dict[str, str] = Field(default_factory=dict)
    overrides: Lines = ()
    rows: tuple[str, ...] | None = None
    columns: tuple[str, ...] | None = None
    seeds: Seeds | None = None
    exceptions: tuple[Exceptional, ...] = ()
    options: dict[str, Any] = Field(default_factory=dict)
    """Of what a measurement takes, for experiments that are not trained."""
    note: str | None = None
    """What this budget changes, beside length, and why."""


class Published(Part):
    """Which of the published numbers belong to this item: those of `paper` and `item`, with this metric.

    rows, columns: our names for theirs; a name that is not given is the same there
    scale: ours, times this, is theirs
    """

    paper: str
    item: str
    metric: str | None = None
    rows: dict[str, str] = Field(default_factory=dict)
    columns: dict[str, str] = Field(default_factory=dict)
    scale: float = 1.0


class Analysis(Part):
    """An analysis of every finished run, as `rlmem analyze` makes it."""

    what: str
    options: dict[str, Any] = Field(default_factory=dict)


class Experiment(Part):
    """One table or figure.

    claim, source: what the paper says, and where
    runs: the item whose runs these are, such as those of the figure that a table is read off; what this file does not
        say, also of a budget, is as there
    run: train: a grid of training runs; population: of populations; anything else: a measurement of
        `rlmem.reproduce.measure`, which makes all cells at once
    metric: the number of a cell, `rlmem.reproduce.metrics`; higher: whether more of it is better
    rows, columns: name -> overrides; a list of such mappings is crossed
    expect: what must come out for the claim to hold, `rlmem.reproduce.expect`
    also: further metrics that stand beside it
    mean: whether the mean over the columns of a row says anything
    alone: one run at a time, as their time is what is measured
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
    columns: Axis = {"": ()}
    seeds: Seeds = (0, 1, 2)
    exceptions: tuple[Exceptional, ...] = ()
    budgets: dict[BudgetName, Budget]
    expect: Expectations = ()
    published: Published | None = None
    analyses: tuple[Analysis, ...] = ()
    also: tuple[str, ...] = ()
    mean: bool = True
    alone: bool = False
    options: dict[str, Any] = Field(default_factory=dict)
    _text: str | None = PrivateAttr(None)

    @property
    def text(self) -> str | None:
        """The whole of an experiment that is not shipped, for `read_kept`; None of one that is."""
        return self._text

    @property
    def is_trained(self) -> bool:
        """Whether its numbers differ from seed to seed; a measurement may well be the same every time."""
        return self.run in ("train", "population")

    @property
    def scale(self) -> float:
        """What our numbers are multiplied by to be those of the paper's table."""
        return self.published.scale if self.published else 1.0

    def at(self, budget: str) -> Experiment:
        """The experiment as this budget runs and measures it. Raises UserError if it has no such budget."""
        own = self.budget(budget)
        keys = ("run", "metric", "expect")
        return self.model_copy(update={k: v for k in keys if (v := getattr(own, k)) is not None})

    def budget(self, name: str) -> Budget:
        """Raises UserError if the experiment has no such budget."""
        if name not in self.budgets:
            where = f"--budget {name}"
            raise UserError(sentence(where, "no such budget", near=nearest(name, self.budgets), accepted=self.budgets))
        return self.budgets[name]


def read(file: Path, own: bool = False) -> Experiment:
    """The experiment in a file, whose first comment line is its title. Raises UserError with every problem.

    own: it is not shipped, so that its text has to be kept with its results
    """
    title, content = _content(file)
    if other := content.get("runs"):
        content = _upon(_content(_beside(file, str(other)))[1], content)
    return _validated(file, title, content, own)


def read_kept(file: Path) -> Experiment:
    """The experiment whose `text` was written to a file: nothing of it stands elsewhere. Raises UserError."""
    return _validated(file, *_content(file), own=True)


def _validated(file: Path, title: str, content: dict[str, Any], own: bool) -> Experiment:
    try:
        experiment = Experiment.model_validate({"title": title, **content})
    except ValidationError as error:
        raise UserError(*(_told(file, problem) for problem in error.errors())) from error
    if problems := list(_inconsistent(experiment)):
        raise UserError(*(f"{file}: {problem}" for problem in problems))
    if own:
        experiment._text = f"# {title}\n{yaml.safe_dump(content, sort_keys=False, allow_unicode=True)}"
    return experiment


def _content(file: Path) -> tuple[str, dict[str, Any]]:
    """The first line without `#`, and the keys."""
    try:
        text = file.read_text(encoding="utf-8")
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise UserError(yaml_problem(error, file)) from error
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{file}: cannot be read ({' '.join(str(error).split())}); expected an experiment") from error
    if not isinstance(content, dict):
        raise UserError(sentence(str(file), "no mapping", accepted=Experiment.model_fields))
    return text.partition("\n")[0].removeprefix("#").strip(), content


def _upon(base: dict[str, Any], content: dict[str, Any]) -> dict[str, Any]:
    """The keys of `content`, and of `base` those that it lacks; the same of every budget."""
    shared, own = base.get("budgets"), content.get("budgets")
    if not isinstance(shared, Mapping) or not isinstance(own, Mapping):
        return base | content
    both = {k: shared[k] | v for k, v in own.items() if isinstance(v, dict) and isinstance(shared.get(k), dict)}
    return base | content | {"budgets": {**shared, **own, **both}}


def _beside(file: Path, item: str) -> Path:
    """The file of another item. Raises UserError if there is none."""
    shipped = experiments_dir()
    folder = file.resolve().parent
    roots = [folder.parent, *([shipped] if shipped else [])]
    path = next((root / f"{item}.yaml" for root in roots if (root / f"{item}.yaml").is_file()), None)
    if path is None:
        known = [other.relative_to(folder.parent).with_suffix("").as_posix() for other in folder.glob("*.yaml")]
        raise UserError(sentence(f"{file}: runs: {item}", "no such item", near=nearest(item, known), accepted=known))
    return path


def _told(file: Path, problem: Mapping[str, Any]) -> str:
    where, last = ".".join(map(str, problem["loc"])), str(problem["loc"][-1])
    if problem["type"] == "extra_forbidden":
        models: dict[str, type[BaseModel]] = {"budgets": Budget, "exceptions": Exceptional, "published": Published}
        accepted = list((models | {"analyses": Analysis}).get(str(problem["loc"][0]), Experiment).model_fields)
        return sentence(f"{file}: {where}", "unknown key", near=nearest(last, accepted), accepted=accepted)
    message = problem["msg"].removeprefix("Value error, ")
    return f"{file}: {where}: {message[:1].lower()}{message[1:]}" + (
        "" if problem["type"] == "missing" else f"; got {got(problem['input'])}"
    )


def _inconsistent(experiment: Experiment) -> Sequence[str]:
    """Names that nothing has."""
    rows, columns = list(experiment.rows), list(experiment.columns)
    named: list[tuple[str, str, Sequence[str]]] = []
    exact: list[tuple[str, str, Sequence[str]]] = []
    special = [("exceptions", experiment.exceptions)]
    special += [(f"budgets.{name}.exceptions", budget.exceptions) for name, budget in experiment.budgets.items()]
    for where, exceptions in special:
        named += [(where, exception.row, rows) for exception in exceptions if exception.row]
        named += [(where, exception.column, columns) for exception in exceptions if exception.column]
    for name, budget in experiment.budgets.items():
        named += [(f"budgets.{name}.rows", row, rows) for row in budget.rows or ()]
        named += [(f"budgets.{name}.columns", column, columns) for column in budget.columns or ()]
    every = [*experiment.expect, *(e for budget in experiment.budgets.values() for e in budget.expect or ())]
    for expectation in every:
        exact += [("expect", row, rows) for row in expectation.rows]
        exact += [("expect", column, columns) for column in expectation.on]
    if experiment.published:
        exact += [("published.rows", row, rows) for row in experiment.published.rows]
        exact += [("published.columns", column, columns) for column in experiment.published.columns]
    wrong = [(where, name, names) for where, name, names in named if name not in [*names, *words(names)]]
    wrong += [(where, name, names) for where, name, names in exact if name not in names]
    problems = [
        sentence(where, f"`{name}` is no name here", near=nearest(name, [*names, *words(names)]), accepted=names)
        for where, name, names in wrong
    ]
    missing = [name for name in BUDGETS if name not in experiment.budgets]
    return problems + [f"budgets: {name} is missing; expected {', '.join(BUDGETS)}" for name in missing]


def words(names: Sequence[str]) -> list[str]:
    """The parts of crossed names."""
    return [word for name in names for word in name.split()]
