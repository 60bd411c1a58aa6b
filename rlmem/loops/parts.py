"""What a run hands to its loop (`Training`, `Output`, callbacks), and what loops share: the collector, statistics of
observations, and the results of an evaluation as metrics and as text.
"""

import traceback
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from gymnasium.vector import VectorEnv

from rlmem.acting.collector import Collector
from rlmem.agents.actor_critic import Agent, Network
from rlmem.batching import Batching
from rlmem.core.errors import Fault, UserError, one_line
from rlmem.core.seeding import Streams
from rlmem.core.types import Batch, processes
from rlmem.record.checkpoint import Checkpoints
from rlmem.record.recorder import Progress, Recorder


class Callback:
    """What a run calls; a subclass writes the methods that it needs.

    What they are given are copies: a callback watches a run and cannot change its numbers. An exception that it raises
    ends the run like any fault, and a resumed run goes on from the newest checkpoint.
    """

    def on_start(self, run_dir: Path, config: dict[str, Any]) -> None:
        """The run begins or continues. `config`: what its config.yaml holds, nested."""

    def on_iteration(self, row: dict[str, float]) -> None:
        """An iteration has ended; `row` is its row of metrics.jsonl."""

    def on_evaluation(self, step: int, results: dict[str, dict[str, float]]) -> None:
        """The agent was evaluated after `step` environment steps: {"greedy": {"return_mean": ...}, "sampled": ...}."""

    def on_checkpoint(self, path: Path) -> None:
        """A checkpoint was written."""

    def on_end(self) -> None:
        """The run has reached its end."""


def notify(name: str, callback: Callback, event: str, *arguments: Any) -> None:
    """Call the method `event` of a callback with copies of the arguments. Raises Fault for an exception."""
    try:
        getattr(callback, event)(*deepcopy(arguments))
    except (UserError, Fault):
        raise
    except Exception as error:  # whatever a user's code raises
        raise Fault(f"callbacks.{name}: {event} raised {one_line(error)}", traceback.format_exc()) from error


OnNan = Literal["stop", "skip"]
"""What to do with a gradient step whose loss or gradient is not finite."""

Results = dict[str, dict[str, float]]
"""The results of an evaluation: {policy: {metric: mean}}, or {"held_out": {metric: mean}} where nothing acts."""


@dataclass
class Training:
    """What is trained, what it learns from, and where it is evaluated.

    algo: learns (`rlmem.algos.base.Learner`)
    settings: those of the run (`rlmem.config.schema.Settings`)
    streams: the random streams of the run, of which each consumer takes those of its own names
    env: the environments of this process, or a source of labelled sequences
    num_envs: environments of this process, or the rows that a supervised algorithm reads side by side
    make_env: makes at most so many environments for an evaluation
    make_actor: makes the environments and the agent of an actor in another process; picklable
    evaluation_streams: the random streams of evaluations
    """

    algo: Any
    settings: Any
    streams: Streams
    device: torch.device
    env: Any
    agent: Any
    batching: Batching
    num_envs: int
    make_env: Callable[[int], VectorEnv]
    make_actor: Callable[[], tuple[VectorEnv, Agent]]
    evaluation_streams: Streams


@dataclass(kw_only=True)
class Output:
    """What writes and shows a run; in a process beside the first, these objects do nothing.

    run_dir: the run directory; None in such a process
    experiment: the settings that the run's numbers depend on, kept in every checkpoint
    callbacks: by name, called as the run goes on
    """

    recorder: Recorder
    progress: Progress
    checkpoints: Checkpoints
    run_dir: Path | None
    experiment: dict[str, Any] = field(default_factory=dict)
    callbacks: Mapping[str, Callback] = field(default_factory=dict)


def own_stream(name: str) -> str:
    """The name of a random stream that belongs to this process alone, where several train together."""
    rank = processes().rank
    return f"{name}/{rank}" if rank else name


def make_collector(training: Training, say: Callable[[str], None]) -> Collector:
    """A collector that acts in the environments of this process, with random streams of its own."""
    acting, seed = training.streams.torch(own_stream("act"), training.device), training.streams.int(own_stream("env"))
    collector = Collector(training.env, training.agent, seed, acting, training.device)
    collector.say = say
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


LOGGED = ("return_mean", "length_mean", "success_rate", "unfinished")
"""The numbers of an evaluation that are logged as metrics."""


def result_metrics(results: Results) -> dict[str, float]:
    """The results of an evaluation as metrics."""
    if "held_out" in results:
        return {f"eval/{name}": value for name, value in results["held_out"].items()}
    known = ((policy, name, values) for policy, values in results.items() for name in LOGGED if name in values)
    return {f"eval/{policy}/{name}": values[name] for policy, name, values in known}


def result_text(results: Results) -> str:
    """The results of an evaluation, for the user."""
    if "held_out" in results:
        return "held-out " + ", ".join(f"{name} {mean:.4f}" for name, mean in results["held_out"].items())
    policies = [f"{name} {means['return_mean']:.3f} ± {means['return_sem']:.3f}" for name, means in results.items()]
    return f"return {', '.join(policies)}"
