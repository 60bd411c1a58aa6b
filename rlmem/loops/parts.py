"""What a training loop is made of, and what it needs of the algorithm that it runs."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, cast

import torch
from gymnasium.vector import VectorEnv

from rlmem.acting.collector import Collector
from rlmem.acting.evaluate import Request
from rlmem.agents.actor_critic import Agent, Network
from rlmem.batching import Batching
from rlmem.batching.base import StateSlots
from rlmem.loops.callbacks import Callbacks
from rlmem.loops.videos import Videos
from rlmem.parallel import place
from rlmem.record.checkpoint import Checkpoints
from rlmem.record.progress import Progress
from rlmem.record.recorder import Recorder
from rlmem.seeding import Streams

OnNan = Literal["stop", "skip"]
"""What to do with a gradient step whose loss or gradient is not finite."""

Results = dict[str, dict[str, float]]
"""What an evaluation found: {policy: {metric: mean}}, or {"held_out": {metric: mean}} where nothing acts."""


class Learner(Protocol):
    """What every loop needs of the algorithm that it runs; see `rlmem.algos.base.Algorithm`."""

    @property
    def name(self) -> str: ...
    def evaluate(self, agent: Any, env: Any, request: Request) -> Results: ...
    def skipped(self) -> dict[str, float]: ...
    def learnt(self) -> dict[str, Any]: ...
    def load_learnt(self, state: dict[str, Any]) -> None: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class Source(Protocol):
    """Where the data of a loop come from: environments in which the agent acts, or windows of recorded data.

    steps: environment steps, or slots that were read, so far
    seconds: time spent on collecting, by what it was spent on
    """

    steps: int
    seconds: dict[str, float]

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> None: ...


@dataclass(kw_only=True)
class LoopParts:
    """What a run gives to its loop. The algorithm adds itself and the source of its data (`Algorithm.make_loop`).

    total_steps: the budget, in environment steps
    env: the environments of this process, or a source of labelled sequences
    num_envs: how many environments, or rows read side by side
    streams: the random streams of the run, of which each consumer takes those of its own names
    make_eval_env: makes the environments of an evaluation
    make_actor: makes the environments and the agent of an actor in another process; picklable
    evaluation_every, checkpoint_every: environment steps from one to the next; None: there are none
    evaluation_episodes: how many episodes an evaluation plays
    evaluation_steps: steps that an episode of an evaluation may take; None: there is no bound
    videos: films episodes at some evaluations; None: there are no films
    stop_at: the result of an evaluation (`Loop.objective`) that ends the run; None: none does
    recorder, checkpoints, progress: write and show the run; those of processes beside the first do nothing
    experiment: the settings that the run's numbers depend on, kept in every checkpoint
    callbacks: called as the run goes on, by the first process alone
    """

    total_steps: int
    agent: Network
    env: Any
    num_envs: int
    make_actor: Callable[[], tuple[VectorEnv, Agent]]
    device: torch.device
    batching: Batching
    streams: Streams
    on_nan: OnNan
    make_eval_env: Callable[[], VectorEnv]
    evaluation_every: int | None
    evaluation_episodes: int
    evaluation_steps: int | None
    stop_at: float | None
    recorder: Recorder
    checkpoints: Checkpoints
    checkpoint_every: int | None
    progress: Progress
    videos: Videos | None = None
    experiment: dict[str, Any] = field(default_factory=dict)
    callbacks: Callbacks = field(default_factory=Callbacks)

    def state_slots(self, replay: bool) -> StateSlots | None:
        """As `Batching.state_slots`; None if no memory has a state that could be kept."""
        return None if self.agent.trunks.stateless else self.batching.state_slots(replay)

    @staticmethod
    def own_stream(name: str) -> str:
        """The name of a random stream that belongs to this process alone, where several train together."""
        rank = place().rank
        return f"{name}/{rank}" if rank else name

    def make_collector(self) -> Collector:
        """Acts in the environments of this process, with random streams of its own."""
        acting = self.streams.torch(self.own_stream("act"), self.device)
        seed = self.streams.int(self.own_stream("env"))
        collector = Collector(self.env, cast(Agent, self.agent), seed, acting, self.device)
        collector.say = self.progress.say
        return collector
