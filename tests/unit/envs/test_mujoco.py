"""The robots of MuJoCo: Gymnasium's own numbers, what is hidden, exact states, and machines that lack something."""

import subprocess
import sys
from importlib.util import find_spec

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from played import assert_same, play
from rlmem_envs.occlusion import gym_mujoco, robots
from rlmem_envs.occlusion.mujoco_robots import ROBOTS

from rlmem.commands.cli import main
from rlmem.config.compose import load as compose
from rlmem.run.nodes import make_env

needs_mujoco = pytest.mark.skipif(
    find_spec("mujoco") is None or find_spec("imageio") is None, reason="needs pip install '.[mujoco]'"
)
ONE_FAST = ["hopper", *(pytest.param(name, marks=pytest.mark.slow) for name in ROBOTS if name != "hopper")]
every_robot = pytest.mark.parametrize("name", ONE_FAST)
SIZES = {"ant": (13, 14, 105), "half_cheetah": (8, 9, 17), "hopper": (5, 6, 11), "walker": (8, 9, 17)} | {
    "humanoid": (22, 23, 348)
}
"""Numbers of positions, of velocities, and in all."""


def make(name: str, *args, **kwargs):
    return robots.make(name, *args, backend="mujoco", **kwargs)


@needs_mujoco
@every_robot
def test_episodes_are_gymnasiums_and_their_parts_are_qpos_and_qvel(name, in_tmp):
    """Beside the registered environment, with what its own data say of positions and velocities.

    Its models are old enough for MuJoCo to write a log of warnings into the current folder.
    """
    shown = {observe: make(name, observe, num_envs=2, workers=0) for observe in ("full", "position", "velocity")}
    env = shown["full"]
    package = gym.make(env.env_id)
    first = {observe: vector.reset(seed=3)[0][1] for observe, vector in shown.items()}
    own, _ = package.reset(seed=int(env.seed[1]))
    data, inner = package.unwrapped.data, package.unwrapped
    position, velocity, size = SIZES[name]
    clip = 10 if name in ("hopper", "walker") else np.inf

    def compare(seen, own):
        assert own.shape == (size,) == seen["full"].shape
        np.testing.assert_array_equal(seen["full"], own.astype(np.float32))
        np.testing.assert_array_equal(seen["position"], data.qpos[inner.model.nq - position :].astype(np.float32))
        np.testing.assert_array_equal(seen["velocity"], np.clip(data.qvel, -clip, clip).astype(np.float32))
        assert seen["velocity"].shape == (velocity,)

    compare(first, own)
    assert (env.single_action_space, len(env.layout().position)) == (package.action_space, position)
    ended = 0
    for steps in zip(*(play(vector, 80, seed=1) for vector in shown.values()), strict=True):
        if ended:
            own, _ = package.reset(seed=int(env.seed[1]))
            ended = 0
        else:
            own, reward, terminated, *_ = package.step(env.taken[1])
            assert all((reward, terminated) == (step[1][1], step[2][1]) for step in steps)
            ended = terminated
        compare({observe: step[0][1] for observe, step in zip(shown, steps, strict=True)}, own)
    package.close()


@needs_mujoco
def test_the_full_state_is_shown_beside_what_is_seen():
    plain, shown = (make("hopper", "position", num_envs=2, workers=0, privileged=given) for given in (False, True))
    full = make("hopper", num_envs=2, workers=0)
    for env in (plain, shown, full):
        env.reset(seed=1)
    for (obs, *rest), (parts, *same), (whole, *_) in zip(*(play(env, 30) for env in (plain, shown, full)), strict=True):
        assert shown.observation_space.contains(parts)
        np.testing.assert_array_equal(parts["privileged"], whole)
        assert_same([obs, *rest], [parts["observation"], *same])


@needs_mujoco
def test_a_state_of_another_build_is_noticed():
    env = make("hopper", num_envs=2, workers=0)
    env.reset(seed=0)
    for _ in play(env, 3):
        pass
    saved = env.state()
    saved["arrays"]["full"][0] += 1e-3
    with pytest.warns(UserWarning, match=r"Hopper: .*replayed to other states .*0\.001.*build of MuJoCo"):
        env.restore(saved)
    with pytest.raises(ValueError, match="is none of"):
        robots.make("hopper", num_envs=2, workers=0).restore(saved)


@needs_mujoco
@every_robot
@pytest.mark.filterwarnings("ignore:.*A Box observation space")  # Gymnasium's own have no bounds
def test_gymnasium_accepts_it_and_it_can_be_read(name):
    task = {"humanoid": "Humanoid", "half_cheetah": "HalfCheetah"}.get(name, name.capitalize())
    env = gym.make(f"rlmem/{task}-v0", observe="velocity", backend="mujoco")
    check_env(env.unwrapped, skip_render_check=True)
    vector = gym.make_vec(f"rlmem/{task}-v0", num_envs=3, observe="position", backend="mujoco")
    position, velocity, _ = SIZES[name]
    assert vector.single_observation_space.shape == (position,)
    env.reset(seed=0)
    text = env.unwrapped.vector.text(0).splitlines()
    assert text[0].startswith(f"{ROBOTS[name].__name__}, step 0 ") and len(text) >= velocity
    assert sum("(" in line for line in text) == position, "positions are hidden"


@needs_mujoco
@pytest.mark.slow
def test_an_episode_is_filmed(in_tmp, capfd):
    arguments = ["env=hopper_p", "env.backend=mujoco", "env.max_episode_steps=5", "--player", "random", "--seed", "0"]
    try:
        gym_mujoco.opengl()
    except RuntimeError as error:
        pytest.skip(str(error))
    assert main(["play", *arguments, "--gif", "hopper.gif"]) == 0
    drawn = make("hopper", num_envs=1)
    drawn.reset(seed=0)
    assert drawn.picture(0).shape == (240, 320, 3) and drawn.picture(0).std() > 10
    assert "draws no pictures" not in capfd.readouterr().err


DRAWN_AND_COMPILED = """
from rlmem_envs.occlusion.mujoco_robots import ROBOTS
env = ROBOTS["hopper"](num_envs=1)
env.reset(seed=0)
env.picture(0)
import torch._dynamo
"""


@needs_mujoco
@pytest.mark.slow
def test_torchs_compiler_can_be_loaded_after_a_picture():
    """Mesa, which draws, and Triton, which the compiler loads, have an LLVM each."""
    done = subprocess.run([sys.executable, "-c", DRAWN_AND_COMPILED], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@needs_mujoco
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere Gymnasium finds out by itself how to draw")
def test_where_nothing_draws_numbers_are_shown(monkeypatch):
    for name in ("MUJOCO_GL", "DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(gym_mujoco, "find_library", lambda name: None)
    gym_mujoco.opengl.cache_clear()
    env = make("hopper", num_envs=1)
    env.reset(seed=0)
    with pytest.warns(
        UserWarning, match=r"^MuJoCo draws no pictures here.* \(neither libEGL nor libOSMesa is installed"
    ):
        first = env.picture(0)
    assert first.std() > 0 and np.array_equal(first, env.picture(0)), "and said once"
    gym_mujoco.opengl.cache_clear()


@needs_mujoco
@pytest.mark.parametrize(("option", "observe"), [("ant_p", "position"), ("walker", "full"), ("humanoid_v", "velocity")])
def test_the_options_of_the_command_line(option, observe):
    env = make_env(compose([f"env={option}", "env.backend=mujoco"]))
    robot = ROBOTS[option.removesuffix("_p").removesuffix("_v")]
    assert type(env) is robot and env.max_episode_steps == 1000 and env.full_size() == robot.size()
    assert env.single_observation_space.shape == (len(robot.slots(observe)),) and env.seen_slots() == env._seen


def test_what_does_not_go_together_is_one_line(monkeypatch, capsys):
    assert main(["play", "env=humanoid", "env.backend=pybullet", "--player", "random"]) == 2
    error = capsys.readouterr().err
    assert "expected one of ant, half_cheetah, hopper, walker with backend=pybullet; backend=mujoco has it" in error
    monkeypatch.setitem(sys.modules, "mujoco", None)
    assert main(["play", "env=ant", "env.backend=mujoco", "--player", "random"]) == 2
    error += capsys.readouterr().err
    assert error.endswith(
        "env=ant: Ant needs mujoco, which is not installed: pip install '.[mujoco]' in a clone of rlmem\n"
    )
    assert error.count("\n") == 2


@needs_mujoco
@pytest.mark.slow
@pytest.mark.parametrize("name", ROBOTS)
def test_random_actions_return_what_the_card_says(name):
    num_envs = 24 if name in ("ant", "half_cheetah") else 128
    env = make(name, num_envs=num_envs)
    env.reset(seed=0)
    total, playing = np.zeros(num_envs), np.ones(num_envs, bool)
    rng, space = np.random.default_rng(0), env.action_space
    while playing.any():
        _, reward, terminated, truncated, _ = env.step(rng.uniform(space.low, space.high))
        total += np.where(playing, reward, 0)
        playing &= ~(terminated | truncated)
    env.close()
    assert abs(total.mean() - env.scores().random) <= 4 * total.std(ddof=1) / num_envs**0.5
