"""NoisyPositionOnlyPendulum of POPGym."""

from rlmem_envs.core.batched import Scores
from rlmem_envs.popgym.position_only_pendulum import PositionOnlyPendulum
from rlmem_envs.popgym.sensor_noise import SensorNoise


class NoisyPositionOnlyPendulum(SensorNoise, PositionOnlyPendulum):
    """Swing a pendulum up with a motor too weak to lift it, and hold it; only its position is seen, through noise.

    | | |
    |---|---|
    | observation | Box [2] of float32: cosine and sine of the angle from upright, each plus normal noise, clipped to \
-1 .. 1 |
    | action | Box [1] in -2 .. 2: torque, clipped; a step is 0.05 s |
    | reward | (1 - cost/8.1368)/max_episode_length, so within +-1/max_episode_length; cost = angle^2 + 0.1 speed^2 + \
0.001 torque^2 with the angle in -pi .. pi |
    | end | truncates after max_episode_length steps |
    | hidden | `start` [2]: the first angle, uniform on +-pi, and speed, uniform on +-1; \
`noise` [max_episode_length + 1, 2] |
    | oracle | 0.915, from the full state without noise, by value iteration on a grid |
    | full state | Box [4]: cosine, sine, speed; the share of steps taken |

    Rules of popgym 1.0.7, also of 1.0.2.

    noise_sigma: standard deviation of the noise
    max_episode_length: steps of an episode
    """

    tests = "control: filtering positions, and estimating a velocity from them"
    known = {
        "easy": Scores(random=0.2447, memoryless=0.3442, oracle=0.9146),
        "medium": Scores(random=0.2447, memoryless=0.3311, oracle=0.9146),
        "hard": Scores(random=0.2447, memoryless=0.3223, oracle=0.9146),
    }
