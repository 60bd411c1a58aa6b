"""What a population was asked for, and the overrides of its agents; kept in DIR/population.yaml."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from rlmem.config.compose import Config, load
from rlmem.config.messages import sentence
from rlmem.config.targets import locate
from rlmem.errors import Fault, UserError
from rlmem.record import rundir
from rlmem.record.recorder import read_jsonl
from rlmem.run.stored import AGENT_PREFIX, POPULATION_FILE
from rlmem.seeding import Streams
from rlmem.sweep.axes import Axis, Numbers, axes
from rlmem.sweep.spec import SweepSpec
from rlmem.system.strictjson import dumps

EXAMPLE = "rlmem population memory=gru env=repeat_first --agents 4 --ready 3000 --vary algo.lr=1e-4,1e-3"


@dataclass(frozen=True)
class PopulationSpec:
    """A population, as asked for.

    overrides: `key=value` of every agent;  vary: `key=a,b` or `key=interval(a,b)`, in which they differ
    ready: episodes of each agent before the first round;  every: between rounds
    window: newest episodes whose returns are compared;  level: p-value below which a difference counts
    """

    overrides: tuple[str, ...]
    vary: tuple[str, ...]
    agents: int = 9
    ready: int = 30_000
    window: int = 3_000
    every: int = 3_000
    level: float = 0.05

    def target(self, number: int) -> int:
        """Episodes that every agent has at round `number`, which are counted from 0."""
        return self.ready + number * self.every


@dataclass(frozen=True)
class Population:
    """A specification, with what followed from it when the population began: its root seed, and for every agent the
    overrides that are its own."""

    spec: PopulationSpec
    seed: int
    own: tuple[tuple[str, ...], ...]

    def configs(self) -> list[Config]:
        """The checked configuration of every agent. Raises UserError."""
        shared = [line for line in self.spec.overrides if not line.startswith("seed=")]
        return [load([*shared, *lines]) for lines in self.own]

    def write(self, folder: Path) -> None:
        tidy = asdict(self.spec) | {"overrides": list(self.spec.overrides), "vary": list(self.spec.vary)}
        content = {**tidy, "seed": self.seed, "own": [list(lines) for lines in self.own]}
        rundir.replace(folder / POPULATION_FILE, yaml.safe_dump(content, sort_keys=False))


def name(agent: int) -> str:
    """The run directory of an agent, in that of its population."""
    return f"{AGENT_PREFIX}{agent}"


def default_folder(spec: PopulationSpec) -> Path:
    """runs/population-<memory>-<algo>-<env>-s<seed>: the same for the same command."""
    config = load(spec.overrides)
    parts = [*(str(config.choices[group]) for group in ("memory", "algo", "env")), f"s{config.values['seed']}"]
    return Path("runs") / "-".join(["population", *parts])


def holds_population(folder: Path) -> bool:
    return (folder / POPULATION_FILE).is_file()


def read(folder: Path) -> Population:
    """The population in `folder`. Raises UserError if there is none, or not readably."""
    if not holds_population(folder):
        raise UserError(f"{folder}: holds no population (no {POPULATION_FILE} in it); e.g. {EXAMPLE} --dir {folder}")
    try:
        content = yaml.safe_load((folder / POPULATION_FILE).read_text(encoding="utf-8"))
        asked: dict[str, Any] = {field.name: content[field.name] for field in fields(PopulationSpec)}
        asked |= {key: tuple(asked[key]) for key in ("overrides", "vary")}
        found = Population(PopulationSpec(**asked), content["seed"], tuple(map(tuple, content["own"])))
        spec = found.spec
        numbers = (spec.agents, spec.ready, spec.window, spec.every, spec.level, found.seed)
        lines = [*spec.overrides, *spec.vary, *(line for own in found.own for line in own)]
        if not (all(isinstance(n, int | float) for n in numbers) and all(isinstance(line, str) for line in lines)):
            raise ValueError("not what was written")
        return found
    except Exception as error:  # a file that holds anything can break the reader in any way
        reason = " ".join(str(error).split())[:100]
        raise UserError(f"{folder / POPULATION_FILE}: is damaged ({reason}); restore it") from error


def rows_of(path: Path) -> list[dict[str, Any]]:
    """The rows of a file, none if it is not there. Raises UserError if it is damaged."""
    try:
        return read_jsonl(path) if path.exists() else []
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: is damaged ({error}); restore it") from error


class History:
    """DIR/population.jsonl: a row for every agent in every round. A round has happened when it has all its rows."""

    def __init__(self, folder: Path, agents: int):
        self.path = folder / "population.jsonl"
        rows = rows_of(self.path)
        if not all(row.keys() >= {"round", "agent", "step", "other", "copied"} for row in rows):
            raise UserError(f"{self.path}: is damaged (rows lack their keys); restore it")
        self.rounds = [rows[begin : begin + agents] for begin in range(0, len(rows) - agents + 1, agents)]

    def cut(self) -> None:
        """Drop what was written of a round that did not happen."""
        if self.path.exists():
            rundir.replace(self.path, "".join(map(_lines, self.rounds)))

    def append(self, rows: Sequence[dict[str, Any]]) -> None:
        """Write down a round, durably. Raises Fault if that fails."""
        try:
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(_lines(rows))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise Fault(f"{self.path} cannot be written ({error.strerror})") from error
        self.rounds.append(list(rows))


def _lines(rows: Sequence[dict[str, Any]]) -> str:
    return "".join(dumps(row) + "\n" for row in rows)


def populate(spec: PopulationSpec) -> Population:
    """Draw the seeds and hyperparameters of the agents. Raises UserError.

    Each number has a stream of its own, by key and agent: another key or agent changes no other's numbers. The values
    of a list are dealt out in turn.
    """
    config, found = load(spec.overrides), _varied(spec)
    seed, target = config.values["seed"], locate(config.values["algo"]["_target_"])
    if not getattr(target, "acts", True):
        what = f"algo={config.choices['algo']}: has no episodes, by which agents are compared"
        raise UserError(f"{what}; e.g. rlmem sweep for several agents")
    own = []
    for agent in range(spec.agents):
        lines = [f"seed={Streams(seed).int(f'population/seed/{agent}')}"]
        for axis in found:
            lines += _of(axis, seed, agent)
        own.append(tuple(lines))
    return Population(spec, seed, tuple(own))


def _varied(spec: PopulationSpec) -> list[Axis]:
    found = axes(SweepSpec((*spec.overrides, *spec.vary), direction="maximize"))[len(spec.overrides) :]
    for line, axis in zip(spec.vary, found, strict=True):
        if not axis.varies:
            raise UserError(sentence(f"--vary {line}", "expected a list of values or an interval", example=EXAMPLE))
    return found


def _of(axis: Axis, seed: int, agent: int) -> tuple[str, ...]:
    """What an agent has of an axis."""
    numbers = axis.numbers
    if numbers is None or numbers.step is not None:
        return axis.points[agent % len(axis.points)]
    key = axis.points[0][0].partition("=")[0]
    u = np.random.default_rng(Streams(seed).int(f"population/{key}/{agent}")).random()
    return (f"{key}={_draw(numbers, u)!r}",)


def _draw(numbers: Numbers, u: float) -> float:
    """The number of an interval at `u` in [0, 1), of its logarithm if asked; whole if both ends are."""
    low, high = numbers.low, numbers.high
    whole = isinstance(low, int) and isinstance(high, int)
    top = high + 1 if whole else high
    drawn = exp(log(low) + u * (log(top) - log(low))) if numbers.log else low + u * (top - low)
    return int(drawn) if whole else drawn
