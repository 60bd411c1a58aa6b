"""The off-policy loop: act a little, remember it, and learn from what is remembered."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from rlmem.algos.off_policy import OffPolicy
from rlmem.loops.base import Loop, redraw
from rlmem.replay import Replay
from rlmem.rollout import Episode


@dataclass
class OffPolicyLoop(Loop):
    """One iteration is at least `algo.record_every` environment steps, in rounds: a few slots in every environment,
    then the updates that are due by `algo.update_ratio`.

    No update is due before `algo.learning_starts` steps, nor before an episode has ended; what was not due is not made
    up for later. generator: draws what updates read;  counted: steps or episodes so far that make updates due
    """

    algo: OffPolicy
    replay: Replay = field(kw_only=True)
    generator: torch.Generator = field(kw_only=True)
    counted: int = field(default=0, kw_only=True)
    sample_time: float = field(default=0.0, kw_only=True)
    waiting: bool = field(default=False, kw_only=True)
    """The user knows that nothing has been learnt yet."""

    def advance(self) -> tuple[dict[str, float], list[Episode]]:
        end = min(self.collector.steps + self.algo.record_every, self.total_steps)
        ended: list[Episode] = []
        sums: defaultdict[str, list[Tensor]] = defaultdict(list)
        batches: defaultdict[str, list[float]] = defaultdict(list)
        while self.collector.steps < end:
            before = self.collector.steps
            exploring = self.algo.explore(before, self.total_steps)
            slots = self.batching.state_slots(replay=True)
            rollout, episodes = self.collect(self.algo.collect_slots, state_slots=slots)
            ended += episodes
            with self.learning():
                completed = self.replay.add(rollout)
                if self.collector.steps >= self.algo.learning_starts and self.replay.episodes:
                    self.counted += completed if self.algo.update_per == "episode" else self.collector.steps - before
                due = round(self.algo.update_ratio * self.counted, 6)  # 0.3 of 120 are 36, not 35.99...
                while self.updates + 1 <= due:
                    self._learn(sums, batches)
        redraw(self.agent)
        redraw(self.algo.target)
        late = self.collector.steps >= self.algo.learning_starts and not self.replay.episodes
        if late and not self.waiting:
            self.waiting = True
            self.progress.say(f"step {self.collector.steps}: learning waits for the end of a first episode")
        metrics = {name: float(torch.stack(values).mean()) for name, values in sums.items()}
        metrics |= {name: sum(values) / len(values) for name, values in batches.items()}
        metrics |= {"replay/transitions": self.replay.transitions, "replay/episodes": self.replay.episodes}
        return {f"explore/{name}": value for name, value in exploring.items()} | metrics, ended

    def _learn(self, sums: dict[str, list[Tensor]], batches: dict[str, list[float]]) -> None:
        """One update."""
        began = perf_counter()
        sample = self.replay.sample(self.batching, self.algo.batch_size, self.generator)
        self.sample_time += perf_counter() - began
        metrics, td_error = self.algo.update(sample.batch)
        self.replay.update_priorities(sample, td_error)
        self.updates += 1
        for name, value in metrics.items():
            sums[f"{self.algo.name}/{name}"].append(value)
        for name, count in sample.metrics.items():
            batches[name].append(count)

    def shares(self) -> dict[str, float]:
        return super().shares() | {"sample": self.sample_time / max(self.elapsed, 1e-9)}

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {
            "replay": self.replay.state_dict(),
            "generator": self.generator.get_state(),
            "counted": self.counted,
            "sample_time": self.sample_time,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.replay.load_state_dict(state["replay"])
        self.generator.set_state(state["generator"].cpu())
        self.counted = state["counted"]
        self.sample_time = state["sample_time"]
