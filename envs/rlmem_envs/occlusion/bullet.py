"""The robots of PyBullet as `pybullet_envs_gymnasium` has them, made repeatable, and read with fewer calls."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import load_env_creator
from numpy.typing import NDArray

PACKAGE = "pybullet_envs_gymnasium"


def require_bullet(task: str) -> None:
    """Raises ImportError, for `task`, if PyBullet or its environments are not installed."""
    if missing := [name for name in ("pybullet", PACKAGE) if find_spec(name) is None]:
        raise ImportError(
            f"{task} needs {' and '.join(missing)}, which is not installed: pip install pybullet {PACKAGE} "
            f"(it has wheels for Python 3.10 and 3.11; this is Python {sys.version_info[0]}.{sys.version_info[1]}); "
            "or backend=mujoco",
            name=missing[0],
        )


def package_env(name: str) -> Any:
    """`<name>BulletEnv` of the package, without a time limit, after a first reset. Raises ImportError without PyBullet.

    The package takes the floor for a part of the robot, but only from the end of the first reset on. It draws the
    parts' mean position, whose speed is rewarded, towards the origin; so the first episode of an environment has
    another first reward than the same episode played later (by up to 0.2). With that reset done, an episode is a
    function of its seed and the actions.
    """
    require_bullet(name)
    with quiet():
        env = load_env_creator(f"{PACKAGE}.gym_locomotion_envs:{name}BulletEnv")(render_mode="rgb_array")
        env.reset(seed=0)
    return env


def load(name: str) -> gym.Env:
    """`package_env(name)` with the same numbers in two thirds of the time."""
    env = package_env(name)
    calls = BulkCalls(env)
    env.robot.apply_action, env.robot.calc_state = calls.apply_action, calls.calc_state
    return env


class BulkCalls:
    """`apply_action` and `calc_state` of a robot, bit for bit those of the package.

    The package asks PyBullet for every joint and every part by itself; here one call is for all of them, which saves
    a third of a step's time.

    env: after its first reset
    """

    def __init__(self, env: Any):
        self.bullet, self.robot, self.client = import_module("pybullet"), env.robot, env._p._client
        (self.body,) = self.robot.objects
        joints = self.robot.ordered_joints
        self.joints = [joint.jointIndex for joint in joints]
        self.torque = np.array([self.robot.power * joint.power_coef for joint in joints])
        self.low = np.array([joint.lowerLimit for joint in joints])
        self.range = np.array([joint.upperLimit - joint.lowerLimit for joint in joints])
        self.torso = self.robot.robot_body.bodyPartIndex
        self.links = list(range(self.bullet.getNumJoints(self.body, physicsClientId=self.client)))
        self._place_parts(list(self.robot.parts.values()))

    def _place_parts(self, parts: list[Any]) -> None:
        """A table of positions: the links, the base, and what does not move; `rows` are the parts in their order."""
        base = len(self.links)
        self.positions = np.zeros((base + 2, 3))
        self.rows = []
        for part in parts:
            is_robot = part.bodies[part.bodyIndex] == self.body
            self.rows.append((part.bodyPartIndex if part.bodyPartIndex >= 0 else base) if is_robot else base + 1)
            if not is_robot:
                self.positions[base + 1] = part.current_position()

    def apply_action(self, action: NDArray[np.float32]) -> None:
        forces = (self.torque * np.clip(action, -1, 1)).tolist()
        self.bullet.setJointMotorControlArray(
            self.body, self.joints, self.bullet.TORQUE_CONTROL, forces=forces, physicsClientId=self.client
        )

    def calc_state(self) -> NDArray[Any]:
        robot = self.robot
        joints = self._joints()
        robot.joint_speeds = joints[:, 1]
        robot.joints_at_limit = np.count_nonzero(np.abs(joints[:, 0]) > 0.99)
        xyz, orientation, velocity = self._torso()
        parts = self._parts(xyz)
        robot.body_real_xyz, robot.body_rpy = xyz, self.bullet.getEulerFromQuaternion(orientation)
        robot.body_xyz = (parts[0::3].mean(), parts[1::3].mean(), xyz[2])
        if robot.initial_z is None:
            robot.initial_z = xyz[2]
        roll, pitch, yaw = robot.body_rpy
        way = [robot.walk_target_y - robot.body_xyz[1], robot.walk_target_x - robot.body_xyz[0]]
        robot.walk_target_theta, robot.walk_target_dist = np.arctan2(*way), np.linalg.norm(way)
        angle = robot.walk_target_theta - yaw
        cos, sin = np.cos(-yaw), np.sin(-yaw)
        forward, left, up = np.dot(np.array([[cos, -sin, 0], [sin, cos, 0], [0, 0, 1]]), np.array(velocity))
        body = [
            xyz[2] - robot.initial_z,
            np.sin(angle),
            np.cos(angle),
            0.3 * forward,
            0.3 * left,
            0.3 * up,
            roll,
            pitch,
        ]
        return np.clip(np.concatenate([np.array(body, np.float32), joints.reshape(-1), robot.feet_contact]), -5, 5)

    def _joints(self) -> NDArray[np.float32]:
        """Position between the limits, from -1 to 1, and a tenth of the speed of every joint [J, 2]."""
        states = self.bullet.getJointStates(self.body, self.joints, physicsClientId=self.client)
        joints = np.empty((len(states), 2), np.float32)
        joints[:, 0] = 2 * (np.array([state[0] for state in states]) - self.low) / self.range - 1.0
        joints[:, 1] = 0.1 * np.array([state[1] for state in states])
        return joints

    def _torso(self) -> tuple[Any, Any, Any]:
        """Position, orientation and velocity of the torso: the base of the Ant, a link of the others."""
        if self.torso < 0:
            place = self.bullet.getBasePositionAndOrientation(self.body, physicsClientId=self.client)
            return *place, self.bullet.getBaseVelocity(self.body, physicsClientId=self.client)[0]
        link = self.bullet.getLinkState(self.body, self.torso, computeLinkVelocity=1, physicsClientId=self.client)
        return link[0], link[1], link[6]

    def _parts(self, torso: Any) -> NDArray[np.float64]:
        """x, y, z of every part in turn: only a torso that is the base is a part which is no link."""
        links = self.bullet.getLinkStates(self.body, self.links, physicsClientId=self.client)
        self.positions[: len(links)] = [link[0] for link in links]
        self.positions[len(links)] = torso
        return self.positions[self.rows].reshape(-1)


@contextmanager
def quiet() -> Iterator[None]:
    """Keep off the terminal what PyBullet prints past Python when it is imported and when a world is made."""
    with suppress(AttributeError, ValueError):  # no stdout, or a closed one
        sys.stdout.flush()
    copies = [os.dup(descriptor) for descriptor in (1, 2)]
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        for descriptor, copy in zip((1, 2), copies, strict=True):
            os.dup2(copy, descriptor)
            os.close(copy)
        os.close(nowhere)
