"""The sections of an experiment file, and what its rows, columns, seeds and expectations may be written as."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from math import prod
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, InstanceOf, model_validator

from rlmem.evidence.expect import Expected, parse_all
from rlmem.evidence.statistics import POCOCK

Lines = tuple[str, ...]

MOST = 10_000
"""Runs of an experiment at most, and so many rows, columns and seeds."""


def _axis(value: Any) -> Any:
    """Name -> overrides, or none for null; a list [{a: x, b: y}, {c: z}] is crossed: {"a c": x + z, "b c": y + z}."""
    if isinstance(value, list) and all(isinstance(part, Mapping) for part in value):
        _require_few(prod(map(len, value)))
        points = list(product(*(part.items() for part in value)))
        value = {" ".join(name for name, _ in p): [line for _, lines in p for line in lines or ()] for p in points}
    return {str(name): lines or [] for name, lines in value.items()} if isinstance(value, Mapping) else value


def _require_few(number: int) -> None:
    if number > MOST:
        raise ValueError(f"{number:,} are too many; expected at most {MOST:,}")


def _seeds(value: Any) -> Any:
    """n as the seeds 0 to n - 1; a list as it is."""
    _require_few(value if type(value) is int else 0)
    return list(range(value)) if type(value) is int else value


Axis = Annotated[dict[str, Lines], BeforeValidator(_axis)]
Seeds = Annotated[tuple[int, ...], BeforeValidator(_seeds), Field(min_length=1)]
Expectations = Annotated[tuple[InstanceOf[Expected], ...], BeforeValidator(parse_all)]


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Exceptional(Part):
    """Overrides for some cells only, or the cells to leave out (`skip`), with the reason."""

    row: str | None = None
    column: str | None = None
    overrides: Lines = ()
    skip: bool = False
    reason: str

    def concerns(self, row: str, column: str) -> bool:
        """Whether this applies to a cell. One word of a crossed name is enough: `ffm` fits the row `ffm tape`."""
        sides = ((self.row, row), (self.column, column))
        return all(wanted in (None, name, *name.split()) for wanted, name in sides)


class Budget(Part):
    """How much of an experiment is run. Keys that are not given are those of the experiment.

    run, metric, expect, overrides, seeds, exceptions: as in an experiment
    files: path of a file that the runs read -> the arguments of `rlmem` that make it if it is missing; a path without
        a suffix is a run, from which files after it are made, with a command that also continues it
    rows, columns: the only rows and columns that are run
    options: options of a measurement or of populations
    looks: how often the verdict may be looked at while seeds are added; more than once, its level is Pocock's
    note: what this budget changes beside length, and why
    explained: a paragraph on what came out of the shipped results, and why
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
    looks: Annotated[int, Field(ge=1, le=len(POCOCK))] = 1
    note: str | None = None
    explained: str | None = None


class Published(Part):
    """Which of the published numbers belong to this item.

    paper, item, metric: select the numbers; without a metric, numbers of all metrics
    rows, columns: our names -> the paper's; a name that is not given is the same there
    scale: our numbers times this are on the paper's scale
    """

    paper: str
    item: str
    metric: str | None = None
    rows: dict[str, str] = Field(default_factory=dict)
    columns: dict[str, str] = Field(default_factory=dict)
    scale: float = 1.0


class Peer(Part):
    """The measured learning curves of another library, which are a row beside ours.

    file: curves as `rlmem.evidence.published` reads them; a relative path begins in the experiment's folder
    columns: our names -> `game_algorithm` of the file; a name that is not given is the same there, if it has it
    """

    file: Path
    columns: dict[str, str] = Field(default_factory=dict)


class Twins(Part):
    """Every row once more with all of the state in view, as the row `ROW full`; written as a name, `memoryless` alone.

    memoryless: the row without memory
    full: the overrides that make a game its fully observed twin
    """

    memoryless: str
    full: Lines = ("env.observe=full",)

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, value: Any) -> Any:
        return {"memoryless": value} if isinstance(value, str) else value

    @staticmethod
    def name(row: str) -> str:
        """The name of a row's twin."""
        return f"{row} full"


class Leaderboard(Part):
    """What makes the rows of an item a ranking: every column's returns on one scale, and what its runs cost.

    bounds: column -> the returns that score 0 and 1: of the best known play without memory, and of the best play. What
        lies outside counts as 0 or 1
    beside: the row that every other one is compared with
    cost: the metric of a run's cost
    second: a further metric on the scale of the bounds, whose ranking stands beside
    """

    bounds: dict[str, tuple[float, float]]
    beside: str
    cost: str = "last time/cpu"
    second: str | None = None


class AnalysisSection(Part):
    """An analysis that `rlmem analyze` makes of every finished run."""

    what: str
    options: dict[str, Any] = Field(default_factory=dict)
