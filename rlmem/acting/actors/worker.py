"""What an actor's process does."""

import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from gymnasium.vector import VectorEnv
from torch import Tensor

from rlmem.acting.collector import Collector, Episode
from rlmem.agents.base import Agent
from rlmem.batching import Rollout
from rlmem.seeding import Streams

Maker = Callable[[], tuple[VectorEnv, Agent]]
"""Makes an actor's environments and its agent, on the CPU."""


class Worker:
    """An actor: environments, a copy of the agent, and random streams of its own.

    make: makes the environments and the agent
    seed: root of the random streams
    name: prefix of the streams' names
    path: the learner's `sys.path`
    """

    def __init__(self, make: Maker, seed: int, name: str, path: Sequence[str]):
        sys.path.extend(folder for folder in path if folder not in sys.path)
        torch.set_num_threads(1)
        self.make, self.streams, self.name = make, Streams(seed), name
        self.collector: Collector | None = None

    def collect(self, weights: dict[str, Tensor], slots: int, budget: int, **how: Any) -> tuple[Rollout, list[Episode]]:
        """Act with these weights; see `Collector.collect`. `Episode.step` counts from the rollout's beginning."""
        if self.collector is None:  # only now, so that the learner receives an environment's error
            env, agent = self.make()
            env_seed, acting = self.streams.int(f"{self.name}/env"), self.streams.torch(f"{self.name}/act")
            self.collector = Collector(env, agent, env_seed, acting, torch.device("cpu"))
        self.collector.agent.load_state_dict(weights)  # type: ignore[attr-defined]
        self.collector.steps = 0
        return self.collector.collect(slots, budget, **how)
