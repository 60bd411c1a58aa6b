"""The supervised loop: one update per window."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from torch import Tensor

from rlmem.acting.collector import Episode
from rlmem.loops.base import Iteration, Loop
from rlmem.loops.parts import Learner, Results
from rlmem.memory.base import redraw
from rlmem.supervised.feed import Feed, Window
from rlmem.types import State


class WindowLearner(Learner, Protocol):
    """What the supervised loop needs of an algorithm; `Supervised` documents the members."""

    record_every: int
    answers: ClassVar[str]

    @property
    def smoothed(self) -> float | None: ...

    def update(self, window: Window, state: State) -> tuple[dict[str, Tensor], State]: ...

    def score(self, means: dict[str, float]) -> float: ...


@dataclass(kw_only=True)
class SupervisedLoop(Loop):
    """One iteration is at least `algo.record_every` slots, one update per window.

    A checkpoint may be taken after any window.

    collector: the feed of windows
    sums: the sum of each score of `judge` in this iteration
    answered: targets in this iteration
    """

    best_metric = "eval/best"

    algo: WindowLearner
    collector: Feed
    sums: dict[str, Tensor] = field(default_factory=dict)
    answered: int = field(default=0)

    def advance(self) -> Iteration | None:
        feed, end = self.collector, min(self.completed_steps + self.algo.record_every, self.total_steps)
        while feed.steps < end:
            if self.stop is not None:
                return None
            window = feed.next(self.total_steps - feed.steps)
            with self.learning():
                rows = len(window.mask)
                state = self.agent.initial_state(rows) if feed.state is None else feed.state
                sums, state = self.algo.update(window, state)
                feed.carry(state)
            self.updates += 1
            self.answered += window.due
            for name, total in sums.items():
                self.sums[name] = self.sums[name] + total if name in self.sums else total
        means = {f"train/{name}": float(total) / self.answered for name, total in self.sums.items()}
        if means and self.algo.smoothed is not None:
            means[f"{next(reversed(means))}_smoothed"] = self.algo.smoothed
        metrics = means | {"train/answers": self.answered} | self.algo.skipped()
        self.sums, self.answered = {}, 0
        redraw(self.agent)
        return metrics, []

    def _record(self, metrics: dict[str, float], episodes: list[Episode]) -> None:
        steps = self.collector.steps
        self.recorder.metrics(steps, {"update": self.updates} | metrics | self._timing())
        name = next((name for name in reversed(metrics) if name.endswith("_smoothed")), "")
        self.progress.update(steps, metrics.get(name), self.shares(), name.removeprefix("train/"))

    def objective(self) -> float:
        return self.algo.score(self.last_evaluation["held_out"])

    def evaluation_text(self) -> str:
        results = ", ".join(f"{name} {value:.4f}" for name, value in self.last_evaluation["held_out"].items())
        return f"held-out {results}"

    def evaluation_sample(self) -> str:
        return f"{self.evaluation_episodes:,} {self.algo.answers}"

    def evaluation_metrics(self, results: Results) -> dict[str, float]:
        named = {f"eval/{name}": value for name, value in results["held_out"].items()}
        return named | {"eval/score": self.objective()}

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"sums": self.sums, "answered": self.answered}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.sums = {name: total.to(self.collector.device) for name, total in state["sums"].items()}
        self.answered = state["answered"]
