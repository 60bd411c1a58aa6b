"""NoisyPositionOnlyCartPole of POPGym."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlmem_envs.core.batched import Scores
from rlmem_envs.popgym.position_only_cartpole import PositionOnlyCartPole
from rlmem_envs.popgym.sensor_noise import SensorNoise


class NoisyPositionOnlyCartPole(SensorNoise, PositionOnlyCartPole):
    """Balance a pole on a cart by pushing the cart; positions are seen through noise, velocities not at all.

    | | |
    |---|---|
    | observation | Box [2] of float32: position (m) of the cart and angle (rad) of the pole from upright, each plus \
normal noise, clipped to +-4.8 and +-24 degrees |
    | action | Discrete(2): push with 10 N to the left (0) or to the right (1) for 0.02 s |
    | reward | 1/max_episode_length for every step |
    | end | terminates when abs(position) > 2.4 or abs(angle) > 12 degrees; truncates after max_episode_length steps |
    | hidden | `start` [4]: the first (x, x', angle, angle'), uniform on +-0.05; `noise` [max_episode_length + 1, 2] |
    | oracle | 1, linear feedback of the full state, without noise |
    | full state | Box [5]: x, x', angle, angle'; the share of steps taken |

    Rules of popgym 1.0.7, also of 1.0.2.

    noise_sigma: standard deviation of the noise
    max_episode_length: the most steps of an episode
    """

    tests = "control: filtering positions, and estimating velocities from them"
    known = {
        "easy": Scores(random=0.1114, memoryless=0.2506, oracle=1.0),
        "medium": Scores(random=0.1114, memoryless=0.2051, oracle=1.0),
        "hard": Scores(random=0.1114, memoryless=0.1725, oracle=1.0),
    }

    def memoryless(self, rng: np.random.Generator) -> NDArray[Any]:
        """To the side to which the pole leans, as far as is seen, a little earlier if the cart is on the other side."""
        x, angle = self._observe().T
        return (angle > 0.1 * x).astype(np.int64)
