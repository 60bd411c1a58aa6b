"""Cart-pole and pendulum: against Gymnasium and popgym, and what can be done on them without memory."""

import gymnasium as gym
import numpy as np
import pytest
from popgym_parity import Scripted, assert_parity, every_game, random_actions
from rlmem_envs.core.cartpole import SHOWN as CARTPOLE_SHOWN
from rlmem_envs.core.pendulum import SHOWN as PENDULUM_SHOWN
from rlmem_envs.registration import make

SHOWN = {"CartPole": CARTPOLE_SHOWN, "Pendulum": PENDULUM_SHOWN}


def begin(game, facts):
    """Put the first state, and the noise to come, into a game of the package; returns its first observation."""
    game.state = facts["start"].copy()
    is_cartpole = "CartPole" in type(game).__name__
    first = np.array(game.state, np.float32)[[0, 2]] if is_cartpole else game._get_obs()[:2]
    if "noise" not in facts:
        return first
    game.np_random = Scripted(facts["noise"])
    return game.add_noise_to_obs(first)


def noise(env, rng):
    steps = env.episode_steps()[1] + 1
    return {"noise": rng.normal(0, env.params["noise_sigma"], (env.num_envs, steps, 2))}


@every_game("PositionOnlyCartPole", "VelocityOnlyCartPole", "PositionOnlyPendulum")
def test_games_are_those_of_the_package(task, level, player, episodes):
    assert_parity(task, level, player, episodes, begin)


@every_game("NoisyPositionOnlyCartPole", "NoisyPositionOnlyPendulum")
def test_noisy_games_are_those_of_the_package(task, level, player, episodes):
    assert_parity(task, level, player, episodes, begin, noise)


@pytest.mark.parametrize("player", ["random", "oracle"])
@pytest.mark.parametrize("horizon", [200, 12])
@pytest.mark.parametrize("observe", ["full", "position", "velocity"])
@pytest.mark.parametrize("task", ["CartPole", "Pendulum"])
def test_occlusion_tasks_are_those_of_gymnasium(task, observe, horizon, player):
    """Twelve steps: sometimes the pole falls with the last of them, which both terminates and truncates."""
    env = make(task, 30, observe, horizon=horizon)
    env.reset(seed=1)
    start, rng = env._draw(env._all)["start"], np.random.default_rng(0)
    env.reset(options={"hidden": {"start": start}})
    steps = []
    for _ in range(horizon):
        actions = env.oracle() if player == "oracle" else random_actions(env, rng)
        steps.append((actions, *env.step(actions)[:4]))
    reference = gym.make(f"{task}-v1", max_episode_steps=horizon, disable_env_checker=True)
    both = 0
    for i in range(env.num_envs):
        played = replay(reference, start[i], [step[0][i] for step in steps])
        for k, name in enumerate(("observation", "reward", "terminated", "truncated")):
            ours, theirs = [step[k + 1][i] for step in steps[: len(played)]], np.array([step[k] for step in played])
            theirs = theirs[:, SHOWN[task][observe]] if name == "observation" else theirs
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-6, err_msg=f"{name}, episode {i}")
        both += played[-1][2] and played[-1][3]
    assert (both > 0) == (task == "CartPole" and horizon == 12 and player == "random")


def replay(game: gym.Env, start: np.ndarray, actions: list) -> list:
    """Observation, reward, terminated and truncated of every step to the end of the episode."""
    game.reset(seed=0)
    game.unwrapped.state = start  # type: ignore[attr-defined]
    steps: list = []
    while not steps or not (steps[-1][2] or steps[-1][3]):
        steps.append(game.step(actions[len(steps)])[:4])
    return steps


@pytest.mark.parametrize(("first", "slots"), [("position", [0, 2]), ("velocity", [1, 3])])
def test_velocities_are_seen_from_the_second_observation_on(first, slots):
    env = make("VelocityOnlyCartPole", 5, "easy", first_observation=first)
    observation = env.reset(seed=0)[0]
    np.testing.assert_allclose(observation, env.body[slots].T, atol=1e-7)
    for _ in range(60):
        began = env.over.copy()
        observation = env.step(np.ones(5, int))[0]
        expected = np.where(began, env.body[slots], env.body[[1, 3]]).T
        np.testing.assert_allclose(observation, expected, atol=1e-6)


@pytest.mark.parametrize("task", ["NoisyPositionOnlyCartPole", "NoisyPositionOnlyPendulum"])
def test_noise_is_normal_and_new_at_every_step(task):
    env, bare = make(task, 500, noise_sigma=0.05), make(task, 500, noise_sigma=0.0)
    rng, errors = np.random.default_rng(0), []
    pairs = [(env.reset(seed=1)[0], bare.reset(seed=1)[0])]
    for _ in range(6):
        action = random_actions(env, rng)
        pairs.append((env.step(action)[0], bare.step(action)[0]))
    for noisy, plain in pairs:
        inside = np.abs(plain) < (0.2 if "CartPole" in task else 0.8)
        errors.append(np.where(inside, noisy - plain, np.nan))
    error = np.stack(errors)
    assert np.nanstd(error) == pytest.approx(0.05, rel=0.05)
    assert abs(np.nanmean(error)) < 0.003
    assert abs(np.nanmean(error[1:] * error[:-1])) < 0.0002 and abs(np.nanmean(error[..., 0] * error[..., 1])) < 0.0002


def test_given_noise_is_seen_as_long_as_it_lasts():
    env = make("NoisyPositionOnlyCartPole", 3, noise_sigma=1e-9)
    given = np.arange(12.0).reshape(3, 2, 2) / 100
    env.reset(seed=0, options={"hidden": {"noise": given}})
    env.reset(options={"reset_mask": np.array([False, True, False])})
    given[1] = 0
    for noise_now in (given[:, 0], given[:, 1], 0):
        np.testing.assert_allclose(env._observe() - env.body[::2].T, np.broadcast_to(noise_now, (3, 2)), atol=1e-6)
        env.step(np.ones(3, int))


def test_torques_are_clipped():
    strong, full = make("Pendulum", 4), make("Pendulum", 4)
    for env in (strong, full):
        env.reset(seed=0)
    for sign in (1, -1):
        for a, b in zip(strong.step(np.full((4, 1), sign * 9)), full.step(np.full((4, 1), sign * 2.0)), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("task", ["CartPole", "Pendulum"])
def test_text_shows_what_is_seen_and_a_picture_shows_everything(task):
    texts = {observe: make(task, 1, observe) for observe in SHOWN[task]}
    for env in texts.values():
        env.reset(seed=0)
    shown = {observe: env.text(0) for observe, env in texts.items()}
    hidden = {"CartPole": ("'", "["), "Pendulum": ("speed", "cos")}[task]
    assert hidden[0] not in shown["position"] and hidden[1] not in shown["velocity"]
    assert all(part in shown["full"] for part in hidden)
    env = texts["velocity"]
    before = env.picture(0)
    assert before.dtype == np.uint8 and before.shape[2] == 3
    for _ in range(5):
        env.step(random_actions(env, np.random.default_rng(0)))
    assert (env.picture(0) != before).any()
