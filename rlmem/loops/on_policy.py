"""The on-policy loops: a rollout, then an update from it."""

from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Protocol

from rlmem.acting.actors import ActorPool
from rlmem.acting.collector import Collector, Episode
from rlmem.agents.actor_critic import Exploration
from rlmem.batching import Batching, Rollout
from rlmem.loops.base import Iteration, Loop, one_thread
from rlmem.loops.observe import observe
from rlmem.loops.parts import Learner, Results
from rlmem.memory.base import redraw
from rlmem.parallel import alone, gathered, place, totals

RATIO_ALARM = {"float32": 1e-3, "tf32": 2.5e-3, "bf16": 2e-2}
"""By the precision of the agent's products (docs/design.md, "Precision")."""
"""Rounding stays far below this deviation; see the replay invariant in docs/design.md."""


class RolloutLearner(Learner, Protocol):
    """What the on-policy loop needs of an algorithm; see `rlmem.algos.on_policy.OnPolicy` for what members mean."""

    rollout_slots: int
    complete_episodes: bool

    def explore(self, steps: int, total_steps: int) -> Exploration: ...
    def exploration_metrics(self, exploration: Exploration) -> dict[str, float]: ...
    def update(self, rollout: Rollout, batching: Batching, progress: float) -> dict[str, float]: ...


@dataclass(kw_only=True)
class OnPolicyLoop(Loop):
    """One iteration is one update: a rollout of `algo.rollout_slots` slots per environment (the last one shorter).

    With several processes (`rlmem.parallel`) each collects in environments of its own, and all make the same update.

    redraws: whether memories that draw random numbers get another seed after every update
    """

    algo: RolloutLearner
    collector: Collector | ActorPool

    redraws: ClassVar[bool] = True

    def collect(self) -> tuple[Rollout, list[Episode]]:
        """Act with this process's share of what is left of the budget.

        `collector.steps` counts those of all processes. The first one gets the episodes of all, the others none.
        Environments are numbered as in one vector, and steps as if all processes had acted at the same pace.
        """
        here, before = place(), self.collector.steps
        budget, state_slots = self.total_steps - before, self.state_slots(replay=False)
        share = budget // here.size + (here.rank < budget % here.size)
        self.exploration = self.algo.explore(before, self.total_steps)
        with one_thread():
            rollout, ended = self.collector.collect(
                self.algo.rollout_slots,
                share,
                complete_episodes=self.algo.complete_episodes,
                state_slots=state_slots,
                exploration=self.exploration,
            )
        if alone():
            return rollout, ended
        self.collector.steps = before + int(totals(self.collector.steps - before)[0])
        for episode in ended:
            episode.step = min(before + (episode.step - before) * here.size, self.collector.steps)
            episode.env += here.rank * self.num_envs
        episodes = [Episode(**given) for part in gathered([asdict(episode) for episode in ended]) for given in part]
        return rollout, sorted(episodes, key=lambda episode: episode.step)

    def advance(self) -> Iteration:
        fraction = self.collector.steps / self.total_steps
        rollout, episodes = self.collect()
        self.cut = totals(rollout.cut)[0] > 0
        with self.learning():
            metrics = self.algo.update(rollout, self.batching, fraction)
            observe(rollout.streams, self.agent)  # only now: the update reads with the statistics that acting had
            if self.redraws:
                redraw(self.agent)
        self.updates += 1
        (seen,) = totals(self.num_envs + int(rollout.streams.start[:, 1:].sum()))
        self.notices.few_episodes(seen, "e.g. env.num_envs=8")
        prefix = f"{self.algo.name}/"
        own = {name.removeprefix(prefix): value for name, value in metrics.items()}
        self.notices.saturation(own, "e.g. a smaller algo.lr")
        if own.get("reward_scale", 1.0) != 1.0:
            what = f"rewards are learnt from times {own['reward_scale']:.3g} (algo.reward_scale)"
            self.notices.once("scale", what)
        deviation = f"{prefix}ratio_max_dev"
        if metrics.get(deviation, 0) > RATIO_ALARM[self.agent.computes_in]:
            what = f"{deviation} is {metrics[deviation]:.1e}: training does not read what acting read"
            why = "a memory or environment that breaks its contract?"
            self.progress.say(f"step {self.collector.steps}: {what}; {why}")
        exploring = self.algo.exploration_metrics(self.exploration).items()
        how = {f"explore/{name}": value for name, value in exploring}
        return how | metrics | self.algo.skipped(), episodes

    def state_dict(self) -> dict[str, Any]:
        """On the first process, the states of all processes; the others only send theirs."""
        state = super().state_dict()
        own = {"collector": state["collector"], "generator": state["algo"]["generator"]}
        return state if alone() else state | {"processes": gathered(own)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if not alone():
            own = state["processes"][place().rank]
            state = state | {"collector": own["collector"], "algo": state["algo"] | {"generator": own["generator"]}}
        super().load_state_dict(state)


@dataclass(kw_only=True)
class ActorLoop(OnPolicyLoop):
    """An `OnPolicyLoop` with actors in other processes: an update learns from the first rollout that is ready.

    The order in which rollouts come differs between runs, so `state_dict` continues a run, but not exactly.
    """

    collector: ActorPool

    redraws = False  # a rollout that comes late must be read with the seed that it was acted with

    def run(self) -> Results:
        with closing(self.collector):
            return super().run()

    def advance(self) -> Iteration:
        metrics, episodes = super().advance()
        return metrics | {"actors/restarts": self.collector.restarts}, episodes
