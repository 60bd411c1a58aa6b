"""What a run hands to its loop: what is trained, and where its record goes; and the statistics that both loops keep."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from gymnasium.vector import VectorEnv

from rlmem.acting.collector import Collector
from rlmem.agents.actor_critic import Agent, Network
from rlmem.batching import Batching
from rlmem.core.seeding import Streams
from rlmem.core.types import Batch, processes
from rlmem.loops.callbacks import Callback
from rlmem.record.checkpoint import Checkpoints
from rlmem.record.recorder import Progress, Recorder

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


@torch.no_grad()
def observe(streams: Batch, *networks: Network) -> None:
    """Add the observations of a rollout, those of all processes, to the running statistics of `networks`.

    Called between rollouts, never between acting on a slot and learning from it on-policy. Networks without such
    statistics stay as they are. The first observation of every episode counts, and the one that follows each counted
    action: n + 1 for an episode of n actions, wherever rollouts cut it, since a bootstrap slot's observation counts
    here and not as slot 0 of the next rollout.

    streams: the streams [N, T+1] of a rollout
    networks: an agent, and its target network if there is one; all have seen the same observations so far
    """
    norms = [norm for network in networks for norm in network.normalisers()]
    if not norms:
        return
    seen = streams.mask & streams.start
    seen[:, 1:] |= streams.mask[:, :-1]
    weight = seen.double()[..., None]  # weights: selecting would make CUDA wait
    summed = processes().summed
    count = summed(weight.sum())
    for leaf in dict.fromkeys(norm.leaf for norm in norms):
        obs = (streams.obs if leaf is None else streams.obs[leaf]).double()
        mean = summed((weight * obs).sum((0, 1))) / count.clamp(min=1)
        variance = summed((weight * (obs - mean).square()).sum((0, 1))) / count.clamp(min=1)
        for norm in norms:
            if norm.leaf == leaf:
                norm.add(count, mean, variance)
