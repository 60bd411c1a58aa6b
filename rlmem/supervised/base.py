"""What supervised algorithms share: their settings, the network, and one update."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

import torch
from gymnasium import Space
from torch import Tensor, nn

from rlmem.acting.evaluate import Request
from rlmem.agents.trunk import Trunk
from rlmem.algos.base import Algorithm, Finite, Plan
from rlmem.batching import Batching, Tape
from rlmem.loops.base import Loop
from rlmem.loops.parts import LoopParts, OnNan, Results
from rlmem.seeding import Streams
from rlmem.supervised.feed import Feed, Window
from rlmem.supervised.loop import SupervisedLoop
from rlmem.supervised.predictor import Predictor
from rlmem.types import PositiveFloat, PositiveInt, State, UnitFloat


@dataclass(kw_only=True)
class Supervised(Algorithm):
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

    acts = False
    one_process = "learns from one stream"
    needs: ClassVar[str]
    """What the algorithm does, in messages to the user."""
    example: ClassVar[str]
    """An environment that it can learn from, as an override."""
    answers: ClassVar[str]
    """What an evaluation counts, as a plural noun such as `sequences`."""
    outputs: int = field(default=0, init=False)

    @abstractmethod
    def inspect(self, env: Any) -> str | None:
        """Read from `env` what determines the sizes of the network and of the windows.

        Returns why the algorithm cannot learn from it, with an example; None if it can.
        """

    @abstractmethod
    def feed(self, env: Any, streams: Streams, device: torch.device) -> Feed:
        """The windows that a run learns from."""

    @abstractmethod
    def judge(self, answer: Tensor, target: Tensor) -> dict[str, Tensor]:
        """Scores [n] by name of n predictions [n, O] for their targets; the first is the loss."""

    @abstractmethod
    def held_out(
        self, agent: Predictor, env: Any, number: int, streams: Streams, device: torch.device
    ) -> dict[str, float]:
        """Means of the scores of `judge` on data that training does not read; the same `streams` choose the same data.

        agent: the network to evaluate
        env: as for `feed`
        number: how many predictions to score, counted in what `answers` names
        streams: the random streams of the evaluation
        device: the device of the agent
        """

    @abstractmethod
    def score(self, means: dict[str, float]) -> float:
        """One number made of the means of `held_out`; larger is better."""

    @abstractmethod
    def window_size(self) -> int:
        """Slots in a row of a window."""

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
        if problem := self.inspect(plan.env):
            return [f"algo={algo_name} with env={plan.choices['env']}: {problem}"]
        cut = f"batching={plan.choices['batching']}"
        if isinstance(batching, Tape):
            if batching.detach_every is None:
                return []
            cut = f"batching.detach_every={batching.detach_every}"
        what = f"is for agents; algo={algo_name} cuts its own rows, of {self.window_size()} slots"
        return [f"{cut}: {what}; e.g. batching=tape batching.detach_every=null"]

    def evaluate(self, agent: Any, env: Any, request: Request) -> Results:
        return {"held_out": self.held_out(agent, env, request.episodes, request.streams, request.device)}

    def make_agent(self, make_trunk: Callable[[], Trunk], action_space: Space) -> Predictor:
        return Predictor(make_trunk, self.outputs, self.head_sizes)

    def setup(self, agent: Predictor, on_nan: OnNan = "stop") -> None:
        """Prepare to train an agent.

        agent: the network to train
        on_nan: what to do with a step whose loss or gradient is not finite
        """
        self.agent = agent
        self.parameters = list(agent.parameters())
        for parameter in self.parameters:  # Adam skips None, but a window without targets is a step
            parameter.grad = torch.zeros_like(parameter)
        self.optim = torch.optim.Adam(self.parameters, lr=self.lr, eps=self.adam_eps, fused=True)
        self.finite = Finite(on_nan)
        self.total, self.weight = torch.zeros((), device=self.parameters[0].device), 0.0

    def update(self, window: Window, state: State) -> tuple[dict[str, Tensor], State]:
        """Read a window and learn from it. Returns the sum of each score of `judge`, and the state after the window.

        window: the slots to read
        state: the memory's state before the window
        """
        if not window.due:
            with torch.no_grad():
                state = self.agent.read(window.inputs, state)[1]
            self.optim.zero_grad(set_to_none=False)
            self.optim.step()
            return {}, state
        features, state = self.agent.read(window.inputs, state)
        judged = self.judge(self.agent.head(features[window.mask]), window.target[window.mask])
        loss = next(iter(judged.values())).mean()
        self.optim.zero_grad(set_to_none=False)
        loss.backward()
        self._step(loss)
        sums = {name: values.detach().sum() for name, values in judged.items()}
        self._smooth(next(reversed(sums.values())) / window.due)
        return sums, state

    def _step(self, loss: Tensor) -> None:
        limit = float("inf") if self.max_grad_norm is None else self.max_grad_norm
        grad_norm = nn.utils.clip_grad_norm_(self.parameters, limit)
        if self.finite.allows(loss=loss, grad_norm=grad_norm):
            self.optim.step()

    @property
    def smoothed(self) -> float | None:
        """The exponential mean over windows of the last score of `judge`, without bias towards its start at zero.

        None before the first target.
        """
        return float(self.total) / self.weight if self.weight else None

    def _smooth(self, mean: Tensor) -> None:
        self.total = torch.lerp(mean, self.total, self.smoothing)
        self.weight = 1 - self.smoothing + self.smoothing * self.weight

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"smoothed": (self.total, self.weight)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        total, self.weight = state["smoothed"]
        self.total = total.to(self.parameters[0].device)
