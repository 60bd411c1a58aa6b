"""The off-policy loop: act for a few slots, store them, and learn from the replay."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from time import perf_counter
from typing import Any, Protocol

import torch
from torch import Tensor

from rlmem.acting.collector import Collector, Episode
from rlmem.agents.actor_critic import Exploration, Network
from rlmem.errors import Fault
from rlmem.loops.base import Iteration, Loop, one_thread
from rlmem.loops.notices import FEWEST_EPISODES
from rlmem.loops.observe import observe
from rlmem.loops.parts import Learner
from rlmem.memory.base import redraw
from rlmem.replay import Replay
from rlmem.types import Batch

ENOUGH_TO_TELL = 2 * FEWEST_EPISODES
"""Episodes in the replay from which on batches of few episodes are reported: before, they could not hold more."""


class ReplayLearner(Learner, Protocol):
    """What the off-policy loop needs of an algorithm; see `rlmem.algos.off_policy.OffPolicy` for what members mean."""

    batch_size: int
    collect_slots: int
    learning_starts: int
    update_ratio: float
    record_every: int
    scale: float | None
    target: Network

    @property
    def update_per(self) -> str: ...
    def explore(self, steps: int, total_steps: int) -> Exploration: ...
    def exploration_metrics(self, exploration: Exploration) -> dict[str, float]: ...
    def scale_rewards(self, rewards: Tensor) -> None: ...
    def update(self, batch: Batch) -> tuple[dict[str, Tensor], Tensor]: ...
    def settle(self) -> list[bool]: ...
    def diagnose(self, batch: Batch) -> dict[str, Tensor]: ...


@dataclass
class Tally:
    """What has happened in the present iteration so far: updates, the sum of each metric and how many updates had it,
    sums of the metrics of batches, and the episodes that ended."""

    updates: int = 0
    sums: dict[str, Tensor] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    batches: dict[str, float] = field(default_factory=dict)
    ended: list[Episode] = field(default_factory=list)

    def add(self, metrics: dict[str, Tensor], batch: dict[str, float]) -> None:
        """Count one update, with the metrics of its step and of its batch."""
        self.updates += 1
        for name, value in metrics.items():
            self.sums[name] = self.sums.get(name, 0) + value
            self.counts[name] = self.counts.get(name, 0) + 1
        for name, number in batch.items():
            self.batches[name] = self.batches.get(name, 0) + number

    def means(self) -> dict[str, float]:
        metrics = {name: float(total) / self.counts[name] for name, total in self.sums.items()}
        return metrics | {name: total / self.updates for name, total in self.batches.items()}

    def state_dict(self) -> dict[str, Any]:
        return vars(self) | {"ended": [asdict(episode) for episode in self.ended]}

    @classmethod
    def of(cls, state: dict[str, Any]) -> Tally:
        return cls(**state | {"ended": [Episode(**episode) for episode in state["ended"]]})


@dataclass(kw_only=True)
class OffPolicyLoop(Loop):
    """One iteration is at least `algo.record_every` environment steps, in rounds: a few slots in every environment,
    then the updates that are due by `algo.update_ratio`. A checkpoint may be taken after any round.

    No update is due before `algo.learning_starts` steps, nor before the replay holds anything that the batching scheme
    can draw; updates that were not due are not made up for later.

    generator: draws what updates read
    counted: steps or episodes so far that make updates due
    sample_time: seconds spent on drawing batches
    """

    saved = (*Loop.saved, "counted", "sample_time")

    algo: ReplayLearner
    collector: Collector
    replay: Replay
    generator: torch.Generator
    counted: int = 0
    tally: Tally = field(default_factory=Tally)
    sample_time: float = 0.0

    def advance(self) -> Iteration | None:
        end = min(self.completed_steps + self.algo.record_every, self.total_steps)
        while self.collector.steps < end:
            if self.stop is not None:
                return None
            self._round()
        redraw(self.agent)
        redraw(self.algo.target)
        tally, self.tally = self.tally, Tally()
        kept = {"replay/transitions": self.replay.transitions, "replay/episodes": self.replay.episodes}
        exploring = self.algo.exploration_metrics(self.exploration).items()
        how = {f"explore/{name}": value for name, value in exploring}
        means = tally.means() | (self._diagnose() if tally.updates else {})
        if tally.updates and self.replay.episodes >= ENOUGH_TO_TELL:
            self.notices.few_episodes(means["batch/episodes"], "e.g. a larger algo.batch_size, or shorter segments")
        return how | means | kept | self.algo.skipped(), tally.ended

    def _diagnose(self) -> dict[str, float]:
        """What a batch of its own says about policy and critic; the draws of training stay as they are."""
        generator = torch.Generator().manual_seed(self.collector.steps)
        found = self.algo.diagnose(self.replay.sample(self.batching, self.algo.batch_size, generator).batch)
        metrics = {name: float(value) for name, value in found.items()}
        self.notices.saturation(metrics, "e.g. a smaller algo.lr, or a larger algo.action_l2 (TD3)")
        return {f"{self.algo.name}/{name}": value for name, value in metrics.items()}

    def _round(self) -> None:
        """Act in every environment, and make the updates that are due."""
        before = self.collector.steps
        self.exploration = self.algo.explore(before, self.total_steps)
        slots = self.state_slots(replay=True)
        with one_thread():
            rollout, episodes = self.collector.collect(
                self.algo.collect_slots, self.total_steps - before, state_slots=slots, exploration=self.exploration
            )
        self.tally.ended += episodes
        with self.learning():
            observe(rollout.streams, self.agent, self.algo.target)
            try:
                completed = self.replay.add(rollout)
            except Fault as fault:  # an episode that is longer than the replay
                raise Fault(f"step {self.collector.steps}: {fault}") from fault
            if self.collector.steps >= self.algo.learning_starts and self.replay.holds(self.batching):
                self.counted += completed if self.algo.update_per == "episode" else self.collector.steps - before
            due = round(self.algo.update_ratio * self.counted, 6)  # 0.3 of 120 are 36, not 35.99...
            made = []
            while self.updates + 1 <= due:
                made.append(self._learn())
            for (metrics, sampled), taken in zip(made, self.algo.settle(), strict=True):
                self.tally.add({f"{self.algo.name}/{k}": x for k, x in metrics.items()} if taken else {}, sampled)
        self._warn(max((episode.length for episode in episodes), default=0))

    def _learn(self) -> tuple[dict[str, Tensor], dict[str, float]]:
        """Make one update. Returns its metrics and those of its batch."""
        if self.algo.scale is None:
            self.algo.scale_rewards(self.replay.rewards(self.batching))
            if self.algo.scale is not None:
                what = f"rewards are learnt from times {self.algo.scale:.3g} (algo.reward_scale)"
                self.notices.once("scale", what)
        began = perf_counter()
        sample = self.replay.sample(self.batching, self.algo.batch_size, self.generator)
        self.sample_time += perf_counter() - began
        metrics, td_error = self.algo.update(sample.batch)
        self.replay.update_priorities(sample, td_error)
        self.updates += 1
        return metrics, sample.metrics

    def _warn(self, longest: int) -> None:
        """Tell the user what keeps the agent from learning: no episode yet, or episodes longer than a row."""
        if self.collector.steps >= self.algo.learning_starts and not (self.batching.running or self.replay.episodes):
            self.notices.once("wait", "learning waits for the end of a first episode")
        room = self.batching.longest_episode(self.algo.batch_size)
        if room is not None and longest > room:
            what = f"an episode of {longest} transitions does not fit into a row of {room}"
            example = f"algo.batch_size={longest * (self.algo.batch_size // room)}"
            self.notices.once("room", f"{what}: the end of such episodes is never learnt from; e.g. {example}")

    def shares(self) -> dict[str, float]:
        return super().shares() | {"sample": self.sample_time / max(self.elapsed, 1e-9)}

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {
            "replay": self.replay.state_dict(),
            "generator": self.generator.get_state(),
            "tally": self.tally.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.replay.load_state_dict(state["replay"])
        self.generator.set_state(state["generator"].cpu())
        self.tally = Tally.of(state["tally"])
