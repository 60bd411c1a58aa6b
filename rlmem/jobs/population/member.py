"""One agent of a population: an ordinary run that pauses for rounds."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import torch
from rich.console import Console
from torch import Tensor
from torch.utils._pytree import tree_map

from rlmem.acting.actors import answer, attached, missing, worker
from rlmem.acting.workers import closing
from rlmem.core.errors import Fault, UserError, as_faults
from rlmem.core.received import json_rows
from rlmem.jobs.population.spec import History, name, read
from rlmem.loops.base import Loop
from rlmem.record import rundir
from rlmem.record.checkpoint import State
from rlmem.record.loggers import make_loggers
from rlmem.record.recorder import Progress, Recorder
from rlmem.run.assemble import assemble, learning_threads
from rlmem.run.resume import Start, begin, unfit, warm_start
from rlmem.run.stored import checkpoints, fitting, stored_config
from rlmem.run.summary import summary
from rlmem.run.train import make_loop

ROUND = "population.round"
"""Key of the experiment in an agent's checkpoints: the number of rounds that it has completed."""

SLICE = 10.0
"""Seconds that agents train between checks of their progress and of signals."""

RESTARTS = 3
"""How many times the process of an agent is replaced when it dies."""

Weights = dict[str, Any]
"""What an agent has learnt: `agent`, its network, and what its algorithm adds (`Algorithm.learnt`)."""


@dataclass(frozen=True)
class AgentProgress:
    """An agent's progress. `recent`: mean return of its newest episodes; `greedy`: of the evaluation at the end."""

    steps: int
    total_steps: int
    episodes: int
    recent: float | None
    done: bool
    greedy: float | None


class Member:
    """An agent of a population, which continues after the rounds so far.

    Every method that takes `episodes` first trains until the agent has so many, or has spent its budget. So a process
    that dies can be replaced at any time, and the call repeated. Everything is a function of the configuration, the
    seed and the weights that were copied.
    """

    def __init__(self, folder: Path, number: int):
        spec, self.name, self.run_dir = read(folder).spec, name(number), folder / name(number)
        rounds = History(folder, spec.agents).rounds
        self.episodes = self.position = 0
        self.returns: deque[float] = deque(maxlen=spec.window)
        with ExitStack() as stack, self._named():
            stack.enter_context(rundir.lock(self.run_dir))
            step = rounds[-1][number]["step"] if rounds else 0
            self.loop = stack.enter_context(self._opened(len(rounds), step))
            self.loop.experiment[ROUND] = len(rounds)
            self._read_episodes()
            self.stack = stack.pop_all()

    @contextmanager
    def _opened(self, rounds: int, step: int) -> Iterator[Loop]:
        config = stored_config(self.run_dir, trust=True)  # `rounds.train` has checked whose it is
        torch.set_num_threads(learning_threads(config.settings))
        parts, start = assemble(config), self._start(rounds, step)
        config = parts.config
        console, log = Console(quiet=True, force_terminal=False), self.run_dir / "log.txt"
        with closing(parts.env), Progress(config.settings.total_steps, log, start.step, console) as progress:
            progress.say(summary(parts, str(self.run_dir)))
            if start.state is not None:
                rundir.describe(self.run_dir, config, resumed_at=start.step)
            recorder, loop = Recorder(self.run_dir, progress.say), None
            try:
                warmed = warm_start(parts) if start.state is None else None
                if warmed:
                    progress.say(warmed)
                loop = make_loop(parts, self.run_dir, recorder, progress)
                with fitting(self.run_dir):
                    begin(loop, start)
                recorder.attach(make_loggers(config.values, self.run_dir, progress.say))
                if warmed:
                    loop.save()  # the other run may have changed when this one is resumed
                yield loop
            finally:
                recorder.close(failed=loop is None or not loop.done)

    def _start(self, rounds: int, step: int) -> Start:
        """Where the agent continues: its newest checkpoint since `step`, the end of the last complete round.

        Checkpoints of a round that did not end are deleted.
        """
        saved = checkpoints(self.run_dir)

        def unusable(state: State) -> str | None:
            if state["experiment"].get(ROUND, 0) > rounds:
                return f"round {rounds + 1} did not end, after which {self.name} was saved"
            if state["step"] < step:
                return f"{self.name} has no intact checkpoint after round {rounds}"
            return unfit(self.run_dir, state)

        try:
            state = saved.load(unusable)[1]
        except FileNotFoundError as error:
            if rounds:
                problem = f"{self.run_dir}: no intact checkpoint of step {step} or later, where round {rounds} left it"
                raise UserError(f"{problem}; restore its files or start a new population") from error
            saved.drop_after(-1)
            return Start()
        saved.drop_after(state["step"])
        return Start(state["step"], state)

    def train(self, episodes: int, seconds: float = float("inf")) -> AgentProgress:
        """Train until the agent has `episodes`, or for about `seconds`, at least for one turn of the loop."""
        began = monotonic()
        with self._named(), as_faults(lambda: self.loop.collector.steps):
            while self.episodes < episodes and not self.loop.done:
                self.loop.turn()
                self._read_episodes()
                if monotonic() - began >= seconds:
                    break
        return self.standing()

    def standing(self) -> AgentProgress:
        loop = self.loop
        recent = sum(loop.recent) / len(loop.recent) if loop.recent else None
        greedy = loop.last_evaluation.get("greedy", {}).get("return_mean") if loop.done else None
        return AgentProgress(loop.collector.steps, loop.total_steps, self.episodes, recent, loop.done, greedy)

    def last_returns(self, episodes: int) -> list[float]:
        """The returns of the newest `window` episodes."""
        self.train(episodes)
        return list(self.returns)

    def weights(self, episodes: int) -> Weights:
        """A copy of the agent's weights on the CPU."""
        self.train(episodes)
        weights: Weights = {"agent": self.loop.agent.state_dict()} | self.loop.algo.learnt()
        return tree_map(lambda leaf: leaf.detach().cpu().clone() if isinstance(leaf, Tensor) else leaf, weights)

    def end_round(self, episodes: int, rounds: int, weights: Weights | None) -> int:
        """Load `weights`, if there are any, and save as after `rounds` rounds; returns the environment steps so far.

        An agent that has spent its budget stays as it is. Hyperparameters, the optimiser's moments, the replay and the
        states of memories and environments never change.
        """
        self.train(episodes)
        loop = self.loop
        if not loop.done:
            if weights is not None:
                loop.agent.load_state_dict(weights["agent"])
                loop.algo.load_learnt(weights)
            loop.experiment[ROUND] = rounds
            self.save()
        return loop.collector.steps

    def save(self) -> None:
        with self._named():
            self.loop.save()

    def close(self) -> None:
        """Close the run; no method may be called afterwards."""
        self.stack.close()

    def _read_episodes(self) -> None:
        """Count the episodes that the record has gained."""
        path = self.run_dir / "episodes.jsonl"
        for row in json_rows(path, self.position):
            self.episodes += 1
            self.returns.append(row["return"])
        self.position = path.stat().st_size

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Put the name of the agent before the text of a fault."""
        try:
            yield
        except Fault as error:
            raise Fault(f"{self.name}: {error}", error.traceback) from error


Ask = Callable[[Callable[..., Any], Mapping[int, tuple[Any, ...]]], dict[int, Any]]
"""Calls a method of Member, such as `Member.train`, for several agents; {agent: arguments} -> {agent: result}."""


@contextmanager
def in_this_process(folder: Path, agents: int) -> Iterator[Ask]:
    """Every agent of the population in `folder` in this process, one after the other."""
    with ExitStack() as stack:
        members = []
        for agent in range(agents):
            members.append(Member(folder, agent))
            stack.enter_context(members[-1].stack)
        yield lambda method, arguments: {agent: method(members[agent], *values) for agent, values in arguments.items()}


@contextmanager
def on_ray(folder: Path, agents: int, gpus: float) -> Iterator[Ask]:
    """Every agent of the population in `folder` on Ray: the cluster of RAY_ADDRESS, or one for this command alone.

    Each takes a core, and reserves `gpus` GPUs. The machines must share the directory. Raises UserError if Ray is
    not installed, or has too few cores or GPUs.
    """
    if problem := missing():
        raise UserError(f"--ray: {problem}")
    with attached(None, agents, key="--agents", needs_gpus=gpus > 0) as ray:
        if gpus * agents > (there := ray.cluster_resources().get("GPU", 0)):
            reason = f"{agents} agents need {gpus * agents:g}, and Ray has {there:g}"
            raise UserError(f"--gpus {gpus:g}: {reason}; e.g. --gpus {there / agents:g}")
        resources = {"max_restarts": RESTARTS, "max_task_retries": RESTARTS, "num_gpus": gpus}
        actors = [worker(ray, partial(Member, folder.absolute(), agent), **resources) for agent in range(agents)]

        def ask(method: Callable[..., Any], arguments: Mapping[int, tuple[Any, ...]]) -> dict[int, Any]:
            asked = {agent: actors[agent].call.remote(method, *values) for agent, values in arguments.items()}
            results = {}
            for agent, reference in asked.items():
                try:
                    results[agent] = answer(ray, reference)
                except ray.exceptions.RayActorError as error:
                    raise Fault(f"{name(agent)}: its process on Ray died {RESTARTS + 1} times") from error
            return results

        try:
            yield ask
        finally:
            with suppress(Exception):
                ray.get([actor.close.remote() for actor in actors], timeout=SLICE)
            for actor in actors:
                ray.kill(actor)
