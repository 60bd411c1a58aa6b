"""PositionOnlyCartPole of POPGym."""

from typing import Annotated, Any

from annotated_types import Gt

from rlmem_envs.core.batched import Scores
from rlmem_envs.core.cartpole import CartPoleBase


class PositionOnlyCartPole(CartPoleBase):
    """Balance a pole on a cart by pushing the cart; no velocity is seen.

    | | |
    |---|---|
    | observation | Box [2] of float32: position (m) of the cart, angle (rad) of the pole from upright |
    | action | Discrete(2): push with 10 N to the left (0) or to the right (1) for 0.02 s |
    | reward | 1/max_episode_length for every step |
    | end | terminates when abs(position) > 2.4 or abs(angle) > 12 degrees; truncates after max_episode_length steps |
    | hidden | `start` [4]: the first (x, x', angle, angle'), uniform on +-0.05 |
    | oracle | 1, linear feedback of the full state |
    | full state | Box [5]: x, x', angle, angle'; the share of steps taken |

    Rules of popgym 1.0.7, also of 1.0.2. What can be done without memory says `rlmem_envs.occlusion.cartpole`.

    max_episode_length: the most steps of an episode
    """

    tests = "control: estimating velocities from positions"
    source = "POPGym (Morad et al. 2023, arXiv:2303.01859)"
    returns = (0.0, 1.0)
    levels = {
        "easy": {"max_episode_length": 200},
        "medium": {"max_episode_length": 400},
        "hard": {"max_episode_length": 600},
    }
    _shares = True
    known = {
        "easy": Scores(random=0.1114, memoryless=0.6675, oracle=1.0),
        "medium": Scores(random=0.0557, memoryless=0.43, oracle=1.0),
        "hard": Scores(random=0.0371, memoryless=0.2997, oracle=1.0),
    }

    def __init__(
        self,
        num_envs: Annotated[int, Gt(0)] = 1,
        max_episode_length: Annotated[int, Gt(0)] = 200,
        **kwargs: Any,
    ):
        params = {"max_episode_length": max_episode_length}
        super().__init__(num_envs, "position", max_episode_length, params, **kwargs)
