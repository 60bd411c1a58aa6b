"""Recorded episodes: small data sets."""

import numpy as np
from rlmem_envs.occlusion.pendulum import Pendulum

from rlmem.supervised.dataset.file import Recording
from rlmem.supervised.dataset.play import play, uniform


def recording(env=Pendulum, episodes: int = 12, steps: int = 20) -> Recording:
    made = env(4, horizon=steps)
    return play(made, uniform(made.single_action_space, 4, np.random.default_rng(0)), episodes, 0)
