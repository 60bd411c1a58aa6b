"""VelocityOnlyCartPole of POPGym."""

from typing import Annotated, Any, Literal

import numpy as np
from annotated_types import Gt
from numpy.typing import NDArray

from rlmem_envs.core.batched import Scores
from rlmem_envs.core.cartpole import SHOWN, CartPoleBase


class VelocityOnlyCartPole(CartPoleBase):
    """Balance a pole on a cart by pushing the cart; no position is seen, but for the first observation.

    | | |
    |---|---|
    | observation | Box [2] of float32: velocity (m/s) of the cart, angular velocity (rad/s) of the pole |
    | action | Discrete(2): push with 10 N to the left (0) or to the right (1) for 0.02 s |
    | reward | 1/max_episode_length for every step |
    | end | terminates when abs(position) > 2.4 or abs(angle) > 12 degrees; truncates after max_episode_length steps |
    | hidden | `start` [4]: the first (x, x', angle, angle'), uniform on +-0.05 |
    | oracle | 1, linear feedback of the full state |
    | full state | Box [5]: x, x', angle, angle'; the share of steps taken |

    Rules of popgym 1.0.7. As there, the first observation of an episode holds the position and the angle in place of
    their velocities, which looks like a slip; `first_observation` mends it.

    Hardly a test of memory: a linear function of the two velocities balances for 200 steps, and for most of 400.

    max_episode_length: the most steps of an episode
    first_observation: what the first observation shows; position: as published; velocity: as all others
    """

    tests = "control: estimating positions from velocities"
    source = "POPGym (Morad et al. 2023, arXiv:2303.01859)"
    returns = (0.0, 1.0)
    levels = {
        "easy": {"max_episode_length": 200, "first_observation": "position"},
        "medium": {"max_episode_length": 400, "first_observation": "position"},
        "hard": {"max_episode_length": 600, "first_observation": "position"},
    }
    _shares = True
    known = {
        "easy": Scores(random=0.1114, memoryless=1.0, oracle=1.0),
        "medium": Scores(random=0.0557, memoryless=0.9995, oracle=1.0),
        "hard": Scores(random=0.0371, memoryless=0.8556, oracle=1.0),
    }

    def __init__(
        self,
        num_envs: Annotated[int, Gt(0)] = 1,
        max_episode_length: Annotated[int, Gt(0)] = 200,
        first_observation: Literal["position", "velocity"] = "position",
        **kwargs: Any,
    ):
        params = {"max_episode_length": max_episode_length, "first_observation": first_observation}
        super().__init__(num_envs, "velocity", max_episode_length, params, **kwargs)
        self._first = SHOWN[first_observation]

    def _observe(self) -> NDArray[Any]:
        shown = super()._observe()
        first = self.t == 0
        if np.count_nonzero(first):
            shown[first] = self.body[self._first, first].T
        return shown
