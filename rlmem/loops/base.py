"""What every training loop does around its updates: record, evaluate, checkpoint, stop."""

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter, process_time
from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from rlmem.acting.collector import Episode
from rlmem.acting.evaluate import Request
from rlmem.acting.workers import closing
from rlmem.agents.actor_critic import ON_POLICY, Agent, Exploration
from rlmem.errors import Fault
from rlmem.loops.notices import Notices
from rlmem.loops.parts import Learner, LoopParts, Results, Source
from rlmem.parallel import alone, largest, of_first, place
from rlmem.system.signals import Stopped

RECENT = 100
"""How many of the newest episodes the shown and logged mean return is over."""
LOGGED = ("return_mean", "length_mean", "success_rate", "unfinished")
"""The numbers of an evaluation that are logged as metrics."""
Iteration = tuple[dict[str, float], list[Episode]]
"""The metrics of an iteration, and the episodes that ended in it."""


@contextmanager
def one_thread() -> Iterator[None]:
    """Run with one thread inside: acting on a few rows is slower with several."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def due(every: int | None, before: int, now: int) -> bool:
    """Whether what happens every `every` environment steps is due; None: it never is."""
    return every is not None and now // every > before // every


@dataclass(kw_only=True)
class Loop(LoopParts, ABC):
    """Trains `agent` with `algo` for exactly `total_steps` environment steps, or until an evaluation reaches `stop_at`.

    A subclass writes `advance`: collect, learn, and return what happened. One call of it is one iteration: one row in
    metrics.jsonl, and whatever is due. `state_dict` taken between calls continues the run exactly.

    exploration: how the agent explores at present, also when an evaluation samples its actions
    best_return: the largest `objective` so far
    cut: whether the last rollout dropped unfinished episodes (`Rollout.cut`), which biases those that ended
    elapsed, learn_time: seconds spent in iterations, and those of them spent on learning
    cpu_time: seconds of the cores that this process used in iterations; NaN where a checkpoint did not know
    completed_steps: environment steps at the end of the last complete iteration
    evaluated: environment steps at the last evaluation
    evaluation_due: whether a stop has put off an evaluation that is due
    stop: an exception, set from outside to end the run; raised once a checkpoint has been saved
    notices: what has been said about learning
    """

    best_metric: ClassVar[str] = "eval/greedy/best"
    """The name of the best `objective` so far in metrics.jsonl."""
    saved: ClassVar[tuple[str, ...]] = ("updates", "last_evaluation", "elapsed", "learn_time")
    """What a checkpoint holds under the same names, beside the agent's state."""

    algo: Learner
    collector: Source
    exploration: Exploration = ON_POLICY
    updates: int = 0
    best_return: float | None = None
    last_evaluation: Results = field(default_factory=dict)
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))
    cut: bool = False
    elapsed: float = 0.0
    learn_time: float = 0.0
    cpu_time: float = 0.0
    completed_steps: int = 0
    evaluation_due: bool = False
    evaluated: int = 0
    stop: BaseException | None = None
    notices: Notices = field(init=False)

    def __post_init__(self) -> None:
        self.notices = Notices(lambda line: self.progress.say(f"step {self.collector.steps}: {line}"))

    def run(self) -> Results:
        """Train to the end; returns the last evaluation. Raises `stop`, once it is set and the state is saved."""
        while not self.done:
            self.turn()
        return self.last_evaluation

    @property
    def done(self) -> bool:
        """Whether the budget is spent, or an evaluation has ended the run early, and what was learnt is evaluated."""
        spent = self.collector.steps >= self.total_steps or self.ends_early
        return spent and bool(self.last_evaluation) and not self.evaluation_due

    @property
    def ends_early(self) -> bool:
        """Whether the last evaluation has reached `stop_at` before the budget was spent."""
        if self.stop_at is None or not self.last_evaluation or self.collector.steps >= self.total_steps:
            return False
        return self.objective() >= self.stop_at

    def turn(self) -> None:
        """Run one iteration, and the evaluation and the checkpoint that are due after it. May raise `stop`."""
        before = self.completed_steps
        if self.collector.steps < self.total_steps and not self.evaluation_due:
            complete = self.iterate()
            self.evaluation_due = complete and due(self.evaluation_every, before, self.completed_steps)
        if self.collector.steps >= self.total_steps:
            self.evaluation_due = True
        if self.evaluation_due and self.asked_to_stop() is None:
            self.evaluate()
            self.evaluation_due = False
        stop = self.asked_to_stop()
        if self.done or stop is not None or due(self.checkpoint_every, before, self.completed_steps):
            self.save()
            stop = self.asked_to_stop()
        if stop is not None and not self.done:
            raise stop

    def asked_to_stop(self) -> BaseException | None:
        """What to raise if a signal has reached this process or another one of the run; None: go on."""
        if not alone():
            signum = int(largest(torch.tensor(getattr(self.stop, "signum", 0))))
            if not signum:  # a signal that came meanwhile counts when all have agreed on it
                return None
            self.stop = self.stop or Stopped(signum)
        return self.stop

    def iterate(self) -> bool:
        """Collect, learn and record what happened. Returns whether the iteration is complete."""
        began, cpu_began = perf_counter(), process_time()
        try:
            iteration = self.advance()
        except FloatingPointError as error:
            if remark := getattr(self.collector, "remark", ""):
                what = f"not a finite number: {error}; {remark}"
                sizes = "a wrapper that makes rewards and observations about 1 in size"
                skip = "on_nan=skip to pass over such batches"
                raise Fault(f"step {self.collector.steps}: {what}; e.g. {sizes}, or {skip}") from error
            raise
        self.elapsed += perf_counter() - began
        self.cpu_time += process_time() - cpu_began
        if iteration is None:
            return False
        self.completed_steps = self.collector.steps
        self._record(*iteration)
        return True

    @abstractmethod
    def advance(self) -> Iteration | None:
        """Collect and learn for a while, at least for one environment step; None if `stop` came in between."""

    @contextmanager
    def learning(self) -> Iterator[None]:
        """Count the time that is spent inside as learning."""
        began = perf_counter()
        yield
        self.learn_time += perf_counter() - began

    def _record(self, metrics: dict[str, float], episodes: list[Episode]) -> None:
        steps = self.collector.steps
        returns = [episode.episode_return for episode in episodes]
        self.recent.extend(returns)
        row: dict[str, float] = {"update": self.updates, "train/episodes": len(episodes)}
        if returns and not self.cut:
            row["train/return_mean"] = float(np.mean(returns))
            row["train/length_mean"] = float(np.mean([episode.length for episode in episodes]))
        if self.recent:
            row[f"train/return_last_{RECENT}"] = float(np.mean(self.recent))
        self.recorder.episodes(episode.row() for episode in episodes)
        shown = self.recorder.metrics(steps, row | metrics | self._timing())
        self.progress.update(steps, row.get(f"train/return_last_{RECENT}"), self.shares())
        self.callbacks.call("on_iteration", shown)

    def shares(self) -> dict[str, float]:
        """Fractions of the time spent in the environment, acting (or waiting for those who do) and learning."""
        seconds = {**self.collector.seconds, "learn": self.learn_time}
        return {name: spent / max(self.elapsed, 1e-9) for name, spent in seconds.items()}

    def _timing(self) -> dict[str, float]:
        rate = self.collector.steps / max(self.elapsed, 1e-9)
        shares = {f"time/{name}": share for name, share in self.shares().items()}
        return {"time/elapsed": self.elapsed, "time/cpu": self.cpu_time, "time/steps_per_second": rate, **shares}

    def evaluate(self) -> None:
        """Play evaluation episodes, on the first process alone, and keep the best agent."""
        self.recorder.require_intact()
        self.last_evaluation = results = of_first(self._play() if place().rank == 0 else {})
        self._film()  # before loggers look for it
        self.evaluated = self.collector.steps
        score = self.objective()
        if math.isfinite(score) and (self.best_return is None or score > self.best_return):
            self.best_return = score
            with self._writing("the best agent"):
                self.checkpoints.save_best(self.agent_state())
        best = {} if self.best_return is None else {self.best_metric: self.best_return}
        self.recorder.metrics(self.collector.steps, self.evaluation_metrics(results) | best)
        self.progress.say(f"evaluation at {self.collector.steps}: {self.evaluation_text()}")
        self.callbacks.call("on_evaluation", self.collector.steps, results)

    def _film(self) -> None:
        """Film the agent, if that is due at this evaluation, or if it is the last."""
        steps, videos = self.collector.steps, self.videos
        last = steps >= self.total_steps or self.ends_early
        if videos is not None and (last or due(videos.every, self.evaluated, steps)):
            with one_thread():
                videos.film(cast(Agent, self.agent), steps)

    def objective(self) -> float:
        """A single number for the last evaluation, larger for better: the mean return of greedy episodes."""
        return self.last_evaluation["greedy"]["return_mean"]

    def evaluation_text(self) -> str:
        """The result of the last evaluation, for the user."""
        of = [f"{name} {r['return_mean']:.3f} ± {r['return_sem']:.3f}" for name, r in self.last_evaluation.items()]
        return f"return {', '.join(of)}"

    def evaluation_sample(self) -> str:
        """What the means of an evaluation are taken over, for the user."""
        return f"{self.evaluation_episodes} episodes each; ± is the standard error of the mean"

    def evaluation_metrics(self, results: Results) -> dict[str, float]:
        """An evaluation's results as metrics."""
        known = ((policy, name, values) for policy, values in results.items() for name in LOGGED if name in values)
        return {f"eval/{policy}/{name}": values[name] for policy, name, values in known}

    def _play(self) -> Results:
        step, most = f"step {self.collector.steps}", self.evaluation_steps
        say = lambda line: self.progress.say(f"{step}: {line}")  # noqa: E731
        request = Request(self.evaluation_episodes, self.streams, self.device, most, say, self.exploration)
        try:
            with closing(self.make_eval_env()) as env:
                return self.algo.evaluate(self.agent, env, request)
        except Fault as fault:
            raise Fault(f"{step}: evaluation: {fault}", fault.traceback) from fault

    def save(self) -> None:
        """Write a checkpoint. Raises Fault if it cannot be written; the earlier ones are intact then."""
        state = self.state_dict()
        with self._writing("a checkpoint"):
            path = self.checkpoints.save(self.collector.steps, state)
        self.callbacks.call("on_checkpoint", path)

    @contextmanager
    def _writing(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            reason = error.strerror or str(error)
            raise Fault(f"step {self.collector.steps}: {what} cannot be written ({reason})") from error

    def agent_state(self) -> dict[str, Any]:
        """What is needed to act as the agent does now."""
        return {
            "agent": self.agent.state_dict(),
            "experiment": self.experiment,
            "step": self.collector.steps,
            "best_return": self.best_return,
        }

    def state_dict(self) -> dict[str, Any]:
        return {
            **self.agent_state(),
            "algo": self.algo.state_dict(),
            "collector": self.collector.state_dict(),
            **{name: getattr(self, name) for name in self.saved},
            "cpu_time": self.cpu_time,
            "since": self.completed_steps,
            "owed": self.evaluation_due,
            "recent": list(self.recent),
            "clock": self.collector.seconds.copy(),
            "record": self.recorder.position(),
            "notices": self.notices.state_dict(),
            "evaluated": self.evaluated,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.agent.load_state_dict(state["agent"])
        # The optimiser would keep the tensors themselves, which are mapped from the file on the disk: copy them.
        self.algo.load_state_dict(tree_map_only(Tensor, Tensor.clone, state["algo"]))
        self.collector.load_state_dict(state["collector"])
        for name in ("best_return", *self.saved):
            setattr(self, name, state[name])
        self.cpu_time = state.get("cpu_time", math.nan)  # development versions of this format did not count it
        self.completed_steps, self.evaluation_due = state["since"], state["owed"]
        self.recent.extend(state["recent"])
        self.collector.seconds.update(state["clock"])
        self.recorder.rewind(state["record"])
        self.evaluated = state["evaluated"]
        self.notices.load_state_dict(state["notices"])
