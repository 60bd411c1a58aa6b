"""Pendulum with its velocity or its position hidden."""

from rlmem_envs.core.batched import Scores
from rlmem_envs.core.pendulum import PendulumBase
from rlmem_envs.occlusion.partly_seen import PartlySeen


class Pendulum(PartlySeen, PendulumBase):
    """Swing a pendulum up with a motor too weak to lift it, and hold it; see all, or only the position, or the speed.

    | | |
    |---|---|
    | observation | Box of float32. full: cos(angle), sin(angle), speed (rad/s); position: cos, sin; velocity: speed |
    | action | Box [1] in -2 .. 2: torque, clipped; a step is 0.05 s |
    | reward | -(angle^2 + 0.1 speed^2 + 0.001 torque^2), angle from upright in -pi .. pi: from -16.27 to 0 |
    | end | truncates after `horizon` steps |
    | hidden | `start` [2]: the first angle, uniform on +-pi, and speed, uniform on +-1 |
    | oracle | -139, from the full state, by value iteration on a grid |

    Held to Gymnasium's Pendulum-v1, step for step. The papers' wrapper takes actions in -1 .. 1; here they are torques,
    and rlmem maps the actions of every policy from -1 .. 1 to the bounds of the space.

    Players without memory: a position alone allows a push towards the top, -12 sin(angle); a speed alone a table of
    torques over speeds, found by search.

    observe: the part of the state that is shown
    horizon: steps of an episode
    privileged: see `BatchedEnv`
    """

    source = "POMDP-Baselines (Ni et al. 2022, arXiv:2110.05038), on Pendulum of Gymnasium"
    known = {
        "full": Scores(random=-1229.0, memoryless=-139.0, oracle=-139.0),
        "position": Scores(random=-1229.0, memoryless=-1028.0, oracle=-139.0),
        "velocity": Scores(random=-1229.0, memoryless=-657.2, oracle=-139.0),
    }
