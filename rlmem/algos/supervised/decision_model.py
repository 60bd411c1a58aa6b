"""Offline control by predicting actions from returns to go, of which frames are dropped: decision models."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, cast

import numpy as np
import torch
from annotated_types import Ge, Lt
from gymnasium import Space, spaces
from gymnasium.vector import VectorEnv
from torch import Tensor
from torch.nn import functional as F

from rlmem.acting.collector import one_thread
from rlmem.acting.evaluate import Request, evaluate
from rlmem.agents.actor_critic import Agent
from rlmem.agents.trunk import Trunks
from rlmem.algos.supervised.base import Supervised
from rlmem.algos.supervised.dataset.file import read
from rlmem.algos.supervised.decision_agent import AGES, DecisionAgent, Dropping, action_size
from rlmem.algos.supervised.feed import DataWindow, Feed, Predictor, WindowFeed
from rlmem.algos.supervised.windows import Drops, Partial, Trajectories, unfit
from rlmem.core.seeding import Streams
from rlmem.core.types import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, State
from rlmem.loops.parts import OnNan, Results

Probability = Annotated[float, Ge(0), Lt(1)]


@dataclass(kw_only=True)
class DecisionModel(Supervised):
    """Predict the actions of recorded episodes from the returns that followed, while frames are dropped at random.

        E_t |f(h_t) - a_t|^2,   h_t has read (g, o)_1 .. (g, o)_t and a_1 .. a_{t-1}
        g_t = r_t + r_{t+1} + ...   the return to go

    and the cross entropy where actions are discrete. With memory=gpt it is a Decision Transformer (Chen et al. 2021,
    arXiv:2106.01345), and the DRNN and DLRNN of Lu et al. 2024 (arXiv:2405.17358, figure 18) with lstm and lru. A slot
    whose frame is dropped repeats the last one that was received, observation and return to go; actions are never
    dropped (Hu et al. 2023, "Decision Transformer under random frame dropping", ICLR). An evaluation plays episodes at
    every rate of `eval_drops`, in which the agent aims at `target_return`.

    dataset: an HDF5 file with the full state (`rlmem.algos.supervised.dataset.file`); the environment says which part
        is seen
    context: slots of a window, in training and in acting
    drop: probability of dropping a frame in training, but never the first of an episode
    drop_every: updates after which the dropped frames are drawn again
    drop_information: show how many slots ago the newest frame was received
    eval_drops: probabilities of dropping a frame, at each of which an evaluation plays all its episodes
    target_return: the return to go at the beginning of an episode that is played; None: the highest of the data
    return_scale: the return to go that the memory reads as 1
    random_return, expert_return: mean returns that score 0 and 100; with None for either, returns are not normalised
    weight_decay: of AdamW
    warmup_updates: updates over which the learning rate rises to `lr`
    """

    dataset: str | None = None
    context: PositiveInt = 20
    drop: Probability = 0.8
    drop_every: PositiveInt = 500
    drop_information: bool = False
    eval_drops: Sequence[Probability] = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
    target_return: float | None = None
    return_scale: PositiveFloat = 1000.0
    random_return: float | None = None
    expert_return: float | None = None
    batch_size: PositiveInt = 256
    lr: PositiveFloat = 1e-4
    weight_decay: NonNegativeFloat = 1e-3
    warmup_updates: NonNegativeInt = 10_000
    max_grad_norm: PositiveFloat | None = 0.25

    acts = True
    saved = ("updates",)
    needs = "predicts actions, and plays episodes to evaluate them"
    example = "env=pendulum"

    def inspect(self, env: Any) -> str | None:
        if not isinstance(env, VectorEnv):
            return f"{self.needs}, in which nothing acts; e.g. {self.example}"
        observed, self.space = env.single_observation_space, env.single_action_space
        if not isinstance(observed, spaces.Box) or len(observed.shape) != 1:
            return f"observations {observed}: a data set holds rows of numbers; e.g. {self.example}"
        rows = isinstance(self.space, spaces.Box) and len(self.space.shape) == 1 and self.space.is_bounded("both")
        if not isinstance(self.space, spaces.Discrete) and not rows:
            problem = "a data set holds numbers between bounds, or one choice"
            return f"actions {self.space}: {problem}; e.g. {self.example}"
        if not self.eval_drops:
            return "algo.eval_drops=[]: expected at least one probability; e.g. algo.eval_drops=[0,0.5]"
        scale = {"random_return": self.random_return, "expert_return": self.expert_return}
        known = [key for key, value in scale.items() if value is not None]
        if len(known) == 1:
            key = next(key for key in scale if key not in known)
            return f"algo.{key}=null: expected a number, as algo.{known[0]} is one; e.g. algo.{known[0]}=null"
        if known and self.random_return == self.expert_return:
            return (
                f"algo.expert_return={self.expert_return}: expected another number than algo.random_return; e.g. null"
            )
        self.seen, self.full_size = [*range(observed.shape[0])], observed.shape[0]
        if isinstance(env, Partial):
            self.seen, self.full_size = env.seen_slots(), env.full_size()
        self.outputs = action_size(self.space)
        return None

    def unfit_data(self) -> str | None:
        return unfit(self.dataset, self.full_size, self.space)

    def encoded(self, observation_space: Space) -> Space:
        assert observation_space.shape is not None
        size = observation_space.shape[0] + 1 + AGES * self.drop_information
        return spaces.Box(-np.inf, np.inf, (size,), np.float32)

    def make_agent(self, trunks: Trunks, action_space: Space) -> DecisionAgent:
        window = self.context, self.return_scale, self.drop_information
        return DecisionAgent(trunks, len(self.seen), action_space, self.head_sizes, *window)

    def setup(self, agent: Predictor, on_nan: OnNan = "stop") -> None:
        highest = float(self.trajectories.to_go[self.trajectories.episodes.first].max())
        known = cast(DecisionAgent, agent)
        known.know(self.trajectories.seen, highest if self.target_return is None else self.target_return)
        super().setup(agent, on_nan)
        self.updates = 0

    def make_optim(self) -> torch.optim.Optimizer:
        decay = self.weight_decay
        return torch.optim.AdamW(self.parameters, lr=self.lr, eps=self.adam_eps, weight_decay=decay, fused=True)

    def feed(self, env: Any, streams: Streams, device: torch.device) -> Feed:
        recording = read(Path(str(self.dataset)))
        self.digest = recording.digest("observations", "actions", "rewards", "lengths")
        self.trajectories = Trajectories.of(recording, self.space, self.seen)
        drops = Drops(self.trajectories.episodes, self.drop, self.drop_every, streams.torch("drops"))
        tables, slots = self.trajectories.to(device), self.context
        draw = lambda rows, generator: tables.frames(rows, slots, drops.received(), generator)  # noqa: E731
        return WindowFeed(self, draw, streams.torch("windows"), device, drops)

    def window_size(self) -> int:
        return self.context

    def update(self, window: DataWindow, state: State) -> tuple[dict[str, Tensor], State]:
        self.updates += 1
        for group in self.optim.param_groups:
            group["lr"] = self.lr * min(1.0, self.updates / max(1, self.warmup_updates))
        return super().update(window, state)

    def judge(self, answer: Tensor, target: Tensor) -> dict[str, Tensor]:
        if isinstance(self.space, spaces.Discrete):
            right = (answer.argmax(-1) == target).float()
            return {"loss": F.cross_entropy(answer, target, reduction="none"), "accuracy": right}
        return {"mse": (torch.tanh(answer) - target).square().mean(-1)}

    def evaluate(self, agent: Any, env: Any, request: Request) -> Results:
        """Means over the episodes of `agent` at every rate of `eval_drops`; the same draws decide at all rates."""
        results = {}
        with one_thread():
            for probability in self.eval_drops:
                behind = Dropping(agent, probability, request.streams.torch("evaluation/drops"))
                results[dropping(probability)] = evaluate(cast(Agent, behind), env, request, greedy=True).summary()
        return results

    def score(self, results: Results) -> float:
        """The mean return over the rates of `eval_drops`, normalised if both returns that it needs are known."""
        mean = float(np.mean([results[dropping(probability)]["return_mean"] for probability in self.eval_drops]))
        if self.random_return is None or self.expert_return is None:
            return mean
        return 100 * (mean - self.random_return) / (self.expert_return - self.random_return)


def dropping(probability: float) -> str:
    """The name of evaluations in which frames are dropped with this probability, such as `drop_0.5`."""
    return f"drop_{probability:g}"
