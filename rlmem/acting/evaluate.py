"""Evaluation: whole episodes with a trained agent, on separate random streams."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from gymnasium.vector import VectorEnv

from rlmem.acting.collector import Collector, Episode, Patience
from rlmem.agents.actor_critic import ON_POLICY, Agent, Exploration
from rlmem.core.seeding import Streams


@dataclass(frozen=True)
class Request:
    """The settings of an evaluation.

    episodes: how many episodes to play
    streams: their random streams; the same streams give the same episodes
    device: the agent's
    max_steps: steps after which an episode is cut, and counts with its return so far; None: never
    say: called with a line on the progress of a long evaluation, and on episodes that were cut
    exploration: how the agent explores where its actions are sampled
    """

    episodes: int
    streams: Streams
    device: torch.device
    max_steps: int | None = None
    say: Callable[[str], None] = lambda line: None
    exploration: Exploration = ON_POLICY


@dataclass(frozen=True)
class Scores:
    """Returns and lengths of evaluation episodes, whether each was won where the environment says so, and how many
    were cut."""

    returns: np.ndarray
    lengths: np.ndarray
    success: np.ndarray | None
    unfinished: int

    def summary(self) -> dict[str, float]:
        """return_mean, return_std (of episodes), return_sem (of the mean), length_mean, success_rate if known, and
        unfinished if there are any."""
        n = len(self.returns)
        std = float(self.returns.std(ddof=1)) if n > 1 else 0.0
        return {
            "return_mean": float(self.returns.mean()),
            "return_std": std,
            "return_sem": std / n**0.5,
            "length_mean": float(self.lengths.mean()),
            **({} if self.success is None else {"success_rate": float(self.success.mean())}),
            **({"unfinished": float(self.unfinished)} if self.unfinished else {}),
        }


def evaluate(agent: Agent, env: VectorEnv, request: Request, greedy: bool) -> Scores:
    """Play whole episodes, each from a fresh memory.

    Every environment plays a fixed share of them: counting whichever episodes end first would favour short ones.
    The same streams give the same episodes, whatever was evaluated or trained before.

    agent: acts
    env: a vector of environments
    request: how many episodes, and the other settings
    greedy: whether the agent takes its best actions; otherwise it samples them
    """
    episodes, streams, max_steps = request.episodes, request.streams, request.max_steps
    generator = None if greedy else streams.torch("evaluation/act", request.device)
    collector = Collector(env, agent, streams.int("evaluation/env"), generator, request.device)
    share = [episodes // env.num_envs + (i < episodes % env.num_envs) for i in range(env.num_envs)]
    played: list[list[Episode]] = [[] for _ in range(env.num_envs)]
    cut: set[int] = set()  # environments whose episode was cut; it goes on in them until all are restarted
    unfinished, patience, kind = 0, Patience(), "greedy" if greedy else "sampled"
    while missing := [i for i, n in enumerate(share) if len(played[i]) < n]:
        going = [i for i in missing if i not in cut]
        if not going:
            cut.clear()
            collector.restart()
            continue
        longest = int(collector.episode_length[going].max())
        slots = 64 if max_steps is None else min(64, max_steps - longest)
        _, ended = collector.collect(slots, budget=2**62, exploration=request.exploration)
        for episode in ended:
            if episode.env in going and len(played[episode.env]) < share[episode.env]:
                played[episode.env].append(episode)
        for i in going:
            length, score = int(collector.episode_length[i]), float(collector.episode_return[i])
            if max_steps is not None and length >= max_steps and len(played[i]) < share[i]:
                played[i].append(Episode(collector.steps, i, score, length, terminated=False, truncated=True))
                cut.add(i)
                unfinished += 1
        if patience.is_due():
            so_far = sum(map(len, played))
            request.say(f"evaluating: {so_far} of {episodes} {kind} episodes played, {collector.steps:,} steps taken")
    if max_steps is not None and unfinished:
        problem = f"{unfinished} of {episodes} {kind} episodes had not ended after {max_steps:,} steps"
        example = f"evaluation.max_steps={10 * max_steps}, or null for no bound"
        request.say(f"evaluation: {problem} and count with what they had got by then; e.g. {example}")
    counted = [episode for env_episodes in played for episode in env_episodes]
    success = [e.success for e in counted if e.success is not None]
    return Scores(
        np.array([e.episode_return for e in counted]),
        np.array([e.length for e in counted]),
        np.array(success) if len(success) == len(counted) else None,
        unfinished,
    )
