"""Evaluations during training: episodes of the agent on separate random streams, and films of some of them."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from gymnasium.vector import VectorEnv

from rlmem.acting.evaluate import Request
from rlmem.acting.film import film_episode
from rlmem.acting.workers import closing
from rlmem.agents.actor_critic import Agent, Exploration
from rlmem.core.errors import Fault, UserError
from rlmem.core.seeding import Streams
from rlmem.loops.parts import Results
from rlmem.record.rundir import video_path

LOGGED = ("return_mean", "length_mean", "success_rate", "unfinished")
"""The numbers of an evaluation that are logged as metrics."""


@dataclass(kw_only=True)
class Evaluations:
    """Evaluates an agent as a run's settings say.

    every: environment steps from one evaluation to the next; None: there is one, at the end
    episodes: how many episodes an evaluation plays
    max_steps: steps that an episode may take; None: there is no bound
    stop_at: the score (`Learner.score`) that ends the run; None: none does
    make_env: makes this number of environments for an evaluation
    streams: the random streams of the run
    device: where the agent computes
    say: called with a line for the user
    video_every: environment steps from one film to the next; None: there are no films
    run_dir: the run directory, in which films lie
    """

    every: int | None
    episodes: int
    max_steps: int | None
    stop_at: float | None
    make_env: Callable[[int], VectorEnv]
    streams: Streams
    device: torch.device
    say: Callable[[str], None]
    video_every: int | None = None
    run_dir: Path = Path()

    def play(self, algo: Any, agent: Any, exploration: Exploration, step: int) -> Results:
        """The results of an evaluation by `algo`, after `step` environment steps; `exploration` is for samples."""
        say = lambda line: self.say(f"step {step}: {line}")  # noqa: E731
        request = Request(self.episodes, self.streams, self.device, self.max_steps, say, exploration)
        try:
            with closing(self.make_env(self.episodes)) as env:
                return algo.evaluate(agent, env, request)
        except Fault as fault:
            raise Fault(f"step {step}: evaluation: {fault}", fault.traceback) from fault

    def film(self, agent: Agent, step: int) -> None:
        """Film an episode, the same in every film; there are no more films if the environment cannot be drawn."""
        try:
            path = video_path(self.run_dir, step)
            film_episode(agent, self.make_env(1), self.streams, self.device, self.max_steps, path)
        except (UserError, Fault) as error:  # a Fault: what drawing raises within a step
            self.video_every = None
            self.say(f"step {step}: no videos from here on: {error}")


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
