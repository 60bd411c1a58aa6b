"""What the walking robots of every physics have in common: seeds, bounds, and hidden parts of the state."""

import os
import warnings
from typing import Annotated, Any, ClassVar, Literal

import gymnasium as gym
import numpy as np
from annotated_types import Ge, Gt
from gymnasium.spaces import Box
from numpy.typing import NDArray

from rlmem_envs.core.batched import UNKNOWN, BatchedEnv, Facts, Scores, Who

Observe = Literal["full", "position", "velocity"]


class Robot(BatchedEnv):
    """A robot that walks, and sees all of its state, or only positions, or only velocities.

    An episode is a function of its seed and the actions. So environment i plays the same episodes for every N and any
    number of workers.

    observe: the slots that are seen
    workers: processes (PyBullet) or threads (MuJoCo) that share the environments, 0: none, all are in this one; None:
        one for each core, but none for a single environment
    max_episode_steps: 1,000 in every paper
    privileged: see `BatchedEnv`; the full state is what `observe=full` shows
    """

    tests = "control from a part of the state"
    physics_name: ClassVar[str]
    """The package that computes the physics."""
    fall_ends: ClassVar[bool] = True
    """Whether the episode terminates after a fall."""
    random_return: ClassVar[float]
    """Mean return of uniform random actions at 1,000 steps, measured."""

    def __init__(
        self,
        num_envs: Annotated[int, Gt(0)] = 1,
        observe: Observe = "full",
        workers: Annotated[int, Ge(0)] | None = None,
        max_episode_steps: Annotated[int, Gt(0)] = 1000,
        render_mode: str | None = None,
        privileged: bool = False,
    ):
        self.require()
        self._seen = self.slots(observe)
        self._workers = default_workers(num_envs) if workers is None else min(workers, num_envs)
        self._limit, self._acts = max_episode_steps, self.actions()
        box = Box(-np.inf, np.inf, (len(self._seen),), np.float32)
        more: dict[str, Any] = {
            "privileged": privileged,
            "full_space": Box(-np.inf, np.inf, (self.size(),), np.float32),
        }
        super().__init__(num_envs, box, self._acts, {"observe": observe}, max_episode_steps, render_mode, **more)
        self.seed = np.zeros(num_envs, np.int64)
        self.full = np.zeros((num_envs, self.size()), np.float32)
        self._prepare()

    # ---- what a physics fills in

    @classmethod
    def require(cls) -> None:
        """Raises ImportError if a package that the robot needs is not installed."""
        raise NotImplementedError

    @classmethod
    def size(cls) -> int:
        """Number of slots of the full state."""
        raise NotImplementedError

    @classmethod
    def parts(cls) -> dict[str, list[int]]:
        """The slots of the full state that each value of `observe` leaves."""
        raise NotImplementedError

    @classmethod
    def actions(cls) -> Box:
        """The space of the actions."""
        raise NotImplementedError

    @classmethod
    def package(cls) -> gym.Env:
        """One environment of the package whose numbers these are."""
        raise NotImplementedError

    def _prepare(self) -> None:
        """Make what the physics needs; nothing starts yet."""
        raise NotImplementedError

    def _begin_physics(self, who: Who) -> None:
        """Begin episodes with the seeds of environments `who`, and write what they show to `full`."""
        raise NotImplementedError

    def _remember(self, actions: NDArray[np.float32]) -> None:
        """Keep what is needed of the actions [N, A] that are now taken."""
        raise NotImplementedError

    def _act(self, who: Who, actions: NDArray[np.float32]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Take actions [n, A] in environments `who`, and write what they show to `full`; returns rewards and falls."""
        raise NotImplementedError

    def _bring_back(self, state: dict[str, Any]) -> NDArray[Any]:
        """Bring the physics to a saved `state`, whose arrays are back; returns the full state [N, size] there."""
        raise NotImplementedError

    # ---- what they have in common

    @classmethod
    def slots(cls, observe: Observe) -> list[int]:
        """The slots of the full state that are seen. Raises ValueError for a word that Observe does not have."""
        parts = cls.parts()
        if observe not in parts:
            raise ValueError(f"observe={observe!r}: expected one of {', '.join(parts)}")
        return parts[observe]

    def seen_slots(self) -> list[int]:
        """Which numbers of the full state are seen."""
        return self._seen

    def full_size(self) -> int:
        """How many numbers the full state has."""
        return self.size()

    def _draw(self, who: Who) -> Facts:
        return {"seed": self.draws.integers(who, 2**31)}

    def _begin(self, who: Who, facts: Facts) -> None:
        if len(who):
            self.seed[who] = facts["seed"]
            self._begin_physics(who)

    def _advance(self, actions: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]:
        taken = np.clip(actions, self._acts.low, self._acts.high).astype(np.float32)
        self._remember(taken)
        rewards = np.zeros(self.num_envs)
        terminated, never = np.zeros((2, self.num_envs), bool)
        who = np.flatnonzero(~self.over)
        if len(who):
            rewards[who], terminated[who] = self._act(who, taken[who])
        return rewards, terminated, never

    def _observe(self) -> NDArray[Any]:
        return self.full[:, self._seen]

    def _full_state(self) -> NDArray[np.float32]:
        return self.full.copy()

    def episode_steps(self) -> tuple[int, int]:
        return 1 if self.fall_ends else self._limit, self._limit

    def scores(self) -> Scores:
        return Scores(self.random_return, np.nan, np.nan) if self._limit == 1000 else UNKNOWN

    def restore(self, state: dict[str, Any]) -> None:
        """Bring a vector of the same size and parameters to a saved `state`."""
        super().restore(state)
        full = self._bring_back(state)
        if not np.array_equal(full, self.full):
            warnings.warn(
                f"{type(self).__name__}: the episodes replayed to other states than were saved (largest difference "
                f"{np.abs(full - self.full).max():.2g}): another build of {self.physics_name}, or another kind of "
                "processor?",
                stacklevel=2,
            )


def default_workers(num_envs: int) -> int:
    """One for each core that this process may use, as far as there are environments; none for a single one."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, num_envs) if num_envs > 1 else 0
