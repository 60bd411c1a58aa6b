"""What peers that step Gymnasium's environments play."""

import gymnasium
import numpy as np
from popgym.envs import RepeatPreviousEasy


class OneHot(gymnasium.ObservationWrapper):
    """A discrete observation as a vector of float32."""

    def __init__(self, env):
        super().__init__(env)
        self.codes = np.eye(env.observation_space.n, dtype=np.float32)
        self.observation_space = gymnasium.spaces.Box(0, 1, self.codes[0].shape, np.float32)

    def observation(self, observation):
        return self.codes[observation]


def repeat_previous(render_mode=None):
    """One RepeatPreviousEasy of popgym. It has no pictures; libraries that ask for them get none."""
    return OneHot(RepeatPreviousEasy())
