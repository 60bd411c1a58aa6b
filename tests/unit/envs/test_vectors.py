"""Vectors over engines of others: episodes depend on their seeds alone, and a restored state goes on exactly."""

from collections.abc import Callable
from importlib.util import find_spec

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import VectorEnv
from played import assert_same, play
from rlmem_envs import atari, minigrid
from rlmem_envs.occlusion import bullet_robots, mujoco_robots, robots


def robot(name: str, backend: str) -> Callable[[int], VectorEnv]:
    """A robot that shows its velocities, in this process if there are few of it, else in workers."""
    limit = 13 if name == "ant" else 40
    return lambda num_envs: robots.make(
        name, "velocity", backend=backend, num_envs=num_envs, workers=0 if num_envs < 5 else 2, max_episode_steps=limit
    )


VECTORS = {
    **{f"pybullet {name}": robot(name, "pybullet") for name in bullet_robots.ROBOTS},
    **{f"mujoco {name}": robot(name, "mujoco") for name in mujoco_robots.ROBOTS},
    "minigrid": lambda num_envs: minigrid.make(num_envs=num_envs, max_episode_steps=20),
    "atari": lambda num_envs: atari.make("Breakout", num_envs),
}
PACKAGES = {"pybullet": "pybullet_envs_gymnasium", "mujoco": "mujoco", "minigrid": "minigrid", "atari": "ale_py"}
FAST = {"pybullet ant", "mujoco hopper", "minigrid"}
every_vector = pytest.mark.parametrize(
    "name", [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in VECTORS]
)


@pytest.fixture
def make(name):
    """What makes a vector of so many environments; all of them are closed."""
    if find_spec(PACKAGES[name.partition(" ")[0]]) is None:
        pytest.skip(f"needs {PACKAGES[name.partition(' ')[0]]}")
    envs = []
    yield lambda num_envs: envs.append(VECTORS[name](num_envs)) or envs[-1]
    for env in envs:
        env.close()


@every_vector
def test_episodes_do_not_depend_on_how_many_there_are_or_who_steps_them(name, make):
    few, many = make(2), make(5)
    np.testing.assert_array_equal(few.reset(seed=5)[0], many.reset(seed=5)[0][:2])
    for x, y in zip(play(few, 30), play(many, 30), strict=True):
        assert_same(x, [part[:2] for part in y[:4]])


@every_vector
def test_a_state_is_exact_in_any_vector(name, make):
    """States from the middle of episodes and of their beginning."""
    env, fresh = make(5), make(5)
    env.reset(seed=1)
    for _ in play(env, 25):
        pass
    env.reset(options={"reset_mask": np.array([False, True, False, False, False])})
    saved = env.state()
    expected = list(play(env, 25, seed=1))
    env.restore(saved)  # a world that has moved on
    fresh.restore(saved)  # new worlds
    for x, y, z in zip(play(env, 25, seed=1), play(fresh, 25, seed=1), expected, strict=True):
        assert_same(x, z)
        assert_same(y, z)


@pytest.mark.parametrize(("backend", "positions"), [("pybullet", 17), ("mujoco", 13)])
@pytest.mark.filterwarnings("ignore:.*A Box observation space")  # those of the packages have no bounds
def test_gymnasium_accepts_a_robot_and_it_can_be_looked_at(backend, positions):
    pytest.importorskip(PACKAGES[backend])
    env = gym.make("rlmem/Hopper-v0", observe="velocity", backend=backend, render_mode="rgb_array")
    check_env(env.unwrapped, skip_render_check=True)
    env.reset(seed=0)
    frame = env.render()
    assert frame.shape == (240, 320, 3) and frame.dtype == np.uint8 and frame.std() > 0
    text = env.unwrapped.vector.text(0)
    assert text.startswith("Hopper, step 0 ") and "(" in text, "positions are hidden"
    env.close()
    vector = gym.make_vec("rlmem/Ant-v0", num_envs=3, observe="position", backend=backend)
    assert vector.single_observation_space.shape == (positions,)
    vector.close()
