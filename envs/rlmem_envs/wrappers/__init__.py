"""Wrappers of vectors of environments: what is seen, how long an action lasts, where episodes begin and end."""

from rlmem_envs.wrappers.delay import Delay
from rlmem_envs.wrappers.dropout import Dropout
from rlmem_envs.wrappers.flicker import Flicker
from rlmem_envs.wrappers.frame_stack import FrameStack
from rlmem_envs.wrappers.layer import Layer, ObservationLayer
from rlmem_envs.wrappers.mask import Mask
from rlmem_envs.wrappers.noise import Noise
from rlmem_envs.wrappers.random_start import RandomStart
from rlmem_envs.wrappers.remove_velocity import RemoveVelocity
from rlmem_envs.wrappers.repeat import Repeat
from rlmem_envs.wrappers.rl2 import RL2

__all__ = [
    "RL2",
    "Delay",
    "Dropout",
    "Flicker",
    "FrameStack",
    "Layer",
    "Mask",
    "Noise",
    "ObservationLayer",
    "RandomStart",
    "RemoveVelocity",
    "Repeat",
]
