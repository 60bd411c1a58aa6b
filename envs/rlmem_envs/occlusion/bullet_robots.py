"""The walking robots of PyBullet with their positions or their velocities hidden, on all cores."""

from functools import partial
from typing import Any, ClassVar

import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.spaces import Box
from numpy.typing import NDArray

from rlmem_envs.core.batched import BatchedEnv, Who
from rlmem_envs.occlusion.bullet import load, package_env, require_bullet
from rlmem_envs.occlusion.robot import Robot
from rlmem_envs.occlusion.workers import Crew

BODY = ("height", "sin of heading", "cos of heading", "forward", "left", "up", "roll", "pitch")
"""The first slots of every robot's observation; then come the joints, two slots each, and the contacts."""


class BulletRobot(Robot):
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
    been reset before (`bullet.package_env` says why). There an episode is a function of its seed and the actions, so a
    saved state is exact: `restore` plays the running episodes again, which takes their time. That holds for one build
    of PyBullet and one kind of processor; where a replay ends elsewhere, `restore` warns.

    Worker processes start with the first episode. Every environment takes about 30 MB.

    The parameters are described in `Robot`.
    """

    metadata = {**BatchedEnv.metadata, "render_fps": 50}  # a step is 16.5 ms; GIFs are not faster than 50
    source = "Ni et al. 2022 (arXiv:2110.05038), on PyBullet (Coumans and Bai 2016)"
    physics_name = "PyBullet"
    package_name: ClassVar[str]
    """Name in `pybullet_envs_gymnasium`, before `BulletEnv-v0`."""
    joints: ClassVar[tuple[str, ...]]
    """In the order of the actions."""
    contacts: ClassVar[tuple[str, ...]]
    """Parts whose contact with the ground is seen."""

    @classmethod
    def require(cls) -> None:
        require_bullet(cls.__name__)

    @classmethod
    def size(cls) -> int:
        return len(BODY) + 2 * len(cls.joints) + len(cls.contacts)

    @classmethod
    def parts(cls) -> dict[str, list[int]]:
        velocity = [3, 4, 5, *(len(BODY) + 2 * j + 1 for j in range(len(cls.joints)))]
        position = [slot for slot in range(cls.size()) if slot not in velocity]
        return {"full": [*range(cls.size())], "position": position, "velocity": velocity}

    @classmethod
    def actions(cls) -> Box:
        return Box(-1, 1, (len(cls.joints),), np.float32)

    @classmethod
    def package(cls) -> Any:
        return package_env(cls.package_name)

    def _prepare(self) -> None:
        shape = (self._limit + 1, self.num_envs, len(self.joints))
        self._taken = np.zeros(shape, np.float32)  # step t of every episode
        self._crew: Crew | None = None

    def _begin_physics(self, who: Who) -> None:
        (self.full[who],) = self._started(len(who) == self.num_envs).call("begin", who, self.seed[who])

    def _remember(self, actions: NDArray[np.float32]) -> None:
        self._taken[self.t, self._all] = actions

    def _act(self, who: Who, actions: NDArray[np.float32]) -> tuple[NDArray[Any], NDArray[Any]]:
        self.full[who], rewards, terminated, _ = self._started().call("step", who, actions)
        return rewards, terminated

    def _started(self, from_here: bool = False) -> Crew:
        """The crew; a new one if every environment begins or goes on `from_here`."""
        if self._crew is None or self._crew.closed:
            if not from_here:
                raise ResetNeeded("no episode is running: reset() begins some, restore(state) goes on with others")
            self._crew = Crew(partial(load, self.package_name), self.num_envs, self._workers)
        return self._crew

    def state(self) -> dict[str, Any]:
        """Everything needed to go on exactly from here: arrays, with the actions of the running episodes."""
        return {**super().state(), "actions": self._taken[: self.t.max()].copy()}

    def _bring_back(self, state: dict[str, Any]) -> NDArray[Any]:
        actions = np.array(state["actions"])
        self._taken[: len(actions)] = actions
        histories = [actions[: self.t[i], i] for i in self._all]
        return self._started(True).call("replay", self._all, self.seed, histories)[0]

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


class Ant(BulletRobot):
    """Four legs. It has fallen, which terminates the episode, at height <= 0.26 m.

    The state is described in `BulletRobot`.
    """

    package_name = "Ant"
    joints = ("hip_1", "ankle_1", "hip_2", "ankle_2", "hip_3", "ankle_3", "hip_4", "ankle_4")
    contacts = ("front_left_foot", "front_right_foot", "left_back_foot", "right_back_foot")
    random_return = 388.4  # 128 episodes, +- 15


class HalfCheetah(BulletRobot):
    """Two legs in a plane. It is fallen, and goes on, while a shin or thigh is on the ground or abs(pitch) >= 1.

    The state is described in `BulletRobot`.
    """

    package_name = "HalfCheetah"
    joints = ("bthigh", "bshin", "bfoot", "fthigh", "fshin", "ffoot")
    contacts = ("ffoot", "fshin", "fthigh", "bfoot", "bshin", "bthigh")
    fall_ends = False
    random_return = -1275.0  # 128 episodes, +- 10


class Hopper(BulletRobot):
    """One leg in a plane. It has fallen, which terminates the episode, at height <= 0.8 m or abs(pitch) >= 1.

    The state is described in `BulletRobot`.
    """

    package_name = "Hopper"
    joints = ("thigh_joint", "leg_joint", "foot_joint")
    contacts = ("foot",)
    random_return = 19.96  # 4,096 episodes, +- 0.05


class Walker(BulletRobot):
    """Two legs in a plane. It has fallen, which terminates the episode, at height <= 0.8 m or abs(pitch) >= 1.

    The state is described in `BulletRobot`.
    """

    package_name = "Walker2D"
    joints = ("thigh_joint", "leg_joint", "foot_joint", "thigh_left_joint", "leg_left_joint", "foot_left_joint")
    contacts = ("foot", "foot_left")
    random_return = 16.88  # 4,096 episodes, +- 0.06


ROBOTS: dict[str, type[BulletRobot]] = {"ant": Ant, "half_cheetah": HalfCheetah, "hopper": Hopper, "walker": Walker}
