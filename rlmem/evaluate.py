"""Evaluation: whole episodes with a trained agent, on random streams of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium.vector import VectorEnv

from rlmem.rollout import Actor, Collector, Episode
from rlmem.seeding import Streams


@dataclass(frozen=True)
class Scores:
    """Returns and lengths of evaluation episodes, and whether each was won where the environment says so."""

    returns: np.ndarray
    lengths: np.ndarray
    success: np.ndarray | None = None

    def summary(self) -> dict[str, float]:
        """return_mean, return_std (of episodes), return_sem (of the mean), length_mean, success_rate if known."""
        n = len(self.returns)
        std = float(self.returns.std(ddof=1)) if n > 1 else 0.0
        return {
            "return_mean": float(self.returns.mean()),
            "return_std": std,
            "return_sem": std / n**0.5,
            "length_mean": float(self.lengths.mean()),
            **({} if self.success is None else {"success_rate": float(self.success.mean())}),
        }


def evaluate(
    agent: Actor, env: VectorEnv, episodes: int, greedy: bool, streams: Streams, device: torch.device
) -> Scores:
    """Play `episodes` whole episodes, each from a fresh memory.

    Every environment plays a fixed share of them: counting whichever episodes end first would favour short ones.
    The same `streams` give the same episodes, whatever was evaluated or trained before.
    """
    generator = None if greedy else streams.torch("evaluation/act", device)
    collector = Collector(env, agent, streams.int("evaluation/env"), generator, device)
    share = [episodes // env.num_envs + (i < episodes % env.num_envs) for i in range(env.num_envs)]
    played: list[list[Episode]] = [[] for _ in range(env.num_envs)]
    while any(len(p) < n for p, n in zip(played, share, strict=True)):
        _, ended = collector.collect(slots=64, budget=2**62)
        for episode in ended:
            if len(played[episode.env]) < share[episode.env]:
                played[episode.env].append(episode)
    counted = [episode for env_episodes in played for episode in env_episodes]
    success = [e.success for e in counted if e.success is not None]
    return Scores(
        np.array([e.episode_return for e in counted]),
        np.array([e.length for e in counted]),
        np.array(success) if len(success) == len(counted) else None,
    )


def evaluate_both(
    agent: Actor, env: VectorEnv, episodes: int, streams: Streams, device: torch.device
) -> dict[str, dict[str, float]]:
    """{"greedy": ..., "sampled": ...}, each the summary of `episodes` episodes."""
    return {
        name: evaluate(agent, env, episodes, name == "greedy", streams, device).summary()
        for name in ("greedy", "sampled")
    }


LOGGED = ("return_mean", "length_mean", "success_rate")


def flat(results: dict[str, dict[str, float]], names: Sequence[str] = LOGGED) -> dict[str, Any]:
    """Evaluation results as metrics, e.g. eval/greedy/return_mean."""
    known = ((policy, name, values) for policy, values in results.items() for name in names if name in values)
    return {f"eval/{policy}/{name}": values[name] for policy, name, values in known}
