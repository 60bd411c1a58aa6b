"""CartPole with its velocities or its positions hidden."""

from rlmem_envs.core.batched import Scores
from rlmem_envs.core.cartpole import CartPoleBase
from rlmem_envs.occlusion.partly_seen import PartlySeen


class CartPole(PartlySeen, CartPoleBase):
    """Balance a pole on a cart by pushing the cart; see all, or only positions, or only velocities.

    | | |
    |---|---|
    | observation | Box of float32. full: position x (m) of the cart, its velocity x', angle (rad) of the pole from \
upright, its velocity angle'; position: x, angle; velocity: x', angle' |
    | action | Discrete(2): push with 10 N to the left (0) or to the right (1) for 0.02 s |
    | reward | 1 for every step |
    | end | terminates when abs(x) > 2.4 or abs(angle) > 12 degrees, truncates after `horizon` steps |
    | hidden | `start` [4]: the first (x, x', angle, angle'), uniform on +-0.05 |
    | oracle | 200, linear feedback of the full state |

    Held to Gymnasium's CartPole-v1, step for step; the papers' CartPole-v0 differs in its 200 steps only.

    observe="position" needs memory, or a trick. Near upright the angle obeys angle'' = a angle - g s with a = 15.8,
    g = 14.6, s = 1 for a push to the right and -1 to the left. Let a player push to the right with a chance that
    depends on the angle alone and never falls as the angle grows, and let V be the potential of the mean force. Nothing
    it sees tells it to damp: while the energy E = angle'^2 / 2 + V is below V at 12 degrees, which is at most 2.7,
    every Euler step of 0.02 s adds on average at least 0.02^2 / 2 (g - a 12 degrees)^2 = 0.026 to it. So the pole
    swings ever wider and falls, after about 100 steps on average at most, however long the episode. The best such
    player found lasts 51 steps, and feedback of x beside the angle did not add to them.

    The trick: a push that turns round at many angles. Whether a step of 0.02 s leaps over such a stripe depends on the
    speed that is not seen. A search over stripes found a player that lasts 133.5 of 200 steps on average and the whole
    episode in 37% of them; `memoryless` plays it. It is tuned to a ten-thousandth of a radian; noise destroys it.

    observe="velocity" needs no memory: a linear function of x' and angle' balances for 200 steps (not for 600).

    observe: the part of the state that is shown
    horizon: the most steps of an episode
    privileged: see `BatchedEnv`
    """

    source = "POMDP-Baselines (Ni et al. 2022, arXiv:2110.05038), on CartPole of Gymnasium"
    known = {
        "full": Scores(random=22.28, memoryless=200.0, oracle=200.0),
        "position": Scores(random=22.28, memoryless=133.5, oracle=200.0),
        "velocity": Scores(random=22.28, memoryless=200.0, oracle=200.0),
    }
