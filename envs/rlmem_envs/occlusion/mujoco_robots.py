"""The walking robots of Gymnasium on MuJoCo with their positions or their velocities hidden, on all cores."""

from typing import Any, ClassVar

import numpy as np
from gymnasium.spaces import Box
from gymnasium.utils import seeding
from numpy.typing import NDArray

from rlmem_envs.core.batched import BatchedEnv, Who
from rlmem_envs.occlusion.gym_mujoco import Layout, Worlds, layout, package_env, require_mujoco
from rlmem_envs.occlusion.robot import Robot

Floats = NDArray[Any]
Data = dict[str, NDArray[np.float64]]
"""Arrays of MuJoCo's data by name, [n, ...] each."""


class MujocoRobot(Robot):
    """A robot walks forward, along x, and sees all of its state, or only positions, or only velocities.

    | | |
    |---|---|
    | observation | Box [n], float32: those of the slots below that `observe` leaves |
    | action | Box [-1, 1] (Humanoid [-0.4, 0.4]): torque of every joint as a part of its gear; finite numbers outside |
    | | are clipped |
    | reward | mean speed forward during the step (m/s), with terms that each class says; a is the action |
    | end | truncated after `max_episode_steps`; what a fall is, which terminates, says each class |
    | hidden | `seed` [N], from which come small random positions and velocities, and the slots that are left out |
    | oracle | nobody knows it |

    | slots | full state |
    |---|---|
    | first | qpos, the positions of the joints, without how far the robot has come: *position* |
    | then | qvel, their velocities: *velocity* |
    | then | Ant and Humanoid: contact forces; Humanoid before that: inertias, velocities and forces of its parts |

    `position` keeps the slots marked so and `velocity` those marked so; neither keeps others. Which they are is read
    off the package, whose order it is.

    The rules and the numbers are those of `gymnasium[mujoco]`, bit for bit, but for rounding to float32. An episode is
    a function of its seed and the actions. What is saved is MuJoCo's state before the last step, and `restore` takes
    that step again, because places of bodies, inertias and contact forces, which rewards and observations of the Ant
    and the Humanoid read, are left by a step as they were within it and do not follow from the state behind it. That is
    exact for one version of MuJoCo and one kind of processor; where it ends elsewhere, `restore` warns.

    Threads start with the first step. Every environment takes about 1 MB.

    The parameters are described in `Robot`.
    """

    source = "gymnasium[mujoco] (Towers et al. 2024, arXiv:2407.17032), on MuJoCo (Todorov et al. 2012)"
    physics_name = "MuJoCo"
    env_id: ClassVar[str]
    """Name in Gymnasium."""
    reads: ClassVar[tuple[str, ...]] = ("qpos", "qvel")
    """The arrays of MuJoCo's data that the rules read."""
    noise: ClassVar[tuple[float, bool]] = (5e-3, False)
    """How far positions and velocities are random at first, and whether velocities are normal instead of uniform."""
    speeds_seen: ClassVar[float] = np.inf
    """The largest velocity that is seen; larger ones are clipped to it."""

    @classmethod
    def require(cls) -> None:
        require_mujoco(cls.__name__)

    @classmethod
    def layout(cls) -> Layout:
        """What its observation is made of."""
        return layout(cls.env_id)

    @classmethod
    def size(cls) -> int:
        return cls.layout().size

    @classmethod
    def parts(cls) -> dict[str, list[int]]:
        first = len(cls.layout().position)
        last = first + len(cls.layout().velocity)
        return {"full": [*range(cls.size())], "position": [*range(first)], "velocity": [*range(first, last)]}

    @classmethod
    def actions(cls) -> Box:
        return cls.layout().actions

    @classmethod
    def package(cls) -> Any:
        return package_env(cls.env_id)

    # ---- the rules

    def _place(self, data: Data) -> Floats:
        """How far forward robots [n] are, as their speed is measured."""
        return data["qpos"][:, 0]

    def _stands(self, data: Data) -> NDArray[np.bool_]:
        """Whether robots [n] have not fallen."""
        raise NotImplementedError

    def _reward(self, speed: Floats, stands: Floats, actions: NDArray[np.float32], data: Data) -> Floats:
        """Rewards [n] of a step."""
        return (speed + stands) - 1e-3 * np.square(actions).sum(1)

    def _others(self, data: Data) -> tuple[Floats, ...]:
        """What is seen after positions and velocities, [n, ...] each."""
        return ()

    # ---- the physics

    def _prepare(self) -> None:
        package = self.package()
        self._worlds = Worlds(package, self.num_envs, self.reads, max(self._workers, 1))
        per_second = min(int(package.metadata["render_fps"]), 50)  # GIFs are not faster
        self.metadata = {**BatchedEnv.metadata, "render_fps": per_second}
        self.taken = np.zeros((self.num_envs, package.model.nu), np.float32)  # the last actions
        self.physics = np.zeros((self.num_envs, self._worlds.state_size))  # exact states, before the last actions

    def _begin_physics(self, who: Who) -> None:
        package, (scale, normal) = self._worlds.env, self.noise
        qpos, qvel = (np.tile(start, (len(who), 1)) for start in (package.init_qpos, package.init_qvel))
        for row, i in enumerate(who):
            rng, _ = seeding.np_random(int(self.seed[i]))
            qpos[row] += rng.uniform(-scale, scale, qpos.shape[1])
            qvel[row] += (
                scale * rng.standard_normal(qvel.shape[1]) if normal else rng.uniform(-scale, scale, qvel.shape[1])
            )
        self._worlds.begin(who.tolist(), qpos, qvel)
        self._show(who)

    def _remember(self, actions: NDArray[np.float32]) -> None:
        self.taken = actions

    def _act(self, who: Who, actions: NDArray[np.float32]) -> tuple[Floats, NDArray[np.bool_]]:
        before, worlds = self._place(self._read(who)), who.tolist()
        self._worlds.save(worlds, self.physics)
        self._worlds.step(worlds, actions)
        self._show(who)
        data = self._read(who)
        stands, speed = self._stands(data), (self._place(data) - before) / self._worlds.env.dt
        return self._reward(speed, stands, actions, data), ~stands & self.fall_ends

    def _read(self, who: Who) -> Data:
        return {name: values[who] for name, values in self._worlds.data.items()}

    def _show(self, who: Who) -> None:
        data = self._read(who)
        skipped = data["qpos"].shape[1] - len(self.layout().position)
        velocity = np.clip(data["qvel"], -self.speeds_seen, self.speeds_seen)
        parts = data["qpos"][:, skipped:], velocity, *self._others(data)
        self.full[who] = np.concatenate([part.reshape(len(who), -1) for part in parts], 1)

    def _bring_back(self, state: dict[str, Any]) -> Floats:
        saved = self.full.copy()
        first, later = np.flatnonzero(self.t == 0), np.flatnonzero(self.t > 0)
        if len(first):
            self._begin_physics(first)
        if len(later):
            self._worlds.load(later.tolist(), self.physics)
            self._worlds.step(later.tolist(), self.taken[later])
            self._show(later)
        found, self.full = self.full, saved
        return found

    # ---- looking at it

    def text(self, i: int) -> str:
        """Positions and velocities; what is not seen is in brackets."""
        found = self.layout()
        cells = [f"{x:8.2f} " if slot in self._seen else f"({x:7.2f})" for slot, x in enumerate(self.full[i])]
        position = dict(zip(found.position, cells, strict=False))
        velocity = dict(zip(found.velocity, cells[len(position) :], strict=False))
        names = list(dict.fromkeys((*found.position, *found.velocity)))
        rows = [(name, position.get(name, " " * 9), velocity.get(name, "")) for name in names]
        head = (f"{type(self).__name__}, step {self.t[i]}", "position", "   speed")
        return "\n".join("".join([row[0].ljust(22), *row[1:]]).rstrip() for row in (head, *rows))

    def picture(self, i: int) -> NDArray[np.uint8]:
        """Environment i [240, 320, 3], drawn by MuJoCo; its text where nothing can draw."""
        drawn = self._worlds.picture(i)
        return BatchedEnv.picture(self, i) if drawn is None else drawn

    def close_extras(self, **kwargs: Any) -> None:
        """End the threads."""
        self._worlds.close()


class Ant(MujocoRobot):
    """Four legs. It has fallen at a height outside [0.2, 1] m.

    Reward: speed + (1, or 0 when fallen) - 0.5 sum a^2 - 0.0005 sum of squared contact forces, each clipped to [-1, 1].
    The state is described in `MujocoRobot`.
    """

    env_id = "Ant-v5"
    reads = ("qpos", "qvel", "xpos", "cfrc_ext")
    noise = (0.1, True)
    random_return = -54.8  # 512 episodes, +- 4.2

    def _place(self, data: Data) -> Floats:
        return data["xpos"][:, 1, 0]

    def _stands(self, data: Data) -> NDArray[np.bool_]:
        height = data["qpos"][:, 2]
        finite = np.isfinite(data["qpos"]).all(1) & np.isfinite(data["qvel"]).all(1)
        return finite & (height >= 0.2) & (height <= 1.0)

    def _reward(self, speed: Floats, stands: Floats, actions: NDArray[np.float32], data: Data) -> Floats:
        forces = np.clip(data["cfrc_ext"], -1.0, 1.0).reshape(len(speed), -1)
        return (speed + stands) - (0.5 * np.square(actions).sum(1) + 5e-4 * np.square(forces).sum(1))

    def _others(self, data: Data) -> tuple[Floats, ...]:
        return (np.clip(data["cfrc_ext"][:, 1:], -1.0, 1.0),)


class HalfCheetah(MujocoRobot):
    """Two legs in a plane. Nothing ends its episode early.

    Reward: speed - 0.1 sum a^2. The state is described in `MujocoRobot`.
    """

    env_id = "HalfCheetah-v5"
    noise = (0.1, True)
    fall_ends = False
    random_return = -287.4  # 128 episodes, +- 7.2

    def _stands(self, data: Data) -> NDArray[np.bool_]:
        return np.ones(len(data["qpos"]), bool)

    def _reward(self, speed: Floats, stands: Floats, actions: NDArray[np.float32], data: Data) -> Floats:
        return speed - 0.1 * np.square(actions).sum(1)


class Hopper(MujocoRobot):
    """One leg in a plane. It has fallen at height <= 0.7 m, abs(pitch) >= 0.2, or with any other number beyond 100.

    Reward: speed + (1, or 0 when fallen) - 0.001 sum a^2. Velocities are seen clipped to [-10, 10]. The state is
    described in `MujocoRobot`.
    """

    env_id = "Hopper-v5"
    speeds_seen = 10.0
    random_return = 17.12  # 2,048 episodes, +- 0.37

    def _stands(self, data: Data) -> NDArray[np.bool_]:
        height, pitch = data["qpos"][:, 1], data["qpos"][:, 2]
        bounded = (np.abs(data["qpos"][:, 2:]) < 100).all(1) & (np.abs(data["qvel"]) < 100).all(1)
        return bounded & (height > 0.7) & np.isfinite(height) & (np.abs(pitch) < 0.2)


class Walker2d(MujocoRobot):
    """Two legs in a plane. It has fallen at a height outside (0.8, 2) m or abs(pitch) >= 1.

    Reward: speed + (1, or 0 when fallen) - 0.001 sum a^2. Velocities are seen clipped to [-10, 10]. The state is
    described in `MujocoRobot`.
    """

    env_id = "Walker2d-v5"
    speeds_seen = 10.0
    random_return = 1.61  # 2,048 episodes, +- 0.13

    def _stands(self, data: Data) -> NDArray[np.bool_]:
        height, pitch = data["qpos"][:, 1], data["qpos"][:, 2]
        return (height > 0.8) & (height < 2.0) & (np.abs(pitch) < 1.0)


class Humanoid(MujocoRobot):
    """Two legs, two arms and a torso in space. It has fallen at a height outside (1, 2) m.

    Reward: 1.25 speed of the centre of mass + (5, or 0 when fallen) - 0.1 sum a^2 - 5e-7 sum of squared contact forces,
    at most 10. The state is described in `MujocoRobot`.
    """

    env_id = "Humanoid-v5"
    reads = ("qpos", "qvel", "xipos", "cinert", "cvel", "qfrc_actuator", "cfrc_ext")
    noise = (1e-2, False)
    random_return = 110.5  # 1,024 episodes, +- 0.9

    def _place(self, data: Data) -> Floats:
        mass = self._worlds.model.body_mass
        return (mass[:, None] * data["xipos"]).sum(1)[:, 0] / mass.sum()

    def _stands(self, data: Data) -> NDArray[np.bool_]:
        height = data["qpos"][:, 2]
        return (height > 1.0) & (height < 2.0)

    def _reward(self, speed: Floats, stands: Floats, actions: NDArray[np.float32], data: Data) -> Floats:
        forces = np.square(data["cfrc_ext"].reshape(len(speed), -1)).sum(1)
        costs = 0.1 * np.square(actions.astype(np.float64)).sum(1) + np.minimum(5e-7 * forces, 10.0)
        return (1.25 * speed + 5.0 * stands) - costs

    def _others(self, data: Data) -> tuple[Floats, ...]:
        return data["cinert"][:, 1:], data["cvel"][:, 1:], data["qfrc_actuator"][:, 6:], data["cfrc_ext"][:, 1:]


ROBOTS: dict[str, type[MujocoRobot]] = {
    "ant": Ant,
    "half_cheetah": HalfCheetah,
    "hopper": Hopper,
    "walker": Walker2d,
    "humanoid": Humanoid,
}
