"""What supervised algorithms share: their settings, one update, evaluation, and the loop of one update per window."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from gymnasium import Space
from torch import Tensor, nn

from rlmem.acting.collector import Episode
from rlmem.acting.evaluate import Request
from rlmem.agents.actor_critic import ON_POLICY, Exploration
from rlmem.agents.trunk import Trunks
from rlmem.algos.base import Learner, Outline, Plan
from rlmem.algos.on_policy import Finite
from rlmem.algos.supervised.feed import DataWindow, Feed, Predictor
from rlmem.batching import Tape
from rlmem.core.seeding import Streams
from rlmem.core.types import PositiveFloat, PositiveInt, State, UnitFloat, flagged
from rlmem.loops.base import Iteration, Loop
from rlmem.loops.parts import OnNan, Output, Results, Training
from rlmem.memory.base import redraw


class SupervisedLoop(Loop):
    """One iteration is at least `algo.record_every` slots, one update per window.

    A checkpoint may be taken after any window.

    collector: the feed of windows
    sums: the sum of each score of `judge` in this iteration
    answered: targets in this iteration
    """

    saved = (*Loop.saved, "answered")

    algo: "Supervised"
    collector: Feed

    def __init__(self, training: Training, output: Output):
        super().__init__(training, output)
        self.collector = self.algo.feed(training.env, training.streams, training.device)
        self.algo.setup(training.agent, training.settings.on_nan)
        self.sums: dict[str, Tensor] = {}
        self.answered = 0

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
                self.algo.finite.settle()
                feed.carry(state)
            self.updates += 1
            self.answered += window.due
            for name, total in sums.items():
                self.sums[name] = self.sums[name] + total if name in self.sums else total
        means = {f"train/{name}": float(total) / self.answered for name, total in self.sums.items()}
        if means and self.algo.smoothed is not None:
            means[f"{next(reversed(means))}_smoothed"] = self.algo.smoothed
        metrics = means | {"train/answers": self.answered} | self.algo.finite.metrics()
        self.sums, self.answered = {}, 0
        redraw(self.agent)
        return metrics, []

    def record(self, metrics: dict[str, float], episodes: list[Episode]) -> None:
        name = next((name for name in reversed(metrics) if name.endswith("_smoothed")), "")
        self.show({"update": self.updates} | metrics, metrics.get(name), name.removeprefix("train/"))

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"sums": self.sums}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.sums = {name: total.to(self.collector.device) for name, total in state["sums"].items()}


@dataclass(kw_only=True)
class Supervised(Learner):
    """An algorithm that learns to predict targets from the slots it reads. Nothing acts; a step is a slot read.

    An update reads one window and takes one step of Adam on the mean loss of the slots that have a target. A window
    without targets has a gradient of zero: only Adam's moments move the parameters.

    batch_size: rows of a window
    record_every: slots per row of metrics.jsonl
    lr: learning rate of Adam
    adam_eps: epsilon of Adam
    max_grad_norm: largest global norm of the gradient; None: not clipped
    smoothing: decay per window of the exponential mean `smoothed`
    head_sizes: see `Predictor`
    outputs: numbers in a prediction, set by `inspect`
    """

    batch_size: PositiveInt = 64
    record_every: PositiveInt = 20_000
    lr: PositiveFloat = 3e-4
    adam_eps: PositiveFloat = 1e-8
    max_grad_norm: PositiveFloat | None = None
    smoothing: UnitFloat = 0.98
    head_sizes: Sequence[PositiveInt] | None = ()

    acts: ClassVar[bool] = False
    learns_by_acting = False
    loop = SupervisedLoop
    one_process = "learns from one stream"
    needs: ClassVar[str]
    """What the algorithm does, in messages to the user."""
    example: ClassVar[str]
    """An environment that it can learn from, as an override."""
    answers: ClassVar[str]
    """What an evaluation counts, as a plural noun such as `sequences`."""
    sign: ClassVar[Literal[-1, 1]]
    """1 if a larger last score of `judge` is better, -1 if a smaller one is."""
    continues: ClassVar[bool]
    """Whether the rows of a window of `unseen` continue those of the window before."""
    outputs: int = field(default=0, init=False)

    def explore(self, steps: int, total_steps: int) -> Exploration:
        return ON_POLICY

    @abstractmethod
    def inspect(self, env: Any) -> str | None:
        """Read from `env` what determines the sizes of the network and of the windows.

        Returns why the algorithm cannot learn from it, with an example; None if it can.
        """

    def unfit_data(self) -> str | None:
        """Why the data that only learning needs do not fit what `inspect` read, with an example; None if they do."""
        return None

    @abstractmethod
    def feed(self, env: Any, streams: Streams, device: torch.device) -> Feed:
        """The windows that a run learns from."""

    @abstractmethod
    def judge(self, answer: Tensor, target: Tensor) -> dict[str, Tensor]:
        """Scores [n] by name of n predictions [n, O] for their targets; the first is the loss."""

    def unseen(self, env: Any, request: Request) -> Iterator[DataWindow]:
        """Windows of data that training does not read, until `request.episodes` of what `answers` names were read.

        The same `request.streams` choose the same data. An algorithm with an `evaluate` of its own has none.
        """
        raise NotImplementedError

    @abstractmethod
    def window_size(self) -> int:
        """Slots in a row of a window."""

    @property
    def rows(self) -> int:
        return self.batch_size

    def outline(self, plan: Plan) -> Outline:
        outline, batching = Outline(), plan.batching
        if problem := self.inspect(plan.env) or (self.unfit_data() if plan.learns else None):
            outline.problems.append(f"algo={plan.choices['algo']} with env={plan.choices['env']}: {problem}")
        elif not isinstance(batching, Tape) or batching.detach_every is not None:
            detached = isinstance(batching, Tape) and f"batching.detach_every={batching.detach_every}"
            cut = detached or f"batching={plan.choices['batching']}"
            reason = f"is for agents; algo={plan.choices['algo']} cuts its own rows, of {self.window_size()} slots"
            outline.problems.append(f"{cut}: {reason}; e.g. batching=tape batching.detach_every=null")
        rows, outline.reach = self.batch_size, self.window_size()
        updates = f"in about {-(-plan.total_steps // (rows * outline.reach)):,} updates"
        outline.training = f"{updates}, each on {rows} rows of {outline.reach} slots; {self.outputs} outputs"
        return outline

    @torch.no_grad()
    def evaluate(self, agent: Any, env: Any, request: Request) -> Results:
        """The means of the scores of `judge` on data that training does not read."""
        state, answered, sums = None, 0, dict[str, float]()
        for window in self.unseen(env, request):
            if state is None or not self.continues:
                state = agent.initial_state(len(window.mask))
            features, state = agent.read(window.inputs, state)
            answered += window.due
            for name, values in self._judged(agent, features, window).items():
                sums[name] = sums.get(name, 0.0) + float(values.sum())
        return {"held_out": {name: total / answered for name, total in sums.items()}}

    def score(self, results: Results) -> float:
        """The last score of `judge`, by its `sign`."""
        return self.sign * next(reversed(results["held_out"].values()))

    def make_agent(self, trunks: Trunks, action_space: Space) -> Predictor:
        return Predictor(trunks, self.outputs, self.head_sizes)

    def setup(self, agent: Predictor, on_nan: OnNan = "stop") -> None:
        """Prepare to train an agent; `on_nan`: what to do with a step whose loss or gradient is not finite."""
        self.agent = agent
        self.parameters = list(agent.parameters())
        for parameter in self.parameters:  # Adam skips None, but a window without targets is a step
            parameter.grad = torch.zeros_like(parameter)
        self.optim = self.make_optim()
        self.finite = Finite(on_nan)
        self.total, self.weight = torch.zeros((), device=self.parameters[0].device), 0.0

    def make_optim(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters, lr=self.lr, eps=self.adam_eps, fused=True)

    def update(self, window: DataWindow, state: State) -> tuple[dict[str, Tensor], State]:
        """Read a window and learn from it. Returns the sum of each score of `judge`, and the state after the window."""
        if not window.due:
            with torch.no_grad():
                state = self.agent.read(window.inputs, state)[1]
            self.optim.zero_grad(set_to_none=False)
            self.optim.step()
            return {}, state
        features, state = self.agent.read(window.inputs, state)
        judged = self._judged(self.agent, features, window)
        loss = next(iter(judged.values())).mean()
        self.optim.zero_grad(set_to_none=False)
        loss.backward()
        limit = float("inf") if self.max_grad_norm is None else self.max_grad_norm
        grad_norm = nn.utils.clip_grad_norm_(self.parameters, limit)
        self.finite.step(self.optim, loss=loss, grad_norm=grad_norm)
        sums = {name: values.detach().sum() for name, values in judged.items()}
        self.total = torch.lerp(next(reversed(sums.values())) / window.due, self.total, self.smoothing)
        self.weight = 1 - self.smoothing + self.smoothing * self.weight
        return sums, state

    def _judged(self, agent: Predictor, features: Tensor, window: DataWindow) -> dict[str, Tensor]:
        """The scores of the slots that have a target."""
        slots = flagged(window.mask)
        return self.judge(agent.head(features.flatten(0, 1)[slots]), window.target.flatten(0, 1)[slots])

    @property
    def smoothed(self) -> float | None:
        """The exponential mean over windows of the last score of `judge`, unbiased; None before the first target."""
        return float(self.total) / self.weight if self.weight else None

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"smoothed": (self.total, self.weight)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        total, self.weight = state["smoothed"]
        self.total = total.to(self.parameters[0].device)
