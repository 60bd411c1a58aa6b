"""What CartPole and Pendulum share: a part of the state is shown, which `observe` says."""

from typing import Annotated, Any, ClassVar

from annotated_types import Gt

from rlmem_envs.core.batched import NOTHING, BatchedEnv, Horizons
from rlmem_envs.core.cartpole import Sight


class PartlySeen(BatchedEnv):
    """A task whose state is seen whole, or only its positions, or only its velocities.

    To be named before the task, which says by `_size` how many numbers its physical state has.

    observe: the part of the state that is shown
    horizon: the most steps of an episode
    privileged: see `BatchedEnv`
    """

    tests = "control: estimating the part of the state that is hidden"
    levels = {observe: {"observe": observe, "horizon": 200} for observe in ("full", "position", "velocity")}
    _shown: slice
    _size: ClassVar[int]

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
        """Which numbers of the physical state are seen."""
        return [*range(self.full_size())[self._shown]]

    def full_size(self) -> int:
        """How many numbers the physical state has."""
        return self._size

    def _horizons(self) -> Horizons | None:
        return NOTHING if self.params["observe"] == "full" else None
