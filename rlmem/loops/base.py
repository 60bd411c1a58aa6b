"""What every training loop does around its updates: record, evaluate, checkpoint, stop."""

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter, process_time
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from rlmem.acting.collector import Episode, one_thread
from rlmem.acting.evaluate import Request
from rlmem.acting.film import film_episode
from rlmem.acting.workers import closing
from rlmem.agents.actor_critic import ON_POLICY, Exploration
from rlmem.batching import StateSlots
from rlmem.core.command import Stopped
from rlmem.core.errors import Fault, UserError
from rlmem.core.types import processes
from rlmem.loops.parts import Output, Results, Training, notify, result_metrics, result_text
from rlmem.record.checkpoint import BEST
from rlmem.record.rundir import video_path

RECENT = 100
"""How many of the newest episodes the shown and logged mean return is over."""
FEWEST_EPISODES = 8
"""A run whose batches hold fewer says so: the transitions of one episode are much alike."""
SATURATED, STILL = 0.95, 0.1
"""A policy is saturated if this share of its actions lies at the bounds, and they spread less than this over slots."""
PATIENCE = 5
"""Iterations in a row after which a saturated policy is reported."""
Iteration = tuple[dict[str, float], list[Episode]]
"""The metrics of an iteration, and the episodes that ended in it."""


def due(every: int | None, before: int, now: int) -> bool:
    """True if what happens every `every` environment steps is due; None: it never is."""
    return every is not None and now // every > before // every


class Loop(ABC):
    """Trains an agent with `algo` for exactly `total_steps` environment steps, or until a score reaches `stop_at`.

    A subclass sets `collector` and writes `advance`: collect, learn, and return what happened. One call of it is one
    iteration: one row in metrics.jsonl, and whatever is due. `state_dict` between two calls continues a run exactly.

    collector: the source of its data, with `steps` so far and `seconds` by what they were spent on
    evaluation: the settings of evaluations
    film_every: environment steps from one film to the next; None: there are no films
    exploration: how the agent explores at present, also when an evaluation samples its actions
    best_return: the largest `objective` so far
    cut: whether the last rollout dropped unfinished episodes (`Rollout.cut`), which biases those that ended
    elapsed, learn_time: seconds spent in iterations, and those of them spent on learning
    cpu_time: seconds of the cores that this process used in iterations; NaN where a checkpoint did not know
    completed_steps: environment steps at the end of the last complete iteration
    evaluated: environment steps at the last evaluation
    evaluation_due: whether a stop has put off an evaluation that is due
    stop: an exception, set from outside to end the run; raised once a checkpoint has been saved
    """

    saved: ClassVar[tuple[str, ...]] = ("updates", "last_evaluation", "elapsed", "learn_time", "evaluated")
    """What a checkpoint holds under the same names, beside the agent's state."""

    collector: Any

    def __init__(self, training: Training, output: Output):
        self.training, self.output, self.evaluation = training, output, training.settings.evaluation
        self.algo, self.agent, self.batching = training.algo, training.agent, training.batching
        self.recorder, self.progress, self.experiment = output.recorder, output.progress, output.experiment
        self.total_steps: int = training.settings.total_steps
        self.film_every: int | None = None if output.run_dir is None else self.evaluation.video_every
        self.exploration: Exploration = ON_POLICY
        self.updates = self.completed_steps = self.evaluated = 0
        self.elapsed = self.learn_time = self.cpu_time = 0.0
        self.best_return: float | None = None
        self.last_evaluation: Results = {}
        self.recent: deque[float] = deque(maxlen=RECENT)
        self.cut = self.evaluation_due = False
        self.stop: BaseException | None = None
        self.notices = Notices(lambda line: self.progress.say(f"step {self.collector.steps}: {line}"))

    def run(self) -> Results:
        """Train to the end; returns the last evaluation. Raises `stop`, once it is set and the state is saved."""
        while not self.done:
            self.turn()
        return self.last_evaluation

    @property
    def done(self) -> bool:
        """True if the budget is spent or an evaluation has ended the run early, and what was learnt is evaluated."""
        spent = self.collector.steps >= self.total_steps or self.ends_early
        return spent and bool(self.last_evaluation) and not self.evaluation_due

    @property
    def ends_early(self) -> bool:
        """True if the last evaluation has reached `stop_at` before the budget was spent."""
        stop_at = self.evaluation.stop_at
        if stop_at is None or not self.last_evaluation or self.collector.steps >= self.total_steps:
            return False
        return self.objective() >= stop_at

    def turn(self) -> None:
        """Run one iteration, and the evaluation and the checkpoint that are due after it. May raise `stop`."""
        before = self.completed_steps
        if self.collector.steps < self.total_steps and not self.evaluation_due:
            self.evaluation_due = self.iterate() and due(self.evaluation.every, before, self.completed_steps)
        if self.collector.steps >= self.total_steps:
            self.evaluation_due = True
        if self.evaluation_due and self.asked_to_stop() is None:
            self.evaluate()
            self.evaluation_due = False
        stop = self.asked_to_stop()
        if self.done or stop is not None or due(self.training.settings.checkpoint.every, before, self.completed_steps):
            self.save()
            stop = self.asked_to_stop()
        if stop is not None and not self.done:
            raise stop

    def asked_to_stop(self) -> BaseException | None:
        """The exception to raise if a signal has reached this process or another one of the run; None: continue."""
        if processes().size > 1:
            signum = int(processes().largest(torch.tensor(getattr(self.stop, "signum", 0))))
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
                problem = f"not a finite number: {error}; {remark}"
                sizes = "a wrapper that makes rewards and observations about 1 in size"
                skip = "on_nan=skip to pass over such batches"
                raise Fault(f"step {self.collector.steps}: {problem}; e.g. {sizes}, or {skip}") from error
            raise
        self.elapsed += perf_counter() - began
        self.cpu_time += process_time() - cpu_began
        if iteration is None:
            return False
        self.completed_steps = self.collector.steps
        self.record(*iteration)
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

    def explored(self) -> dict[str, float]:
        """Metrics of how the agent explores at present."""
        name, chance = self.algo.noise_metric, 1.0 if self.exploration.random else self.exploration.noise
        return {f"explore/{name}": chance} if name else {}

    def record(self, metrics: dict[str, float], episodes: list[Episode]) -> None:
        """Write and show what happened in an iteration."""
        returns = [episode.episode_return for episode in episodes]
        self.recent.extend(returns)
        row: dict[str, float] = {"update": self.updates, "train/episodes": len(episodes)}
        if returns and not self.cut:
            row["train/return_mean"] = float(np.mean(returns))
            row["train/length_mean"] = float(np.mean([episode.length for episode in episodes]))
        if self.recent:
            row[f"train/return_last_{RECENT}"] = float(np.mean(self.recent))
        self.recorder.episodes(episode.row() for episode in episodes)
        self.show(row | metrics, row.get(f"train/return_last_{RECENT}"))

    def show(self, row: dict[str, float], score: float | None, name: str = "return") -> None:
        """Write a row of metrics with the times so far, and show it with the recent score, which has a name."""
        steps, shares = self.collector.steps, self.shares()
        rate = {"time/steps_per_second": steps / max(self.elapsed, 1e-9)}
        times = {"time/elapsed": self.elapsed, "time/cpu": self.cpu_time, **rate}
        times |= {f"time/{part}": share for part, share in shares.items()}
        written = self.recorder.metrics(steps, row | times)
        self.progress.update(steps, score, shares, name)
        self.call("on_iteration", written)

    def call(self, event: str, *arguments: Any) -> None:
        """Call a method of all callbacks."""
        for name, callback in self.output.callbacks.items():
            notify(name, callback, event, *arguments)

    def shares(self) -> dict[str, float]:
        """Fractions of the time spent in the environment, acting (or waiting for those who do) and learning."""
        seconds = {**self.collector.seconds, "learn": self.learn_time}
        return {name: spent / max(self.elapsed, 1e-9) for name, spent in seconds.items()}

    def state_slots(self, replay: bool) -> StateSlots | None:
        """As `Batching.state_slots`; None if no memory has a state that could be kept."""
        return None if self.agent.trunks.stateless else self.batching.state_slots(replay)

    def evaluate(self) -> None:
        """Play evaluation episodes, on the first process alone, and keep the best agent."""
        self.recorder.require_intact()
        steps = self.collector.steps
        self.last_evaluation = results = processes().of_first(self._play() if processes().rank == 0 else {})
        last = steps >= self.total_steps or self.ends_early
        if self.film_every and (last or due(self.film_every, self.evaluated, steps)):
            with one_thread():
                self._film()  # before loggers look for it
        self.evaluated = steps
        score, acts = self.objective(), self.algo.learns_by_acting
        if math.isfinite(score) and (self.best_return is None or score > self.best_return):
            self.best_return = score
            with self._writing("the best agent"):
                self.output.checkpoints.write(BEST, self.agent_state())
        row = result_metrics(results) | ({} if acts else {"eval/score": score})
        if self.best_return is not None:
            row["eval/greedy/best" if acts else "eval/best"] = self.best_return
        self.recorder.metrics(steps, row)
        self.progress.say(f"evaluation at {steps}: {result_text(results)}")
        self.call("on_evaluation", steps, results)

    def _play(self) -> Results:
        """The results of an evaluation; its samples are of the present exploration."""
        training, asked = self.training, self.evaluation
        streams, say = training.evaluation_streams, self.notices.say
        how = asked.episodes, streams, training.device, asked.max_steps, say, self.exploration
        try:
            with closing(training.make_env(asked.episodes)) as env:
                return self.algo.evaluate(self.agent, env, Request(*how))
        except Fault as fault:
            raise Fault(f"step {self.collector.steps}: evaluation: {fault}", fault.traceback) from fault

    def _film(self) -> None:
        """Film an episode, the same in every film; there are no more films if the environment cannot be drawn."""
        assert self.output.run_dir is not None
        training, path = self.training, video_path(self.output.run_dir, self.collector.steps)
        try:
            env, most = training.make_env(1), self.evaluation.max_steps
            film_episode(self.agent, env, training.streams, training.device, most, path)
        except (UserError, Fault) as error:  # a Fault: what drawing raises within a step
            self.film_every = None
            self.notices.say(f"no videos from here on: {error}")

    def objective(self) -> float:
        """A single number for the last evaluation, larger for better (`Learner.score`)."""
        return self.algo.score(self.last_evaluation)

    def save(self) -> None:
        """Write a checkpoint. Raises Fault if it cannot be written; the earlier ones are intact then."""
        state = self.state_dict()
        with self._writing("a checkpoint"):
            path = self.output.checkpoints.save(self.collector.steps, state)
        self.call("on_checkpoint", path)

    @contextmanager
    def _writing(self, noun: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            reason = error.strerror or str(error)
            raise Fault(f"step {self.collector.steps}: {noun} cannot be written ({reason})") from error

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
        self.notices.load_state_dict(state["notices"])


class Notices:
    """Says what a user should know about how a run learns, each thing once, also over interruptions.

    say: shows a line
    """

    def __init__(self, say: Callable[[str], None]):
        self.say, self.said, self.saturated = say, set[str](), 0

    def once(self, kind: str, text: str) -> None:
        """Say `text`, unless something of this kind has been said."""
        if kind not in self.said:
            self.said.add(kind)
            self.say(text)

    def read(self, metrics: Mapping[str, float], episodes: float | None, advice: Mapping[str, str]) -> None:
        """Report what the metrics of an iteration, by their last names, show.

        episodes: in a batch, the mean; None: too early to tell
        advice: what to do about few `episodes` and `saturation`
        """
        if episodes is not None and episodes < FEWEST_EPISODES:
            few = (
                f"a batch holds about {episodes:.1f} episodes; from fewer than {FEWEST_EPISODES}, learning is unsteady"
            )
            self.once("episodes", f"{few}; {advice['episodes']}")
        share, spread = metrics.get("actions_at_bounds", 0.0), metrics.get("action_spread", 1.0)
        self.saturated = self.saturated + 1 if share >= SATURATED and spread < STILL else 0
        if self.saturated >= PATIENCE:
            where = f"the policy stands still: {share:.0%} of its actions lie at a bound, whatever it sees"
            self.once("saturation", f"{where}, where learning can hardly move them; {advice['saturation']}")
        if (scale := metrics.get("reward_scale", 1.0)) != 1.0:
            self.scaled(scale)

    def scaled(self, scale: float) -> None:
        """Report the factor that rewards are multiplied by."""
        self.once("scale", f"rewards are learnt from times {scale:.3g} (algo.reward_scale)")

    def state_dict(self) -> dict[str, Any]:
        return {"said": sorted(self.said), "saturated": self.saturated}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.said, self.saturated = set(state["said"]), state["saturated"]
