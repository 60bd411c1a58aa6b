"""Animations of greedy episodes, made now and then as a run evaluates its agent."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from gymnasium.vector import VectorEnv

from rlmem.acting.film import film_episode
from rlmem.agents.actor_critic import Agent
from rlmem.errors import Fault, UserError
from rlmem.record.rundir import video_path
from rlmem.seeding import Streams


@dataclass
class Videos:
    """Films one episode, the same in every film, at the first evaluation after every `every` environment steps.

    run_dir: the run directory, in which they lie
    every: environment steps from one to the next
    make_env: makes one environment of the evaluation
    streams: the random streams of the run
    device: where the agent computes
    max_steps: see `film_episode`
    say: called with a line if the environment cannot be drawn; nothing is filmed from then on
    """

    run_dir: Path
    every: int
    make_env: Callable[[], VectorEnv]
    streams: Streams
    device: torch.device
    max_steps: int | None
    say: Callable[[str], None]
    works: bool = True

    def film(self, agent: Agent, step: int) -> None:
        """Film the agent as it is after `step` environment steps."""
        if not self.works:
            return
        try:
            path = video_path(self.run_dir, step)
            film_episode(agent, self.make_env(), self.streams, self.device, self.max_steps, path)
        except (UserError, Fault) as error:  # a Fault: what drawing raises within a step
            self.works = False
            self.say(f"step {step}: no videos from here on: {error}")
