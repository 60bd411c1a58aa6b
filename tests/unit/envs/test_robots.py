"""The PyBullet robots: what the slots are, the package's own numbers, exact states, and workers that die."""

import os
import signal
import subprocess
import sys
from functools import partial
from importlib.util import find_spec

import numpy as np
import pytest
from gymnasium.error import InvalidAction, ResetNeeded
from helpers import fast_only, wait_for
from played import assert_same, play, random_returns
from rlmem_envs.occlusion import bullet_robots, robots
from rlmem_envs.occlusion.bullet import load, package_env
from rlmem_envs.occlusion.workers import Crew, WorkerError

from rlmem.config.compose import load as compose
from rlmem.run.nodes import make_env

needs_bullet = pytest.mark.skipif(find_spec("pybullet_envs_gymnasium") is None, reason="needs PyBullet")
every_robot = pytest.mark.parametrize("name", fast_only(["hopper"], bullet_robots.ROBOTS))

POSITION = {
    "ant": [0, 1, 2, 6, 7, 8, 10, 12, 14, 16, 18, 20, 22, 24, 25, 26, 27],
    "half_cheetah": [0, 1, 2, 6, 7, 8, 10, 12, 14, 16, 18, 20, 21, 22, 23, 24, 25],
    "hopper": [0, 1, 2, 6, 7, 8, 10, 12, 14],
    "walker": [0, 1, 2, 6, 7, 8, 10, 12, 14, 16, 18, 20, 21],
}
"""As Ni et al. (2022) and Lu et al. (2024) list them; all others are velocities."""


@every_robot
def test_the_slots_are_those_of_the_papers(name):
    robot = bullet_robots.ROBOTS[name]
    assert robot.slots("position") == POSITION[name]
    assert robot.slots("velocity") == sorted({*robot.slots("full")} - {*POSITION[name]})
    with pytest.raises(ValueError, match="observe='positions': expected one of full, position, velocity"):
        robot.slots("positions")


@needs_bullet
@every_robot
def test_every_slot_shows_what_the_card_says(name):
    """Each slot against what PyBullet itself says about the robot."""
    robot = bullet_robots.ROBOTS[name]
    env = package_env(robot.package_name)
    rng = np.random.default_rng(0)
    env.reset(seed=1)
    height = env.robot.body_real_xyz[2]
    assert tuple(joint.joint_name for joint in env.robot.ordered_joints) == robot.joints
    assert tuple(env.robot.foot_list) == robot.contacts
    touched = np.zeros(1)
    while not touched.any():
        touched = env.robot.feet_contact.copy()
        obs = env.step(rng.uniform(-1, 1, len(robot.joints)))[0]
    assert obs.shape == (robot.size(),)
    np.testing.assert_array_equal(obs[8 + 2 * len(robot.joints) :], touched)

    for k, joint in enumerate(env.robot.ordered_joints):
        position, speed, *_ = env._p.getJointState(env.robot.objects[0], joint.jointIndex)
        lower, upper = env._p.getJointInfo(env.robot.objects[0], joint.jointIndex)[8:10]
        scaled = 2 * (position - lower) / (upper - lower) - 1
        np.testing.assert_allclose(obs[[8 + 2 * k, 9 + 2 * k]], [scaled, 0.1 * speed], rtol=1e-6, atol=1e-6)
    place, orientation, velocity = torso(env)
    roll, pitch, yaw = env._p.getEulerFromQuaternion(orientation)
    along = np.array([[np.cos(yaw), np.sin(yaw), 0], [-np.sin(yaw), np.cos(yaw), 0], [0, 0, 1]]) @ velocity
    target = np.arctan2(-place[1], 1000 - place[0]) - yaw
    expected = [place[2] - height, np.sin(target), np.cos(target), *(0.3 * along), roll, pitch]
    np.testing.assert_allclose(obs[:8], expected, atol=1e-3)  # the target is seen from the mean of all parts


def torso(env):
    """Position, orientation and velocity of the part named torso, from PyBullet."""
    body = env.robot.objects[0]
    for link in range(env._p.getNumJoints(body)):
        if env._p.getJointInfo(body, link)[12] == b"torso":
            state = env._p.getLinkState(body, link, computeLinkVelocity=1)
            return state[0], state[1], np.array(state[6])
    return *env._p.getBasePositionAndOrientation(body), np.array(env._p.getBaseVelocity(body)[0])


@needs_bullet
@every_robot
def test_episodes_are_those_of_the_package_bit_for_bit(name):
    env = robots.make(name, num_envs=2, workers=0)
    env.reset(seed=3)
    package = package_env(env.package_name)
    np.testing.assert_array_equal(package.reset(seed=int(env.seed[1]))[0], env.full[1])
    assert env.single_action_space == package.action_space
    assert env.single_observation_space == package.observation_space
    for step in play(env, 60, seed=1):
        obs, reward, terminated, *_ = package.step(env._taken[env.t[1] - 1, 1])
        assert reward == step[1][1] and terminated == step[2][1]
        np.testing.assert_array_equal(obs, step[0][1])
        if terminated:
            break
    package.close()


@needs_bullet
def test_a_killed_worker_is_named_and_the_state_goes_on_with_others():
    env, twin = robots.make("hopper", num_envs=5, workers=2), robots.make("hopper", num_envs=5, workers=0)
    env.reset(seed=2)
    twin.reset(seed=2)
    for x, y in zip(play(env, 5), play(twin, 5), strict=True):
        assert_same(x, y)

    good = np.zeros((5, 3), np.float32)
    for bad, match in ((np.nan, "environment 3"), (np.inf, "environment 3")):
        wrong = good.copy()
        wrong[3, 1] = bad
        with pytest.raises(InvalidAction, match=match):
            env.step(wrong)
    with pytest.raises(InvalidAction, match="environment 4 has no action"):
        env.step(good[:4])
    assert_same(env.step(good + 7), twin.step(good + 1))  # beyond the box is its edge

    saved = env.state()
    first, second = [member.process for member in env._crew.members]
    os.kill(second.pid, signal.SIGKILL)
    match = rf"worker 1 \(environments 2 to 4\), process {second.pid}, died with exit code -9 \(SIGKILL\)"
    with pytest.raises(WorkerError, match=match):
        env.step(good)
    assert first.poll() is not None
    with pytest.raises(ResetNeeded, match="no episode is running"):
        env.step(good)
    env.restore(saved)
    for x, y in zip(play(env, 5), play(twin, 5), strict=True):
        assert_same(x, y)
    processes = [member.process for member in env._crew.members]
    del env
    assert all(process.poll() is not None for process in processes)


def test_what_goes_wrong_in_a_worker_is_told():
    crew = Crew(partial(load, "Nonsense"), 1, 1)
    with pytest.raises(WorkerError, match=r"worker 0 \(environments 0 to 0\) failed:\n(.*\n)*.*Nonsense"):
        crew.call("begin", np.array([0]), [0])
    assert crew.closed


SCRIPT = """
import sys
import rlmem_envs
from rlmem_envs.occlusion import robots, workers
assert not {"torch", "pybullet"} & set(sys.modules), "heavy imports"
env = robots.make("hopper", num_envs=2, workers=WORKERS)
env.reset(seed=0)
print(*[member.process.pid for member in env._crew.members if WORKERS], flush=True)
while WORKERS:
    env.step(env.action_space.sample())
env.step(env.action_space.sample())
"""


def start_script(workers: int) -> subprocess.Popen:
    """SCRIPT in a process of its own, without a guard for its main module and in a session of its own."""
    path = os.pathsep.join(os.path.abspath(part) for part in sys.path if part)
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT.replace("WORKERS", str(workers))],
        env=os.environ | {"PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@needs_bullet
def test_output_stays_clean():
    output, errors = start_script(0).communicate(timeout=240)
    assert (output, errors) == ("\n", "")


@needs_bullet
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("how", ["interrupted", "killed"])
def test_workers_end_with_their_parent(how):
    parent = start_script(2)
    workers = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(workers) == 2 and all(map(runs, workers))
    if how == "interrupted":
        os.killpg(parent.pid, signal.SIGINT)  # as a terminal does
    else:
        parent.kill()
    errors = parent.communicate(timeout=240)[1]
    assert errors.count("Traceback") == ("KeyboardInterrupt" in errors) == (how == "interrupted"), errors
    wait_for(lambda: not any(map(runs, workers)))


def runs(pid: int) -> bool:
    """Whether a process is there and is no zombie."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@needs_bullet
def test_a_given_seed_or_a_mask_begins_those_episodes():
    env, twin = (robots.make("hopper", num_envs=3, workers=0) for _ in range(2))
    env.reset(seed=0)
    seeds = env.seed.copy()
    twin.reset(seed=1, options={"hidden": {"seed": seeds}})
    np.testing.assert_array_equal(env.full, twin.full)
    env.step(np.zeros((3, 3)))
    before = env.full.copy()
    env.reset(options={"reset_mask": np.zeros(3, bool)})
    np.testing.assert_array_equal(env.full, before)
    env.reset(options={"reset_mask": np.array([False, True, False])})
    assert (env.seed != seeds).tolist() == (env.full != before).any(1).tolist() == [False, True, False]


@needs_bullet
@pytest.mark.parametrize(
    ("option", "observe"),
    [("ant_p", "position"), ("half_cheetah_v", "velocity"), ("hopper", "full"), ("walker_v", "velocity")],
)
def test_the_options_of_the_command_line(option, observe):
    env = make_env(compose([f"env={option}"]))
    robot = bullet_robots.ROBOTS[option.removesuffix("_p").removesuffix("_v")]
    assert type(env) is robot and env.max_episode_steps == 1000
    assert env.single_observation_space.shape == (len(robot.slots(observe)),)


def test_a_missing_package_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "pybullet", None)
    with pytest.raises(ImportError, match=r"^Ant needs pybullet.*: pip install pybullet") as error:
        robots.make("ant")
    assert "\n" not in str(error.value)


@needs_bullet
@pytest.mark.slow
@pytest.mark.parametrize(("name", "num_envs"), [("ant", 24), ("half_cheetah", 24), ("hopper", 64), ("walker", 64)])
def test_random_actions_return_what_the_card_says_and_nearly_what_is_published(name, num_envs):
    returns = random_returns(robots.make(name, num_envs=num_envs))
    error = returns.std(ddof=1) / num_envs**0.5
    assert abs(returns.mean() - robots.make(name).scores().random) <= 4 * error
    assert abs(returns.mean() - robots.PUBLISHED[name][0]) <= 4 * error


def test_returns_are_normalised_as_published():
    """Table 7 of Lu et al.: the LRU that sees everything."""
    table = {
        "ant": (3218.2, 124.9),
        "half_cheetah": (3101.9, 119.7),
        "hopper": (2613.6, 182.4),
        "walker": (2134.4, 131.8),
    }
    for name, (returned, expected) in table.items():
        assert abs(robots.normalised(name, returned) - expected) < 0.06
