"""The specification of a population and the overrides of its agents, kept in DIR/population.yaml."""

import json
from dataclasses import asdict, astuple, dataclass, fields
from itertools import chain
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from rlmem.config import plainyaml
from rlmem.config.compose import load
from rlmem.config.messages import sentence, shell
from rlmem.config.targets import locate
from rlmem.errors import UserError
from rlmem.record import rundir
from rlmem.run.stored import AGENT_PREFIX, POPULATION_FILE
from rlmem.seeding import Streams
from rlmem.sweep.axes import Axis, axes
from rlmem.sweep.spec import SweepSpec

EXAMPLE = "rlmem population memory=gru env=repeat_first --agents 4 --ready 3000 --vary algo.lr=1e-4,1e-3"


@dataclass(frozen=True)
class PopulationSpec:
    """The specification of a population.

    overrides: `key=value` of every agent
    vary: `key=a,b` or `key=interval(a,b)` for the keys in which agents differ
    agents: how many there are
    ready: episodes of each agent before the first round
    window: newest episodes whose returns are compared
    every: episodes of each agent between two rounds
    level: the p-value below which a difference counts
    """

    overrides: tuple[str, ...]
    vary: tuple[str, ...]
    agents: int = 9
    ready: int = 30_000
    window: int = 3_000
    every: int = 3_000
    level: float = 0.05

    def target(self, number: int) -> int:
        """Episodes that every agent has at round `number`, counted from 0."""
        return self.ready + number * self.every


@dataclass(frozen=True)
class Population:
    """A specification, with what was drawn from the root `seed` at the beginning: every agent's own overrides."""

    spec: PopulationSpec
    seed: int
    own: tuple[tuple[str, ...], ...]

    def write(self, folder: Path) -> None:
        content = json.loads(json.dumps({**asdict(self.spec), "seed": self.seed, "own": self.own}))  # tuples as lists
        rundir.write_atomically(folder / POPULATION_FILE, yaml.safe_dump(content, sort_keys=False))


def name(agent: int) -> str:
    """The name of an agent and of its run directory."""
    return f"{AGENT_PREFIX}{agent}"


def default_folder(spec: PopulationSpec) -> Path:
    """runs/population-<memory>-<algo>-<env>-s<seed>: the same for the same command."""
    config = load(spec.overrides)
    choices = "-".join(str(config.choices[group]) for group in ("memory", "algo", "env"))
    return Path("runs") / f"population-{choices}-s{config.settings.seed}"


def holds_population(folder: Path) -> bool:
    return (folder / POPULATION_FILE).is_file()


def read(folder: Path) -> Population:
    """The population in `folder`. Raises UserError if there is none, or if it is damaged."""
    if not holds_population(folder):
        what = f"holds no population (no {POPULATION_FILE} in it)"
        raise UserError(f"{folder}: {what}; e.g. {EXAMPLE} --dir {shell(folder)}")
    try:
        content = plainyaml.read(folder / POPULATION_FILE)
        asked: dict[str, Any] = {field.name: content[field.name] for field in fields(PopulationSpec)}
        asked |= {key: tuple(asked[key]) for key in ("overrides", "vary")}
        found = Population(PopulationSpec(**asked), content["seed"], tuple(map(tuple, content["own"])))
        *lists, agents, ready, window, every, level = astuple(found.spec)
        lines = [line for own in (*lists, *found.own) for line in own]
        whole = all(isinstance(number, int) and number >= 0 for number in (agents, ready, window, every, found.seed))
        if not (whole and agents == len(found.own) > 0 and isinstance(level, int | float)):
            raise ValueError("not what was written")
        if not all(isinstance(line, str) for line in lines):
            raise ValueError("not what was written")
        return found
    except Exception as error:  # a file that holds anything can break the reader in any way
        reason = " ".join(str(error).split())[:100]
        raise UserError(f"{folder / POPULATION_FILE}: is damaged ({reason}); restore it") from error


def populate(spec: PopulationSpec) -> Population:
    """Draw the seeds and hyperparameters of the agents. Raises UserError.

    Each number has a stream of its own, by key and agent, so that adding a key or agent changes no other number. The
    values of a list are assigned in turn.
    """
    config = load(spec.overrides)
    varied = axes(SweepSpec((*spec.overrides, *spec.vary), direction="maximize"))[len(spec.overrides) :]
    for line, axis in zip(spec.vary, varied, strict=True):
        if not axis.varies:
            raise UserError(sentence(f"--vary {line}", "expected a list of values or an interval", example=EXAMPLE))
    if not getattr(locate(config.values["algo"]["_target_"]), "learns_by_acting", True):
        what = f"algo={config.choices['algo']}: has no training episodes, by which agents are compared"
        raise UserError(f"{what}; e.g. rlmem sweep for several agents")
    seed, own = config.settings.seed, []
    for agent in range(spec.agents):
        first = f"seed={Streams(seed).int(f'population/seed/{agent}')}"
        own.append((first, *chain.from_iterable(_lines_of(axis, seed, agent) for axis in varied)))
    return Population(spec, seed, tuple(own))


def _lines_of(axis: Axis, seed: int, agent: int) -> tuple[str, ...]:
    """The overrides that an agent takes from an axis: those of a value in turn, or of a number that is drawn."""
    numbers = axis.numbers
    if numbers is None or numbers.step is not None:
        return axis.points[agent % len(axis.points)]
    key = axis.points[0][0].partition("=")[0]
    u = np.random.default_rng(Streams(seed).int(f"population/{key}/{agent}")).random()
    low, high = numbers.low, numbers.high
    whole = isinstance(low, int) and isinstance(high, int)
    top = high + 1 if whole else high
    drawn = exp(log(low) + u * (log(top) - log(low))) if numbers.log else low + u * (top - low)
    return (f"{key}={int(drawn) if whole else drawn!r}",)
