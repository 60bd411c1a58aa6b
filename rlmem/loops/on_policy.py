"""The on-policy loops: a rollout, then an update from it."""

from contextlib import closing
from dataclasses import asdict
from typing import Any, ClassVar

from rlmem.acting.actors import ActorPool
from rlmem.acting.collector import Collector, Episode, one_thread
from rlmem.batching import Rollout
from rlmem.core.types import processes
from rlmem.loops.base import Iteration, Loop
from rlmem.loops.parts import Output, Results, Training, make_collector, observe, own_stream
from rlmem.memory.base import redraw

RATIO_ALARM = {"float32": 1e-3, "tf32": 2.5e-3, "bf16": 2e-2}
"""By the precision of products: the deviation that rounding stays far below (docs/design.md, the replay invariant)."""
ADVICE = {"episodes": "e.g. env.num_envs=8", "saturation": "e.g. a smaller algo.lr"}


class OnPolicyLoop(Loop):
    """One iteration is one update: a rollout of `algo.rollout_slots` slots per environment (the last one shorter).

    With several processes (`rlmem.core.parallel`) each collects in environments of its own, and all make one update.

    algo: an `rlmem.algos.on_policy.FromRollouts`
    redraws: whether memories that draw random numbers get another seed after every update
    """

    redraws: ClassVar[bool] = True

    collector: Collector | ActorPool

    def __init__(self, training: Training, output: Output):
        super().__init__(training, output)
        self.algo.setup(self.agent, training.streams.torch(own_stream("rows")), training.settings.on_nan)
        self.collector = self.source()
        self.exploration = self.algo.explore(
            self.total_steps, self.total_steps
        )  # of the evaluation of a run that has ended
        self.observes = bool(self.agent.normalisers())

    def source(self) -> Collector | ActorPool:
        """The source of rollouts."""
        return make_collector(self.training, self.progress.say)

    def collect(self) -> tuple[Rollout, list[Episode]]:
        """Act with this process's share of what is left of the budget.

        `collector.steps` counts those of all processes. The first one gets the episodes of all, the others none.
        Environments are numbered as in one vector, and steps as if all processes had acted at the same pace.
        """
        here, before = processes(), self.collector.steps
        budget = self.total_steps - before
        self.exploration = self.algo.explore(before, self.total_steps)
        with one_thread():
            rollout, ended = self.collector.collect(
                self.algo.rollout_slots,
                budget // here.size + (here.rank < budget % here.size),
                complete_episodes=self.algo.complete_episodes,
                state_slots=self.state_slots(replay=False),
                exploration=self.exploration,
            )
        if here.size == 1:
            return rollout, ended
        self.collector.steps = before + int(here.totals(self.collector.steps - before)[0])
        for episode in ended:
            episode.step = min(before + (episode.step - before) * here.size, self.collector.steps)
            episode.env += here.rank * self.training.num_envs
        rows = [row for part in here.gathered([asdict(episode) for episode in ended]) for row in part]
        return rollout, sorted((Episode(**row) for row in rows), key=lambda episode: episode.step)

    def advance(self) -> Iteration:
        fraction = self.collector.steps / self.total_steps
        rollout, episodes = self.collect()
        self.cut = processes().totals(rollout.cut)[0] > 0
        with self.learning():
            metrics = self.algo.update(rollout, self.batching, fraction)
            if self.observes:  # only now: the update reads with the statistics that acting had
                observe(rollout.streams, self.agent)
            if self.redraws:
                redraw(self.agent)
        self.updates += 1
        (episodes_read,) = processes().totals(self.training.num_envs + int(rollout.streams.start[:, 1:].sum()))
        plain = {name.removeprefix(f"{self.algo.name}/"): value for name, value in metrics.items()}
        self.notices.read(plain, episodes_read, ADVICE)
        if (deviation := plain.get("ratio_max_dev", 0)) > RATIO_ALARM[self.agent.computes_in]:
            problem = f"{self.algo.name}/ratio_max_dev is {deviation:.1e}: training does not read what acting read"
            self.notices.say(f"{problem}; a memory or environment that breaks its contract?")
        return self.explored() | metrics | self.algo.finite.metrics(), episodes

    def state_dict(self) -> dict[str, Any]:
        """On the first process, the states of all processes; the others only send theirs."""
        state = super().state_dict()
        own = {"collector": state["collector"], "generator": state["algo"]["generator"]}
        return state if processes().size == 1 else state | {"processes": processes().gathered(own)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if processes().size > 1:
            own = state["processes"][processes().rank]
            state = state | {"collector": own["collector"], "algo": state["algo"] | {"generator": own["generator"]}}
        super().load_state_dict(state)


class ActorLoop(OnPolicyLoop):
    """An `OnPolicyLoop` with actors in other processes: an update learns from the first rollout that is ready.

    The order in which rollouts come differs between runs, so `state_dict` continues a run, but not exactly.
    """

    collector: ActorPool

    redraws = False  # a rollout that comes late must be read with the seed that it was acted with

    def source(self) -> ActorPool:
        training, algo = self.training, self.algo
        where = training.streams, training.device, self.progress.say, algo.ray_address
        return ActorPool(training.make_actor, algo.actors, training.num_envs, self.agent, *where)

    def run(self) -> Results:
        with closing(self.collector):
            return super().run()

    def advance(self) -> Iteration:
        metrics, episodes = super().advance()
        return metrics | {"actors/restarts": self.collector.restarts}, episodes
