"""A population: its specification (DIR/population.yaml), its rounds so far (population.jsonl), and its agents."""

import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from itertools import chain
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from pydantic import TypeAdapter
from rich.console import Console
from rich.text import Text

from rlmem.config import plainyaml
from rlmem.config.compose import Config, load
from rlmem.config.messages import sentence, shell
from rlmem.config.targets import locate
from rlmem.core.errors import UserError, printable, reading
from rlmem.core.received import dumps, inside, json_rows
from rlmem.core.seeding import Streams
from rlmem.core.types import NonNegativeInt
from rlmem.jobs.spec import Axis, SweepSpec, axes
from rlmem.jobs.status import empty_table, steps_and_return
from rlmem.record import rundir
from rlmem.record.checkpoint import step_of
from rlmem.record.recorder import RecordFile, read_jsonl
from rlmem.run.assemble import assemble
from rlmem.run.stored import AGENT_PREFIX, POPULATION_FILE, checkpoints, require_resumable, stored_config

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
    agents: NonNegativeInt = 9
    ready: NonNegativeInt = 30_000
    window: NonNegativeInt = 3_000
    every: NonNegativeInt = 3_000
    level: float = 0.05

    def target(self, number: int) -> int:
        """Episodes that every agent has at round `number`, counted from 0."""
        return self.ready + number * self.every


@dataclass(frozen=True)
class Population:
    """A specification, with what was drawn from the root `seed` at the beginning: every agent's own overrides."""

    spec: PopulationSpec
    seed: NonNegativeInt
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
        problem = f"holds no population (no {POPULATION_FILE} in it)"
        raise UserError(f"{folder}: {problem}; e.g. {EXAMPLE} --dir {shell(folder)}")
    with reading(folder / POPULATION_FILE):
        content = plainyaml.read(folder / POPULATION_FILE)
        whole = json.dumps({"spec": content, "seed": content["seed"], "own": content["own"]})
        population = TypeAdapter(Population).validate_json(whole, strict=True)
        if not population.spec.agents == len(population.own) > 0:
            raise ValueError("not what was written")
        return population


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
        problem = f"algo={config.choices['algo']}: has no training episodes, by which agents are compared"
        raise UserError(f"{problem}; e.g. rlmem sweep for several agents")
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


def start(spec: PopulationSpec, folder: Path) -> None:
    """Make the population of `spec`, if it is not in `folder` yet. Raises UserError before anything is written."""
    if holds_population(folder):
        _require_same(read(folder).spec, spec, folder)
        return
    if left := [run for run in folder.glob(f"{AGENT_PREFIX}*") if (run / "checkpoints").exists()]:
        raise UserError(f"{folder}: holds runs already, such as {left[0].name}; e.g. --dir {shell(folder)}_2")
    configs = check(population := populate(spec))
    rundir.make(folder)
    with rundir.lock(folder):
        for agent, config in enumerate(configs):
            rundir.make(folder / name(agent))
            rundir.describe(folder / name(agent), config)
        population.write(folder)  # last: it marks a complete directory


def dry_run(spec: PopulationSpec) -> str:
    """The agents of a population that is not started, composed and checked."""
    check(population := populate(spec))
    return "\n".join(f"{name(agent)}: {' '.join(own)}" for agent, own in enumerate(population.own))


def check(population: Population) -> list[Config]:
    """The configuration of every agent. Raises UserError if one is wrong, or could not take over another's weights."""
    shared = [line for line in population.spec.overrides if not line.startswith("seed=")]
    configs = [load([*shared, *own]) for own in population.own]
    _require_fit(configs)
    shapes = []
    for agent, (own, config) in enumerate(zip(population.own, configs, strict=True)):
        parts = assemble(config)
        parts.env.close()
        shapes.append({key: tensor.shape for key, tensor in parts.agent.state_dict().items()})
        if shapes[agent] != shapes[0]:
            problem = f"its agent is made otherwise than that of {name(0)}, so weights cannot be copied"
            raise UserError(f"{name(agent)} ({' '.join(own)}): {problem}; e.g. --vary algo.lr=1e-4,1e-3")
    return configs


def _require_fit(configs: Sequence[Config]) -> None:
    """Raise UserError for settings that a run may have, but not an agent of a population."""
    problems = []
    if any(config.settings.checkpoint.keep < 2 for config in configs):
        problem = "a round that is interrupted goes back to the checkpoint before"
        problems.append(f"checkpoint.keep=1: {problem}; expected 2 or more; e.g. checkpoint.keep=2")
    if any(config.settings.evaluation.stop_at is not None for config in configs):
        problems.append(
            "evaluation.stop_at: a population ends when all agents have ended; e.g. evaluation.stop_at=null"
        )
    problem = "every agent of a population acts and learns in one process; --ray gives each its own"
    for key, most in (("trainer.devices", 1), ("algo.actors", 0)):
        group, _, option = key.partition(".")
        if (number := max(config.values[group].get(option, most) for config in configs)) > most:
            problems.append(f"{key}={number}: {problem}; e.g. {key}={most}")
    if problems:
        raise UserError(*problems)


def _require_same(stored: PopulationSpec, requested: PopulationSpec, folder: Path) -> None:
    """Raise UserError with every difference of two specifications."""
    goes_on = f"`rlmem population {shell(folder)}` goes on with it; e.g. --dir {shell(folder)}_2"
    as_text = lambda value: " ".join(value) or "nothing" if isinstance(value, tuple) else str(value)  # noqa: E731
    there, asked = vars(stored), vars(requested)
    differ = [key for key in there if there[key] != asked[key]]
    if differ:
        lines = (f"{key}: {folder} has {as_text(there[key])}, not {as_text(asked[key])}; {goes_on}" for key in differ)
        raise UserError(*lines)


def change(folder: Path, overrides: Sequence[str], trust: bool = False) -> None:
    """Set other values of RESUMABLE keys, with which every agent continues; `trust` as in `train`. Raises UserError."""
    agents, command = read(folder).spec.agents, f"rlmem population {shell(folder)}"
    example = f"{command} total_steps=2e6"
    require_resumable(overrides, example)
    with rundir.lock(folder):
        changed = []
        for run_dir in (folder / name(agent) for agent in range(agents)):
            config, saved = stored_config(run_dir, overrides, trust, command), checkpoints(run_dir).paths()
            total, step = config.settings.total_steps, step_of(saved[-1]) if saved else 0
            if total < step:
                raise UserError(f"total_steps={total}: {run_dir} has taken {step}; e.g. {example}")
            changed.append((run_dir, config, step))
        _require_fit([config for _, config, _ in changed])
        for run_dir, config, step in changed:
            rundir.describe(run_dir, config, resumed_at=step)


RoundRow = dict[str, Any]
"""One agent at the end of a round: `round` (from 1), `agent`, its `episodes` and environment steps (`step`) so far, the
agent `other` and its `other_episodes`, the mean returns `mean` and `other_mean` that were compared, the p-value `p` of
their difference, and `copied`: whether the agent took over the other's weights."""

INTEGERS = ("round", "agent", "step", "other", "copied")
"""Keys of a row of which the values are integers."""


class History:
    """The complete rounds: those of which all rows are written."""

    def __init__(self, folder: Path, agents: int):
        self.path = folder / "population.jsonl"
        with reading(self.path):
            rows = read_jsonl(self.path) if self.path.exists() else []
            if not all(isinstance(row[key], int) for row in rows for key in INTEGERS):
                raise ValueError("not what was written")
        self.rounds = [rows[begin : begin + agents] for begin in range(0, len(rows) - agents + 1, agents)]

    @property
    def copies(self) -> int:
        return sum(row["copied"] for rows in self.rounds for row in rows)

    def cut(self) -> None:
        """Drop the rows of an incomplete round."""
        if self.path.exists():
            lines = (dumps(row) + "\n" for row in chain.from_iterable(self.rounds))
            rundir.write_atomically(self.path, "".join(lines))

    def append(self, rows: Sequence[RoundRow]) -> None:
        """Write the rows of a round to disk. Raises Fault if that fails."""
        with closing(RecordFile(self.path)) as file:
            file.append(rows)
            file.position()
        self.rounds.append(list(rows))


def print_table(folder: Path) -> None:
    """Print the table of the population in `folder`. Raises UserError if there is none."""
    population = read(folder)
    history = History(folder, population.spec.agents)
    table = empty_table("agent", "steps>", "episodes>", "return>", "copied last", "of its own")
    for agent, own in enumerate(population.own):
        run_dir = inside(folder, name(agent))
        with reading(run_dir / "config.yaml"):
            (steps, score), total = steps_and_return(run_dir), int(rundir.read(run_dir)[0]["total_steps"])
        with reading(path := run_dir / "episodes.jsonl"):
            episodes = sum(1 for _ in json_rows(path)) if path.exists() else 0
        copied = [rows[agent] for rows in history.rounds if rows[agent]["copied"]]
        source = f"{name(copied[-1]['other'])} in round {copied[-1]['round']}" if copied else ""
        score_text = "" if score is None else f"{score:.3f}"
        line = (run_dir.name, f"{steps:,}/{total:,}", f"{episodes:,}", score_text, source, " ".join(own[1:]))
        table.add_row(*(Text(printable(text)) for text in line))
    running = "running" if rundir.is_locked(folder) else "not running"
    Console().print(table, f"{len(history.rounds)} rounds, {history.copies} copies; {running}", highlight=False)
