"""The walking robots of Gymnasium on MuJoCo: what is a fall, what is paid, and what is seen."""

import numpy as np
from numpy.typing import NDArray

from rlmem_envs.occlusion.mujoco_base import Data, Floats, MujocoRobot


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
