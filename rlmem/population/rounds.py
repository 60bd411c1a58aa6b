"""From a command to a trained population: its directory, its rounds, and where its agents run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from rlmem.config.compose import Config, load
from rlmem.config.messages import shell
from rlmem.errors import Fault, UserError
from rlmem.population.cluster import SLICE, on_ray
from rlmem.population.history import History, RoundRow
from rlmem.population.member import Ask, Member, Standing, in_this_process
from rlmem.population.rule import compare, partners
from rlmem.population.spec import Population, PopulationSpec, holds_population, name, populate, read
from rlmem.record import rundir
from rlmem.record.checkpoint import step_of
from rlmem.record.recorder import Progress
from rlmem.run.assemble import assemble
from rlmem.run.stored import AGENT_PREFIX, checkpoints, require_resumable, stored_config
from rlmem.system.signals import stopping_politely


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
    shapes = [_shapes(config) for config in configs]
    for agent, (own, found) in enumerate(zip(population.own, shapes, strict=True)):
        if found != shapes[0]:
            what = f"its agent is made otherwise than that of {name(0)}, so weights cannot be copied"
            raise UserError(f"{name(agent)} ({' '.join(own)}): {what}; e.g. --vary algo.lr=1e-4,1e-3")
    return configs


def _require_fit(configs: Sequence[Config]) -> None:
    """Raise UserError for settings that a run may have, but not an agent of a population."""
    problems = []
    if any(config.settings.checkpoint.keep < 2 for config in configs):
        what = "a round that is interrupted goes back to the checkpoint before"
        problems.append(f"checkpoint.keep=1: {what}; expected 2 or more; e.g. checkpoint.keep=2")
    if any(config.settings.evaluation.stop_at is not None for config in configs):
        problems.append(
            "evaluation.stop_at: a population ends when all agents have ended; e.g. evaluation.stop_at=null"
        )
    what = "every agent of a population acts and learns in one process; --ray gives each its own"
    for key, most in (("trainer.devices", 1), ("algo.actors", 0)):
        group, _, option = key.partition(".")
        if (number := max(config.values[group].get(option, most) for config in configs)) > most:
            problems.append(f"{key}={number}: {what}; e.g. {key}={most}")
    if problems:
        raise UserError(*problems)


def _shapes(config: Config) -> dict[str, Any]:
    parts = assemble(config)
    parts.env.close()
    return {key: tensor.shape for key, tensor in parts.agent.state_dict().items()}


def _require_same(stored: PopulationSpec, given: PopulationSpec, folder: Path) -> None:
    """Raise UserError with every difference of two specifications."""
    goes_on = f"`rlmem population {shell(folder)}` goes on with it; e.g. --dir {shell(folder)}_2"
    problems = [
        f"{field.name}: {folder} has {_as_text(was)}, not {_as_text(now)}; {goes_on}"
        for field in fields(PopulationSpec)
        if (was := getattr(stored, field.name)) != (now := getattr(given, field.name))
    ]
    if problems:
        raise UserError(*problems)


def _as_text(value: Any) -> str:
    return " ".join(value) or "nothing" if isinstance(value, tuple) else str(value)


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


def train(folder: Path, ray: bool = False, gpus: float = 0.0, trust: bool = False) -> None:
    """Begin or continue training the population in `folder` to its end.

    ray: whether each agent has a process of its own, on Ray; numbers stay the same on equal machines
    gpus: GPUs that each agent reserves on Ray
    trust: accept configurations that another user wrote or edited (`stored_config`)

    Raises UserError, Fault, and Stopped after a signal, with everything saved.
    """
    population = read(folder)
    agents = population.spec.agents
    for agent in range(agents):  # the processes that train them do not check again
        stored_config(folder / name(agent), (), trust, f"rlmem population {shell(folder)}")
    with rundir.lock(folder):
        history = History(folder, agents)
        history.cut()
        try:
            with on_ray(folder, agents, gpus) if ray else in_this_process(folder, agents) as ask:
                Rounds(folder, population, history, ask, SLICE if ray else 0.0).run()
        except Fault as error:
            raise Fault(f"{error}; go on with    rlmem population {shell(folder)}", error.traceback) from error


@dataclass
class Rounds:
    """The rounds of a population: all agents train until each has a number of episodes, then they are compared.

    In a round every agent is compared and copied as it was when the round began, so results do not depend on the order
    of the agents or on their speed. Between checks of their progress and of signals (`stop`), agents train for `slice`
    seconds.
    """

    folder: Path
    population: Population
    history: History
    ask: Ask
    slice: float
    stop: BaseException | None = None

    def run(self) -> None:
        """Train to the end; after a signal, raise `stop` once everything is saved."""
        standing = self.ask(Member.standing, dict.fromkeys(range(self.population.spec.agents), ()))
        total = sum(one.total_steps for one in standing.values())
        begin = sum(one.steps for one in standing.values())
        with Progress(total, self.folder / "log.txt", begin) as progress, stopping_politely(self):
            done = len(self.history.rounds)
            progress.say(f"{self.folder}: {len(standing)} agents, {begin:,} of {total:,} steps, {done} rounds so far")
            self._train(standing, progress)
            while not all(one.done for one in standing.values()):
                self._round(standing, progress)
                self._train(standing, progress)
            progress.say(self._conclude(standing))

    def _train(self, standing: dict[int, Standing], progress: Progress) -> None:
        """Train until every agent has the episodes of the next round, or has spent its budget."""
        target = self.population.spec.target(len(self.history.rounds))
        while left := [agent for agent, one in standing.items() if one.episodes < target and not one.done]:
            if self.stop is not None:
                self.ask(Member.save, dict.fromkeys(standing, ()))
                progress.say(f"stopped; everything is saved; go on with    rlmem population {shell(self.folder)}")
                raise self.stop
            standing |= self.ask(Member.train, dict.fromkeys(left, (target, self.slice)))
            recent = [one.recent for one in standing.values() if one.recent is not None]
            progress.update(sum(one.steps for one in standing.values()), max(recent, default=None), {})

    def _round(self, standing: dict[int, Standing], progress: Progress) -> None:
        """Compare every agent with another, copy weights, save, and write the rows that make the round count."""
        spec, number = self.population.spec, len(self.history.rounds)
        target = spec.target(number)
        chosen = dict(enumerate(partners(self.population.seed, number, spec.agents)))
        returns = self.ask(Member.last_returns, dict.fromkeys(standing, (target,)))
        found = {agent: compare(returns[agent], returns[chosen[agent]], spec.level) for agent in standing}
        copying = {agent: chosen[agent] for agent in standing if found[agent].copies and not standing[agent].done}
        weights = self.ask(Member.weights, dict.fromkeys(set(copying.values()), (target,)))
        endings = {agent: (target, number + 1, weights.get(copying.get(agent, -1))) for agent in standing}
        steps = self.ask(Member.end_round, endings)
        self.history.append(
            [
                RoundRow(
                    round=number + 1,
                    agent=agent,
                    episodes=standing[agent].episodes,
                    step=steps[agent],
                    mean=found[agent].mean,
                    other=chosen[agent],
                    other_episodes=standing[chosen[agent]].episodes,
                    other_mean=found[agent].other_mean,
                    p=found[agent].p,
                    copied=agent in copying,
                )
                for agent in standing
            ]
        )
        copies = [
            f"agent {agent} copies {other} ({one.mean:.3f} < {one.other_mean:.3f}, p {one.p:.1g})"
            for agent, other in copying.items()
            for one in [found[agent]]
        ]
        progress.say(f"round {number + 1}, {target:,} episodes each: {', '.join(copies) or 'nobody copies'}")

    def _conclude(self, standing: Mapping[int, Standing]) -> str:
        scores = {agent: one.greedy for agent, one in standing.items() if one.greedy is not None}
        best = max(scores, key=lambda agent: scores[agent])
        lines = [f"done: {len(self.history.rounds)} rounds, {self.history.copies} copies"]
        if not self.history.rounds:
            ready = f"{self.population.spec.ready:,} episodes (--ready)"
            lines.append(f"  nobody was compared: total_steps ended before all had {ready}")
        returns = ", ".join(f"{score:.3f}" for score in scores.values())
        lines.append(f"  greedy return    {returns} (best: {name(best)})")
        return "\n".join([*lines, f"  evaluate         rlmem eval {shell(self.folder / name(best))}"])
