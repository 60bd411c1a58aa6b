"""Recorded episodes: small data sets."""

from pathlib import Path

import numpy as np
from rlmem_envs.occlusion.pendulum import Pendulum

from rlmem.algos.supervised.dataset.file import Recording, write
from rlmem.algos.supervised.dataset.play import play, uniform


def recording(env=Pendulum, episodes: int = 12, steps: int = 20, seed: int = 0) -> Recording:
    """Return episodes of a task with uniform actions."""
    games = env(4, horizon=steps)
    return play(games, uniform(games.single_action_space, 4, np.random.default_rng(seed)), episodes, seed)


def provide_recording() -> None:
    """Write a recording to p.hdf5 if it is not there."""
    if not Path("p.hdf5").exists():
        write(Path("p.hdf5"), recording())
