"""The on-policy loop with actors in processes of their own."""

from contextlib import closing
from dataclasses import dataclass

from rlmem.acting.actors import ActorPool
from rlmem.loops.base import Iteration
from rlmem.loops.on_policy import OnPolicyLoop


@dataclass(kw_only=True)
class ActorLoop(OnPolicyLoop):
    """One iteration is one update, from the rollout of the actor that is ready first.

    The order in which rollouts come differs between runs, so `state_dict` continues a run, but not exactly.
    """

    collector: ActorPool

    redraws = False  # a rollout that comes late must be read with the seed that it was acted with

    def run(self) -> dict[str, dict[str, float]]:
        with closing(self.collector):
            return super().run()

    def advance(self) -> Iteration:
        metrics, episodes = super().advance()
        return metrics | {"actors/restarts": self.collector.restarts}, episodes
