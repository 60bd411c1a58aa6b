"""Random play of vector environments."""

import numpy as np
from gymnasium.spaces import Box, MultiDiscrete


def play(env, steps: int, seed: int = 0):
    """Observations, rewards, terminated and truncated of `steps` random steps; env i acts alike for every N."""
    for t in range(steps):
        yield env.step(actions(env, np.random.default_rng([seed, t])))


def actions(env, rng: np.random.Generator, num_envs: int = 64):
    """Uniform actions: the first of `num_envs`."""
    space = env.single_action_space
    if isinstance(space, Box):
        return rng.uniform(space.low, space.high, (num_envs, *space.shape))[: env.num_envs]
    size = space.nvec if isinstance(space, MultiDiscrete) else space.n
    return rng.integers(0, size, (num_envs, *space.shape))[: env.num_envs]


def assert_same(a, b, rows=slice(None)):
    for x, y in zip(a[:4], b[:4], strict=True):
        np.testing.assert_array_equal(x[rows], y[rows])


def random_returns(env) -> np.ndarray:
    """Returns of one random episode of every environment, which are then closed."""
    env.reset(seed=0)
    total, playing = np.zeros(env.num_envs), np.ones(env.num_envs, bool)
    rng, space = np.random.default_rng(0), env.action_space
    while playing.any():
        _, reward, terminated, truncated, _ = env.step(rng.uniform(space.low, space.high))
        total += np.where(playing, reward, 0)
        playing &= ~(terminated | truncated)
    env.close()
    return total
