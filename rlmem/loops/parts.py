"""What a run hands to its loop: what is trained, and where its record goes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from gymnasium.vector import VectorEnv

from rlmem.acting.collector import Collector
from rlmem.agents.actor_critic import Agent, Network
from rlmem.batching import Batching
from rlmem.loops.callbacks import Callback
from rlmem.record.checkpoint import Checkpoints
from rlmem.record.recorder import Progress, Recorder
from rlmem.seeding import Streams
from rlmem.types import processes

OnNan = Literal["stop", "skip"]
"""What to do with a gradient step whose loss or gradient is not finite."""

Results = dict[str, dict[str, float]]
"""The results of an evaluation: {policy: {metric: mean}}, or {"held_out": {metric: mean}} where nothing acts."""


@dataclass(kw_only=True)
class Training:
    """What is trained, and what it learns from.

    total_steps: the budget, in environment steps
    env: the environments of this process, or a source of labelled sequences
    num_envs: how many environments, or rows read side by side
    make_actor: makes the environments and the agent of an actor in another process; picklable
    streams: the random streams of the run, of which each consumer takes those of its own names
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


@dataclass(kw_only=True)
class Output:
    """What writes and shows a run; in a process beside the first, these objects do nothing.

    checkpoint_every: environment steps from one checkpoint to the next; None: there is one, at the end
    experiment: the settings that the run's numbers depend on, kept in every checkpoint
    callbacks: by name, called as the run goes on
    """

    recorder: Recorder
    progress: Progress
    checkpoints: Checkpoints
    checkpoint_every: int | None
    experiment: dict[str, Any] = field(default_factory=dict)
    callbacks: Mapping[str, Callback] = field(default_factory=dict)


def own_stream(name: str) -> str:
    """The name of a random stream that belongs to this process alone, where several train together."""
    rank = processes().rank
    return f"{name}/{rank}" if rank else name


def make_collector(training: Training, output: Output) -> Collector:
    """A collector that acts in the environments of this process, with random streams of its own."""
    acting = training.streams.torch(own_stream("act"), training.device)
    seed = training.streams.int(own_stream("env"))
    collector = Collector(training.env, training.agent, seed, acting, training.device)  # type: ignore[arg-type]
    collector.say = output.progress.say
    return collector
