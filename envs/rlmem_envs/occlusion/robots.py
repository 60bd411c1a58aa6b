"""Walking robots with their positions or their velocities hidden: by name, on the physics of one's choice."""

from typing import Annotated, Any, Literal

import numpy as np
from annotated_types import Ge, Gt
from numpy.typing import NDArray

from rlmem_envs.core.single import SingleEnv
from rlmem_envs.occlusion import bullet_robots, mujoco_robots
from rlmem_envs.occlusion.robot import Observe, Robot

Name = Literal["ant", "half_cheetah", "hopper", "walker", "humanoid"]
Backend = Literal["pybullet", "mujoco"]

ROBOTS: dict[str, dict[str, type[Robot]]] = {
    "pybullet": dict(bullet_robots.ROBOTS),
    "mujoco": dict(mujoco_robots.ROBOTS),
}
"""Backend -> name -> class."""

PUBLISHED = {
    "ant": (373.71, 2650.50),
    "half_cheetah": (-1275.77, 2381.67),
    "hopper": (20.06, 1441.81),
    "walker": (16.52, 1623.65),
}
"""Returns of a random agent and of an expert on PyBullet: Lu et al. 2024 (arXiv:2405.17358), table 5, after the data of
D4RL."""


def normalised(robot: Name, returns: NDArray[np.float64] | float) -> Any:
    """0 for the published random agent on PyBullet, 100 for the expert (equation 3 of Lu et al. 2024)."""
    random, expert = PUBLISHED[robot]
    return 100 * (returns - random) / (expert - random)


def make(
    robot: Name,
    observe: Observe = "full",
    num_envs: Annotated[int, Gt(0)] = 16,
    workers: Annotated[int, Ge(0)] | None = None,
    max_episode_steps: Annotated[int, Gt(0)] = 1000,
    backend: Backend = "pybullet",
    privileged: bool = False,
    **kwargs: Any,
) -> Robot:
    """`num_envs` copies of a robot, with the parameters of `Robot`.

    backend: the physics; returns on PyBullet compare with the papers on occlusion, those on MuJoCo with most others

    Raises ImportError without the physics, ValueError for a robot that it does not have, or an `observe` that does not
    exist.
    """
    if backend not in ROBOTS:
        raise ValueError(f"backend={backend!r}: expected one of {', '.join(ROBOTS)}")
    if robot not in (known := ROBOTS[backend]):
        others = [other for other, robots in ROBOTS.items() if robot in robots]
        hint = f"; backend={others[0]} has it" if others else ""
        raise ValueError(f"robot={robot!r}: expected one of {', '.join(known)} with backend={backend}{hint}")
    return known[robot](num_envs, observe, workers, max_episode_steps, privileged=privileged, **kwargs)


def make_single(robot: Name, **kwargs: Any) -> SingleEnv:
    """One robot, for `gymnasium.make`."""
    return SingleEnv(make(robot, num_envs=1, **kwargs))
