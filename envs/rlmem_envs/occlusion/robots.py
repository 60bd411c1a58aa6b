"""The walking robots of PyBullet with their positions or their velocities hidden, on all cores."""

import os
import warnings
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Gt
from gymnasium.error import ResetNeeded
from gymnasium.spaces import Box
from numpy.typing import NDArray

from rlmem_envs.core.batched import UNKNOWN, BatchedEnv, Facts, Scores, Who
from rlmem_envs.core.single import SingleEnv
from rlmem_envs.occlusion.bullet import load, require_bullet
from rlmem_envs.occlusion.workers import Crew

Name = Literal["ant", "half_cheetah", "hopper", "walker"]
Observe = Literal["full", "position", "velocity"]

BODY = ("height", "sin of heading", "cos of heading", "forward", "left", "up", "roll", "pitch")
"""The first slots of every robot's observation; then come the joints, two slots each, and the contacts."""


class Robot(BatchedEnv):
    """A robot walks to a place a kilometre away, and sees all of its state, or only positions, or only velocities.

    | | |
    |---|---|
    | observation | Box [n]: those of the slots below that `observe` leaves, clipped to [-5, 5] |
    | action | Box [-1, 1]: torque of every joint as a part of its largest; finite numbers outside are clipped |
    | reward | (1, or -1 when fallen) + speed to the target (m/s) - 2 mean abs(action x slot of the joint's speed) |
    | | - 0.1 mean action^2 - 0.1 for every joint at a limit |
    | end | truncated after `max_episode_steps`; what a fall is, and whether it terminates, says each class |
    | hidden | `seed` [N], from which the joints get positions in +-0.1 rad, and the slots that are left out |
    | oracle | nobody knows it; `normalised` compares with published agents |

    | slot | full state |
    |---|---|
    | 0 | height above that at the start |
    | 1, 2 | sine and cosine of the angle to the target |
    | 3, 4, 5 | 0.3 x velocity forward, to the left and up (m/s): *velocity* |
    | 6, 7 | roll, pitch |
    | 8, 10, ... | position of each of `joints`, -1 at its lower limit and 1 at its upper |
    | 9, 11, ... | 0.1 x speed of each joint (rad/s): *velocity* |
    | then | whether each of `contacts` touched the ground, one step before |

    `velocity` keeps the slots marked so and `position` all others, which are the indices of Ni et al.

    The rules and the numbers are those of `pybullet_envs_gymnasium` 0.6, bit for bit, once an environment of it has
    been reset before (`bullet.package_env` says why). There an episode is a function of its seed and the actions. So
    environment i plays the same episodes for every N and any number of workers, and a saved state is exact: `restore`
    plays the running episodes again, which takes their time. That holds for one build of PyBullet and one kind of
    processor; where a replay ends elsewhere, `restore` warns.

    Worker processes start with the first episode. Every environment takes about 30 MB.

    observe: the slots that are seen
    workers: processes that share the environments, 0: none, all are in this one; None: one for each core, but none
        for a single environment
    max_episode_steps: 1,000 in every paper
    """

    metadata = {**BatchedEnv.metadata, "render_fps": 50}  # a step is 16.5 ms; GIFs are not faster than 50
    tests = "control from a part of the state"
    source = "Ni et al. 2022 (arXiv:2110.05038), on PyBullet (Coumans and Bai 2016)"
    package_name: ClassVar[str]
    """Name in `pybullet_envs_gymnasium`, before `BulletEnv-v0`."""
    joints: ClassVar[tuple[str, ...]]
    """In the order of the actions."""
    contacts: ClassVar[tuple[str, ...]]
    """Parts whose contact with the ground is seen."""
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
    ):
        require_bullet(type(self).__name__)
        self._seen = self.slots(observe)
        self._workers = default_workers(num_envs) if workers is None else min(workers, num_envs)
        self._limit, actions = max_episode_steps, (len(self.joints),)
        box = Box(-np.inf, np.inf, (len(self._seen),), np.float32)
        params = {"observe": observe}
        super().__init__(num_envs, box, Box(-1, 1, actions, np.float32), params, max_episode_steps, render_mode)
        self.seed = np.zeros(num_envs, np.int64)
        self.full = np.zeros((num_envs, self.size()), np.float32)
        self._taken = np.zeros((max_episode_steps + 1, num_envs, *actions), np.float32)  # step t of every episode
        self._crew: Crew | None = None

    @classmethod
    def size(cls) -> int:
        """Number of slots of the full state."""
        return len(BODY) + 2 * len(cls.joints) + len(cls.contacts)

    @classmethod
    def slots(cls, observe: Observe) -> list[int]:
        """The slots of the full state that are seen. Raises ValueError for a word that Observe does not have."""
        velocity = [3, 4, 5, *(len(BODY) + 2 * j + 1 for j in range(len(cls.joints)))]
        position = [slot for slot in range(cls.size()) if slot not in velocity]
        kinds = {"full": [*range(cls.size())], "position": position, "velocity": velocity}
        if observe not in kinds:
            raise ValueError(f"observe={observe!r}: expected one of {', '.join(kinds)}")
        return kinds[observe]

    def seen_slots(self) -> list[int]:
        """Which numbers of the full state are seen."""
        return self._seen

    def full_size(self) -> int:
        """How many numbers the full state has."""
        return self.size()

    def _draw(self, who: Who) -> Facts:
        return {"seed": self.draws.integers(who, 2**31)}

    def _begin(self, who: Who, facts: Facts) -> None:
        if not len(who):
            return
        self.seed[who] = facts["seed"]
        (self.full[who],) = self._started(len(who) == self.num_envs).call("begin", who, self.seed[who])

    def _advance(self, actions: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]:
        self._taken[self.t, self._all] = np.clip(actions, -1, 1)
        rewards = np.zeros(self.num_envs)
        terminated, never = np.zeros((2, self.num_envs), bool)
        who = np.flatnonzero(~self.over)
        if len(who):
            taken = self._taken[self.t[who], who]
            self.full[who], rewards[who], terminated[who], _ = self._started().call("step", who, taken)
        return rewards, terminated, never

    def _started(self, from_here: bool = False) -> Crew:
        """The crew; a new one if every environment begins or goes on `from_here`."""
        if self._crew is None or self._crew.closed:
            if not from_here:
                raise ResetNeeded("no episode is running: reset() begins some, restore(state) goes on with others")
            self._crew = Crew(partial(load, self.package_name), self.num_envs, self._workers)
        return self._crew

    def _observe(self) -> NDArray[Any]:
        return self.full[:, self._seen]

    def episode_steps(self) -> tuple[int, int]:
        return 1 if self.fall_ends else self._limit, self._limit

    def scores(self) -> Scores:
        return Scores(self.random_return, np.nan, np.nan) if self._limit == 1000 else UNKNOWN

    def state(self) -> dict[str, Any]:
        """Everything needed to go on exactly from here: arrays, with the actions of the running episodes."""
        return {**super().state(), "actions": self._taken[: self.t.max()].copy()}

    def restore(self, state: dict[str, Any]) -> None:
        """Bring a vector of the same size and parameters to a saved `state`, by playing its episodes again."""
        super().restore(state)
        actions = np.array(state["actions"])
        self._taken[: len(actions)] = actions
        histories = [actions[: self.t[i], i] for i in self._all]
        (full,) = self._started(True).call("replay", self._all, self.seed, histories)
        if not np.array_equal(full, self.full):
            warnings.warn(
                f"{type(self).__name__}: the episodes replayed to other states than were saved (largest difference "
                f"{np.abs(full - self.full).max():.2g}): another build of PyBullet, or another kind of processor?",
                stacklevel=2,
            )

    def text(self, i: int) -> str:
        """The full state; what is not seen is in brackets."""
        cells = [f"{x:8.2f} " if slot in self._seen else f"({x:7.2f})" for slot, x in enumerate(self.full[i])]
        first, last = len(BODY), len(BODY) + 2 * len(self.joints)
        single = zip((*BODY, *self.contacts), cells[:first] + cells[last:], strict=True)
        double = zip(self.joints, cells[first:last:2], cells[first + 1 : last : 2], strict=True)
        head = (f"{type(self).__name__}, step {self.t[i]}", "position", "   speed")
        return "\n".join("".join([row[0].ljust(22), *row[1:]]).rstrip() for row in (head, *double, *single))

    def picture(self, i: int) -> NDArray[np.uint8]:
        """Environment i [240, 320, 3], drawn by the processor."""
        return np.asarray(self._started().call("picture", np.array([i]))[0][0])

    def close_extras(self, **kwargs: Any) -> None:
        """End the worker processes."""
        if self._crew is not None:
            self._crew.close()


class Ant(Robot):
    """Four legs. It has fallen, which terminates the episode, at height <= 0.26 m.

    The state is described in `Robot`.
    """

    package_name = "Ant"
    joints = ("hip_1", "ankle_1", "hip_2", "ankle_2", "hip_3", "ankle_3", "hip_4", "ankle_4")
    contacts = ("front_left_foot", "front_right_foot", "left_back_foot", "right_back_foot")
    random_return = 388.4  # 128 episodes, +- 15


class HalfCheetah(Robot):
    """Two legs in a plane. It is fallen, and goes on, while a shin or thigh is on the ground or abs(pitch) >= 1.

    The state is described in `Robot`.
    """

    package_name = "HalfCheetah"
    joints = ("bthigh", "bshin", "bfoot", "fthigh", "fshin", "ffoot")
    contacts = ("ffoot", "fshin", "fthigh", "bfoot", "bshin", "bthigh")
    fall_ends = False
    random_return = -1275.0  # 128 episodes, +- 10


class Hopper(Robot):
    """One leg in a plane. It has fallen, which terminates the episode, at height <= 0.8 m or abs(pitch) >= 1.

    The state is described in `Robot`.
    """

    package_name = "Hopper"
    joints = ("thigh_joint", "leg_joint", "foot_joint")
    contacts = ("foot",)
    random_return = 19.96  # 4,096 episodes, +- 0.05


class Walker(Robot):
    """Two legs in a plane. It has fallen, which terminates the episode, at height <= 0.8 m or abs(pitch) >= 1.

    The state is described in `Robot`.
    """

    package_name = "Walker2D"
    joints = ("thigh_joint", "leg_joint", "foot_joint", "thigh_left_joint", "leg_left_joint", "foot_left_joint")
    contacts = ("foot", "foot_left")
    random_return = 16.88  # 4,096 episodes, +- 0.06


ROBOTS: dict[str, type[Robot]] = {"ant": Ant, "half_cheetah": HalfCheetah, "hopper": Hopper, "walker": Walker}

PUBLISHED = {
    "ant": (373.71, 2650.50),
    "half_cheetah": (-1275.77, 2381.67),
    "hopper": (20.06, 1441.81),
    "walker": (16.52, 1623.65),
}
"""Returns of a random agent and of an expert: Lu et al. 2024 (arXiv:2405.17358), table 5, after the data of D4RL."""


def normalised(robot: Name, returns: NDArray[np.float64] | float) -> Any:
    """0 for the published random agent, 100 for the expert (equation 3 of Lu et al. 2024)."""
    random, expert = PUBLISHED[robot]
    return 100 * (returns - random) / (expert - random)


def make(
    robot: Name,
    observe: Observe = "full",
    num_envs: Annotated[int, Gt(0)] = 16,
    workers: Annotated[int, Ge(0)] | None = None,
    max_episode_steps: Annotated[int, Gt(0)] = 1000,
    backend: Literal["pybullet"] = "pybullet",
    **kwargs: Any,
) -> Robot:
    """`num_envs` copies of a robot, with the parameters of `Robot`.

    backend: the physics; no other gives numbers that compare with published ones
    Raises ImportError without PyBullet, ValueError for a robot or an `observe` that does not exist.
    """
    if robot not in ROBOTS:
        raise ValueError(f"robot={robot!r}: expected one of {', '.join(ROBOTS)}")
    if backend != "pybullet":
        raise ValueError(f"backend={backend!r}: expected pybullet")
    return ROBOTS[robot](num_envs, observe, workers, max_episode_steps, **kwargs)


def make_single(robot: Name, **kwargs: Any) -> SingleEnv:
    """One robot, for `gymnasium.make`."""
    return SingleEnv(make(robot, num_envs=1, **kwargs))


def default_workers(num_envs: int) -> int:
    """One for each core that this process may use, as far as there are environments; none for a single one."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, num_envs) if num_envs > 1 else 0
