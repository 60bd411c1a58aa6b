"""PositionOnlyPendulum of POPGym."""

from typing import Annotated, Any

import numpy as np
from annotated_types import Gt
from numpy.typing import NDArray

from rlmem_envs.core.batched import Scores
from rlmem_envs.core.pendulum import PendulumBase

HALF_RANGE = 16.2736044 / 2
"""Half of the largest cost of a step."""


class PositionOnlyPendulum(PendulumBase):
    """Swing a pendulum up with a motor too weak to lift it, and hold it; the speed is not seen.

    | | |
    |---|---|
    | observation | Box [2] of float32: cosine and sine of the angle from upright |
    | action | Box [1] in -2 .. 2: torque, clipped; a step is 0.05 s |
    | reward | (1 - cost/8.1368)/max_episode_length, so within +-1/max_episode_length; cost = angle^2 + 0.1 speed^2 + \
0.001 torque^2 with the angle in -pi .. pi |
    | end | truncates after max_episode_length steps |
    | hidden | `start` [2]: the first angle, uniform on +-pi, and speed, uniform on +-1 |
    | oracle | 0.915 in 200 steps, from the full state, by value iteration on a grid |
    | full state | Box [4]: cosine, sine, speed; the share of steps taken |

    Rules of popgym 1.0.7, also of 1.0.2. A shorter episode is harder: more of it is the way up.

    max_episode_length: steps of an episode
    """

    tests = "control: estimating a velocity from positions"
    source = "POPGym (Morad et al. 2023, arXiv:2303.01859)"
    returns = (-1.0, 1.0)
    levels = {
        "easy": {"max_episode_length": 200},
        "medium": {"max_episode_length": 150},
        "hard": {"max_episode_length": 100},
    }
    known = {
        "easy": Scores(random=0.2447, memoryless=0.3682, oracle=0.9146),
        "medium": Scores(random=0.2431, memoryless=0.368, oracle=0.8862),
        "hard": Scores(random=0.2415, memoryless=0.3668, oracle=0.8293),
    }

    def __init__(
        self,
        num_envs: Annotated[int, Gt(0)] = 1,
        max_episode_length: Annotated[int, Gt(0)] = 200,
        **kwargs: Any,
    ):
        params = {"max_episode_length": max_episode_length}
        super().__init__(num_envs, "position", max_episode_length, params, **kwargs)

    def _advance(self, actions: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]:
        reward, terminated, truncated = super()._advance(actions)
        return (reward + HALF_RANGE) / (HALF_RANGE * self._steps), terminated, truncated
