"""What supervised algorithms share: their settings, the network, and one update."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

import torch
from gymnasium import Space
from torch import Tensor, nn

from rlmem.agents.exploration import Exploration
from rlmem.agents.state_dicts import load_optimiser
from rlmem.agents.trunk import Trunk
from rlmem.algos.base import Algorithm, Plan
from rlmem.algos.finite import Finite, OnNan
from rlmem.batching import Batching, Tape
from rlmem.loops.base import Loop
from rlmem.loops.parts import LoopParts, Results
from rlmem.seeding import Streams
from rlmem.supervised.feed import Feed, Window
from rlmem.supervised.loop import SupervisedLoop
from rlmem.supervised.predictor import Predictor
from rlmem.types import PositiveFloat, PositiveInt, State, UnitFloat


@dataclass(kw_only=True)
class Supervised(Algorithm):
    """An algorithm that learns to answer from what it reads. Nothing acts; a step is a slot that was read.

    An update reads one window and takes one step of Adam on the mean loss of the slots where an answer is due. Where
    none is, the loss is zero: the step has a zero gradient, and moves on what Adam remembers.

    batch_size: rows of a window;  record_every: slots per row of metrics.jsonl
    lr, adam_eps, max_grad_norm: Adam, clipped by global norm;  head_sizes: see `Predictor`
    """

    batch_size: PositiveInt = 64
    record_every: PositiveInt = 20_000
    lr: PositiveFloat = 3e-4
    adam_eps: PositiveFloat = 1e-8
    max_grad_norm: PositiveFloat | None = None
    smoothing: UnitFloat = 0.98
    head_sizes: Sequence[PositiveInt] | None = ()

    acts = False
    one_process = "learns from one stream"
    needs: ClassVar[str]
    """What it learns from, as a user is told."""
    example: ClassVar[str]
    """An environment that it learns from."""
    answers: ClassVar[str]
    """What evaluation counts."""
    outputs: int = field(default=0, init=False)
    """Numbers of an answer; known after `meet`."""

    @abstractmethod
    def meet(self, env: Any) -> str | None:
        """Take from `env` what the network and the windows follow from; or say what hinders, with an example."""

    @abstractmethod
    def feed(self, env: Any, streams: Streams, device: torch.device) -> Feed:
        """The windows of a run."""

    @abstractmethod
    def judge(self, answer: Tensor, target: Tensor) -> dict[str, Tensor]:
        """[n] each by name, of n answers [n, O]; the first is the loss."""

    @abstractmethod
    def held_out(self, agent: Predictor, env: Any, number: int, streams: Streams, device: torch.device) -> Results:
        """{"held_out": {metric: mean}} over `number` of `answers` that training does not read.

        The same `streams` give the same ones.
        """

    @abstractmethod
    def score(self, results: Results) -> float:
        """One number of an evaluation, larger for better."""

    @abstractmethod
    def window_size(self) -> int:
        """Slots of a row."""

    @property
    def rows(self) -> int:
        return self.batch_size

    def make_loop(self, parts: LoopParts) -> Loop:
        feed = self.feed(parts.env, parts.streams, parts.device)
        self.setup(cast(Predictor, parts.agent), parts.on_nan)
        return SupervisedLoop(algo=self, collector=feed, **vars(parts))

    def describe(self, plan: Plan) -> dict[str, str]:
        rows, window = self.batch_size, self.window_size()
        updates = -(-plan.total_steps // (rows * window))
        read = f"each on {rows} rows of {window} slots; {self.outputs} outputs"
        return {"training": f"in about {updates:,} updates, {read}"}

    def storage(self, batching: Batching) -> None:
        return None

    def problems(self, plan: Plan) -> list[str]:
        algo_name, batching = plan.choices["algo"], plan.batching
        if problem := self.meet(plan.env):
            return [f"algo={algo_name} with env={plan.choices['env']}: {problem}"]
        cut = f"batching={plan.choices['batching']}"
        if isinstance(batching, Tape):
            if batching.detach_every is None:
                return []
            cut = f"batching.detach_every={batching.detach_every}"
        what = f"is for agents; algo={algo_name} cuts its own rows, of {self.window_size()} slots"
        return [f"{cut}: {what}; e.g. batching=tape batching.detach_every=null"]

    def evaluate(
        self,
        agent: Any,
        env: Any,
        episodes: int,
        streams: Streams,
        device: torch.device,
        max_steps: int | None,
        say: Callable[[str], None],
        exploration: Exploration,
    ) -> Results:
        return self.held_out(agent, env, episodes, streams, device)

    def make_agent(self, make_trunk: Callable[[], Trunk], action_space: Space) -> Predictor:
        return Predictor(make_trunk, self.outputs, self.head_sizes)

    def setup(self, agent: Predictor, on_nan: OnNan = "stop") -> None:
        """Take `agent` into training."""
        self.agent = agent
        self.parameters = list(agent.parameters())
        for parameter in self.parameters:  # Adam passes over what has none, and steps without an answer are steps
            parameter.grad = torch.zeros_like(parameter)
        self.optimiser = torch.optim.Adam(self.parameters, lr=self.lr, eps=self.adam_eps, fused=True)
        self.finite = Finite(on_nan)
        self.total, self.weight = torch.zeros((), device=self.parameters[0].device), 0.0

    def update(self, window: Window, state: State) -> tuple[dict[str, Tensor], State]:
        """Read a window and learn from it: what `judge` says, summed, and the state after it."""
        if not window.due:
            with torch.no_grad():
                state = self.agent.read(window.inputs, state)[1]
            self.optimiser.zero_grad(set_to_none=False)
            self.optimiser.step()
            return {}, state
        features, state = self.agent.read(window.inputs, state)
        judged = self.judge(self.agent.head(features[window.mask]), window.target[window.mask])
        loss = next(iter(judged.values())).mean()
        self.optimiser.zero_grad(set_to_none=False)
        loss.backward()
        self._step(loss)
        sums = {name: values.detach().sum() for name, values in judged.items()}
        self._smooth(next(reversed(sums.values())) / window.due)
        return sums, state

    def _step(self, loss: Tensor) -> None:
        limit = float("inf") if self.max_grad_norm is None else self.max_grad_norm
        grad_norm = nn.utils.clip_grad_norm_(self.parameters, limit)
        if self.finite.allows(loss=loss, grad_norm=grad_norm):
            self.optimiser.step()

    @property
    def smoothed(self) -> float | None:
        """The exponential mean so far; none of its weight is that of a start value."""
        return float(self.total) / self.weight if self.weight else None

    def _smooth(self, mean: Tensor) -> None:
        self.total = torch.lerp(mean, self.total, self.smoothing)
        self.weight = 1 - self.smoothing + self.smoothing * self.weight

    def state_dict(self) -> dict[str, Any]:
        return {
            "optimiser": self.optimiser.state_dict(),
            "finite": self.finite.state_dict(),
            "smoothed": (self.total, self.weight),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        load_optimiser(self.optimiser, state["optimiser"])
        self.finite.load_state_dict(state["finite"])
        total, self.weight = state["smoothed"]
        self.total = total.to(self.parameters[0].device)
