"""One agent of a population: an ordinary run that stops where rounds do."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import torch
from rich.console import Console
from torch import Tensor
from torch.utils._pytree import tree_map

from rlmem.errors import Fault, UserError
from rlmem.loops.base import Loop
from rlmem.population.spec import History, name, read
from rlmem.record import rundir
from rlmem.record.checkpoint import State
from rlmem.record.loggers import make_loggers
from rlmem.record.progress import Progress
from rlmem.record.recorder import START, Recorder, read_jsonl
from rlmem.run.assemble import assemble
from rlmem.run.hardware import learning_threads
from rlmem.run.make_loop import make_loop
from rlmem.run.resume import unfit, warm_start
from rlmem.run.stored import checkpoints, fitting, stored_config
from rlmem.run.summary import summary
from rlmem.system.failures import named

ROUND = "population.round"
"""In the experiment that every checkpoint of an agent keeps: how many rounds it has behind it."""

Weights = dict[str, Any]


@dataclass(frozen=True)
class Standing:
    """How far an agent is. recent: mean return of its newest episodes;  greedy: of its evaluation at the end"""

    steps: int
    total_steps: int
    episodes: int
    recent: float | None
    done: bool
    greedy: float | None


class Member:
    """Agent `number` of the population in `folder`, which goes on where the rounds so far left it, or later.

    Whatever is asked of it begins with training until it has so many `episodes`, or has spent its budget. A process
    that dies may therefore be replaced at any time, and be asked the same again. Everything is a function of the
    configuration, the seed and the weights that were copied.
    """

    def __init__(self, folder: Path, number: int):
        spec, self.name, self.run_dir = read(folder).spec, name(number), folder / name(number)
        rounds = History(folder, spec.agents).rounds
        self.episodes = self.position = 0
        self.returns: deque[float] = deque(maxlen=spec.window)
        with ExitStack() as stack, self._blamed():
            stack.enter_context(rundir.lock(self.run_dir))
            step = rounds[-1][number]["step"] if rounds else 0
            self.loop = stack.enter_context(self._opened(len(rounds), step))
            self.loop.experiment[ROUND] = len(rounds)
            self._read()
            self.stack = stack.pop_all()

    @contextmanager
    def _opened(self, rounds: int, step: int) -> Iterator[Loop]:
        config = stored_config(self.run_dir, trust=True)  # `rounds.train` has asked whose it is
        values = config.values
        torch.set_num_threads(learning_threads(config.settings))
        parts, restored = assemble(config), self._saved(rounds, step)
        quiet = Console(quiet=True, force_terminal=False)
        begin = restored["step"] if restored else 0
        with (
            closing(parts.env),
            Progress(values["total_steps"], self.run_dir / "log.txt", begin, quiet) as progress,
        ):
            progress.say(summary(config, parts, str(self.run_dir)))
            if restored:
                rundir.describe(self.run_dir, values, config.choices, config.overrides, resumed_at=begin)
            recorder, loop = Recorder(self.run_dir, progress.say), None
            try:
                if warmed := None if restored else warm_start(config, parts):
                    progress.say(warmed)
                loop = make_loop(config, parts, self.run_dir, recorder, progress)
                with fitting(self.run_dir):
                    if restored:
                        loop.load_state_dict(restored)
                        restored.clear()  # a replay in it need not be held twice
                    else:
                        recorder.rewind(START)
                recorder.mirror(make_loggers(values, self.run_dir, progress.say))
                if warmed:
                    loop.save()  # the other run may have gone on when this one is resumed
                yield loop
            finally:
                recorder.close(failed=loop is None or not loop.done)

    def _saved(self, rounds: int, step: int) -> State:
        """The newest checkpoint after so many rounds, {} before the first. What is newer is of no more use.

        step: environment steps at the end of the last of these rounds
        """
        kept = checkpoints(self.run_dir)

        def no_use(state: State) -> str | None:
            if state["experiment"].get(ROUND, 0) > rounds:
                return f"round {rounds + 1} did not end, after which {self.name} was saved"
            if state["step"] < step:
                return f"{self.name} has no intact checkpoint after round {rounds}"
            return unfit(self.run_dir, state)

        try:
            state = kept.load(no_use)[1]
        except FileNotFoundError as error:
            if rounds:
                what = f"no intact checkpoint of step {step} or later, where round {rounds} left it"
                raise UserError(f"{self.run_dir}: {what}; restore its files or start a new population") from error
            state = {}
        kept.drop_after(state["step"] if state else -1)
        return state

    def train(self, episodes: int, seconds: float = float("inf")) -> Standing:
        """Train until there are so many episodes, or for about so long: at least for one turn of the loop."""
        began = monotonic()
        with self._blamed(), named(lambda: self.loop.collector.steps):
            while self.episodes < episodes and not self.loop.done:
                self.loop.turn()
                self._read()
                if monotonic() - began >= seconds:
                    break
        return self.standing()

    def standing(self) -> Standing:
        loop, greedy = self.loop, self.loop.last_evaluation.get("greedy", {}).get("return_mean")
        recent = sum(loop.recent) / len(loop.recent) if loop.recent else None
        steps = loop.collector.steps
        return Standing(steps, loop.total_steps, self.episodes, recent, loop.done, greedy if loop.done else None)

    def last_returns(self, episodes: int) -> list[float]:
        """Returns of the newest episodes, as many as are compared."""
        self.train(episodes)
        return list(self.returns)

    def weights(self, episodes: int) -> Weights:
        """A copy, on the CPU, of the agent's weights and of what belongs to them (`Algorithm.learnt`)."""
        self.train(episodes)
        found: Weights = {"agent": self.loop.agent.state_dict()} | self.loop.algo.learnt()
        return tree_map(lambda leaf: leaf.detach().cpu().clone() if isinstance(leaf, Tensor) else leaf, found)

    def end_round(self, episodes: int, rounds: int, weights: Weights | None) -> int:
        """Take over `weights`, if there are any, and save, with so many rounds behind it; environment steps so far.

        An agent that has spent its budget stays as it is. Hyperparameters, the optimiser's moments, the replay and the
        states of memories and environments are never touched.
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
        with self._blamed():
            self.loop.save()

    def close(self) -> None:
        self.stack.close()

    def _read(self) -> None:
        """The episodes that the record has gained."""
        path = self.run_dir / "episodes.jsonl"
        rows = read_jsonl(path, self.position)
        self.position = path.stat().st_size
        self.episodes += len(rows)
        self.returns.extend(row["return"] for row in rows)

    @contextmanager
    def _blamed(self) -> Iterator[None]:
        """A fault says whose it is."""
        try:
            yield
        except Fault as error:
            raise Fault(f"{self.name}: {error}", error.traceback) from error
