"""The off-policy loop: act for a few slots, store them, and learn from the replay."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from rlmem.acting.collector import Episode, one_thread
from rlmem.batching import Replay
from rlmem.core.errors import Fault
from rlmem.loops.base import FEWEST_EPISODES, Iteration, Loop
from rlmem.loops.parts import Output, Training, make_collector, observe
from rlmem.memory.base import redraw

ENOUGH_TO_TELL = 2 * FEWEST_EPISODES
"""Episodes in the replay from which on batches of few episodes are reported: before, they could not hold more."""
ADVICE = {
    "episodes": "e.g. a larger algo.batch_size, or shorter segments",
    "saturation": "e.g. a smaller algo.lr, or a larger algo.action_l2 (TD3)",
}


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


class OffPolicyLoop(Loop):
    """One iteration is at least `algo.record_every` environment steps, in rounds: a few slots in every environment,
    then the updates that are due by `algo.update_ratio`. A checkpoint may be taken after any round.

    No update is due before `algo.learning_starts` steps, nor before the replay holds anything that the batching scheme
    can draw; updates that were not due are not made up for later.

    algo: an `rlmem.algos.off_policy.OffPolicy`
    generator: draws what updates read
    counted: steps or episodes so far that make updates due
    sample_time: seconds spent on drawing batches
    """

    saved = (*Loop.saved, "counted", "sample_time")

    def __init__(self, training: Training, output: Output):
        super().__init__(training, output)
        streams, device, agent, algo = training.streams, training.device, self.agent, self.algo
        algo.setup(agent, streams.torch("losses", device), training.settings.on_nan)
        agent.trunks.step_all = keeps_states = self.state_slots(replay=True) is not None
        exponents = algo.priority_exponent, algo.importance_exponent
        folder = None if algo.replay_dir is None else Path(algo.replay_dir)
        state = agent.initial_state(1) if keeps_states else None
        self.replay = Replay(algo.capacity, training.num_envs, device, *exponents, folder, state)
        self.collector = make_collector(training, self.progress.say)
        self.generator = streams.torch("replay")
        self.exploration = algo.explore(self.total_steps, self.total_steps)
        self.observes = bool(agent.normalisers())
        self.tally, self.counted, self.sample_time = Tally(), 0, 0.0

    def advance(self) -> Iteration | None:
        end = min(self.completed_steps + self.algo.record_every, self.total_steps)
        while self.collector.steps < end:
            if self.stop is not None:
                return None
            self._round()
        redraw(self.agent)
        redraw(self.algo.target)
        tally, self.tally = self.tally, Tally()
        metrics = tally.means()
        if tally.updates:
            metrics |= self._diagnose()
            enough = self.replay.episodes >= ENOUGH_TO_TELL
            plain = {name.rpartition("/")[2]: value for name, value in metrics.items()}
            self.notices.read(plain, metrics["batch/episodes"] if enough else None, ADVICE)
        metrics |= self.explored()
        metrics |= {"replay/transitions": self.replay.transitions, "replay/episodes": self.replay.episodes}
        return metrics | self.algo.finite.metrics(), tally.ended

    def _diagnose(self) -> dict[str, float]:
        """Measures of policy and critic on a batch of its own; the draws of training stay as they are."""
        generator = torch.Generator().manual_seed(self.collector.steps)
        sample = self.replay.sample(self.batching, self.algo.batch_size, generator)
        return {f"{self.algo.name}/{name}": float(value) for name, value in self.algo.diagnose(sample.batch).items()}

    def _round(self) -> None:
        """Act in every environment, and make the updates that are due."""
        before = self.collector.steps
        self.exploration = self.algo.explore(before, self.total_steps)
        with one_thread():
            rollout, episodes = self.collector.collect(
                self.algo.collect_slots,
                self.total_steps - before,
                state_slots=self.state_slots(replay=True),
                exploration=self.exploration,
            )
        self.tally.ended += episodes
        with self.learning():
            if self.observes:
                observe(rollout.streams, self.agent, self.algo.target)
            try:
                completed = self.replay.add(rollout)
            except Fault as fault:  # an episode that is longer than the replay
                raise Fault(f"step {self.collector.steps}: {fault}") from fault
            if self.collector.steps >= self.algo.learning_starts and self.replay.holds(self.batching):
                self.counted += completed if self.algo.update_per == "episode" else self.collector.steps - before
            due = round(self.algo.update_ratio * self.counted, 6)  # 0.3 of 120 are 36, not 35.99...
            updates = []
            while self.updates + 1 <= due:
                updates.append(self._learn())
            for (metrics, sampled), taken in zip(updates, self.algo.finite.settle(), strict=True):
                self.tally.add({f"{self.algo.name}/{k}": x for k, x in metrics.items()} if taken else {}, sampled)
        self._warn(max((episode.length for episode in episodes), default=0))

    def _learn(self) -> tuple[dict[str, Tensor], dict[str, float]]:
        """Make one update. Returns its metrics and those of its batch."""
        if self.algo.scale is None:
            self.algo.scale_rewards(self.replay.rewards(self.batching))
            if self.algo.scale is not None:
                self.notices.scaled(self.algo.scale)
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
            problem = f"an episode of {longest} transitions does not fit into a row of {room}"
            example = f"algo.batch_size={longest * (self.algo.batch_size // room)}"
            self.notices.once("room", f"{problem}: the end of such episodes is never learnt from; e.g. {example}")

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
