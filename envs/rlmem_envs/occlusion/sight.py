"""What CartPole and Pendulum share: a part of the state is shown, which `observe` says."""

from typing import Annotated, Any

from annotated_types import Gt

from rlmem_envs.core.batched import NOTHING, BatchedEnv, Horizons
from rlmem_envs.core.cartpole import Sight


class PartlySeen(BatchedEnv):
    """A task whose state is seen whole, or only its positions, or only its velocities.

    To be named before the task, whose own state is all of the full state but the share of steps at its end.

    observe: the part of the state that is shown
    horizon: the most steps of an episode
    privileged: see `BatchedEnv`
    """

    tests = "control: estimating the part of the state that is hidden"
    levels = {observe: {"observe": observe, "horizon": 200} for observe in ("full", "position", "velocity")}
    _shown: slice

    def __init__(
        self,
        num_envs: Annotated[int, Gt(0)] = 1,
        observe: Sight = "full",
        horizon: Annotated[int, Gt(0)] = 200,
        privileged: bool = False,
        **kwargs: Any,
    ):
        params = {"observe": observe, "horizon": horizon}
        more = {"sight": observe, "most_steps": horizon, "params": params, "privileged": privileged}
        super().__init__(num_envs=num_envs, **more, **kwargs)

    def seen_slots(self) -> list[int]:
        """Which numbers of the full state are seen."""
        return [*range(self.full_size())[self._shown]]

    def full_size(self) -> int:
        """How many numbers the full state has."""
        assert self._full_space is not None
        return self._full_space.shape[0] - 1

    def _horizons(self) -> Horizons | None:
        return NOTHING if self.params["observe"] == "full" else None
