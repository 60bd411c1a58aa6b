"""The on-policy loop: a rollout, then an update from it."""

from __future__ import annotations

from dataclasses import dataclass

from rlmem.algos.on_policy import OnPolicy
from rlmem.loops.base import Iteration, Loop, redraw

RATIO_ALARM = 1e-3
"""Rounding stays far below; see the replay invariant in docs/design.md."""


@dataclass
class OnPolicyLoop(Loop):
    """One iteration is one update: a rollout of `algo.rollout_slots` slots per environment (the last one shorter)."""

    algo: OnPolicy

    def advance(self) -> Iteration:
        fraction = self.collector.steps / self.total_steps
        rollout, episodes = self.collect(
            self.algo.rollout_slots,
            complete_episodes=self.algo.complete_episodes,
            state_slots=self.batching.state_slots(replay=False),
        )
        with self.learning():
            metrics = self.algo.update(rollout, self.batching, fraction)
            redraw(self.agent)
        self.updates += 1
        deviation = f"{self.algo.name}/ratio_max_dev"
        if metrics.get(deviation, 0) > RATIO_ALARM:
            self.progress.say(
                f"step {self.collector.steps}: {deviation} is {metrics[deviation]:.1e}: training does not read what "
                f"acting read; a memory or environment that breaks its contract?"
            )
        return metrics | self.algo.finite.metrics(), episodes
