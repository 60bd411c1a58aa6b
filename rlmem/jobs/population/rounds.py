"""The rounds of a population: agents train, are compared two by two, and one may copy the weights of the other."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.stats import ttest_ind_from_stats

from rlmem.config.messages import shell
from rlmem.core.command import stopping_politely
from rlmem.core.errors import Fault
from rlmem.core.seeding import Streams
from rlmem.jobs.population.member import SLICE, AgentProgress, Ask, Member, in_this_process, on_ray
from rlmem.jobs.population.spec import History, Population, name, read
from rlmem.record import rundir
from rlmem.record.recorder import Progress
from rlmem.run.stored import stored_config


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


@dataclass(frozen=True)
class Comparison:
    """Mean returns of an agent and another one, the p-value of their difference, and whether the agent copies."""

    mean: float | None
    other_mean: float | None
    p: float | None
    copies: bool


def partners(seed: int, number: int, agents: int) -> list[int]:
    """For each agent another one, uniformly at random, as a function of the seed and the round `number` alone."""
    rng = np.random.default_rng(Streams(seed).int(f"population/round/{number}"))
    drawn = rng.integers(0, agents - 1, agents)
    return [int(other + (other >= agent)) for agent, other in enumerate(drawn)]


def compare(own: Sequence[float], other: Sequence[float], level: float) -> Comparison:
    """Whether an agent with returns `own` copies one with returns `other`.

    It does if the other's mean is larger and p < level, where p is that of Welch's t-test (unequal variances, two
    sides; Welch 1947, https://doi.org/10.1093/biomet/34.1-2.28). With fewer than two returns on a side there is no p.
    """
    mean, other_mean = (float(np.mean(returns)) if len(returns) else None for returns in (own, other))
    if mean is None or other_mean is None or min(len(own), len(other)) < 2:
        return Comparison(mean, other_mean, None, copies=False)
    p = welch(own, other)
    return Comparison(mean, other_mean, p, copies=other_mean > mean and p < level)


def welch(a: Sequence[float], b: Sequence[float]) -> float:
    """The p-value of `scipy.stats.ttest_ind(a, b, equal_var=False)`; its limit where neither sample varies."""
    if np.ptp(a) == 0 and np.ptp(b) == 0:
        return float(a[0] == b[0])
    (m, s, n), (k, t, l) = ((np.mean(x), np.std(x, ddof=1), len(x)) for x in (a, b))
    return float(ttest_ind_from_stats(m, s, n, k, t, l, equal_var=False).pvalue)


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

    def _train(self, standing: dict[int, AgentProgress], progress: Progress) -> None:
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

    def _round(self, standing: dict[int, AgentProgress], progress: Progress) -> None:
        """Compare every agent with another, copy weights, save, and write the rows that make the round count."""
        spec, number = self.population.spec, len(self.history.rounds)
        target = spec.target(number)
        chosen = dict(enumerate(partners(self.population.seed, number, spec.agents)))
        returns = self.ask(Member.last_returns, dict.fromkeys(standing, (target,)))
        comparisons = {agent: compare(returns[agent], returns[chosen[agent]], spec.level) for agent in standing}
        copying = {agent: chosen[agent] for agent in standing if comparisons[agent].copies and not standing[agent].done}
        weights = self.ask(Member.weights, dict.fromkeys(set(copying.values()), (target,)))
        endings = {agent: (target, number + 1, weights.get(copying.get(agent, -1))) for agent in standing}
        steps = self.ask(Member.end_round, endings)
        rows, copies = [], []
        for agent, other in chosen.items():
            one, other_episodes = comparisons[agent], standing[other].episodes
            mine = {"round": number + 1, "agent": agent, "episodes": standing[agent].episodes, "step": steps[agent]}
            theirs = {"other": other, "other_episodes": other_episodes, "other_mean": one.other_mean}
            rows.append({**mine, "mean": one.mean, **theirs, "p": one.p, "copied": agent in copying})
            if agent in copying:
                copies.append(f"agent {agent} copies {other} ({one.mean:.3f} < {one.other_mean:.3f}, p {one.p:.1g})")
        self.history.append(rows)
        progress.say(f"round {number + 1}, {target:,} episodes each: {', '.join(copies) or 'nobody copies'}")

    def _conclude(self, standing: Mapping[int, AgentProgress]) -> str:
        scores = {agent: one.greedy for agent, one in standing.items() if one.greedy is not None}
        best = max(scores, key=lambda agent: scores[agent])
        lines = [f"done: {len(self.history.rounds)} rounds, {self.history.copies} copies"]
        if not self.history.rounds:
            ready = f"{self.population.spec.ready:,} episodes (--ready)"
            lines.append(f"  nobody was compared: total_steps ended before all had {ready}")
        returns = ", ".join(f"{score:.3f}" for score in scores.values())
        lines.append(f"  greedy return    {returns} (best: {name(best)})")
        return "\n".join([*lines, f"  evaluate         rlmem eval {shell(self.folder / name(best))}"])
