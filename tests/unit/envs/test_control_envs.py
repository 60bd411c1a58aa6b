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


def last_steps(env, choose) -> np.ndarray:
    """Length [N] of the first episode of every environment, played by `choose(observations)`."""
    observation = env.reset(seed=0)[0]
    length, going = np.zeros(env.num_envs), np.ones(env.num_envs, bool)
    while going.any():
        observation, _, terminated, truncated, _ = env.step(choose(observation))
        length += going
        going &= ~(terminated | truncated)
    return length


def each(values: np.ndarray, episodes: int) -> np.ndarray:
    return np.repeat(values, episodes, axis=0)


def test_no_linear_feedback_of_positions_balances():
    """A grid of logistic players, from coin flips to a hard switch, and of weights of the cart's position."""
    sharpness, weight = np.meshgrid([0, 3, 10, 20, 30, 50, 100, 1e6], [-1, -0.3, -0.1, 0, 0.1, 0.3, 1])
    players, episodes = sharpness.size, 64
    env, rng = make("CartPole", players * episodes, "position"), np.random.default_rng(0)
    sharpness, weight = each(sharpness.ravel(), episodes), each(weight.ravel(), episodes)

    def push(observation):
        score = sharpness * (observation[:, 1] + weight * observation[:, 0])
        return (rng.logistic(size=len(score)) < score).astype(int)

    mean = last_steps(env, push).reshape(players, episodes).mean(1)
    assert 45 < mean.max() < 60


def test_no_player_that_pushes_the_more_the_pole_leans_lasts():
    """The bound on the rule card: the energy of the pole grows by 0.0256 a step, and 2.7 is the most."""
    players, episodes, bins = 60, 32, 24
    rng = np.random.default_rng(1)
    height = np.cumsum(np.exp(rng.normal(0, 2, (players, bins))), 1)
    steepness, turn = rng.uniform(1, 30, (players, 1)), rng.uniform(0.3, 0.7, (players, 1))
    chance = each(1 / (1 + np.exp(-steepness * (height / height[:, -1:] - turn))), episodes)
    env = make("CartPole", players * episodes, "position", horizon=1000)

    def push(observation):
        part = np.clip((observation[:, 1] / 0.21 + 1) / 2 * bins, 0, bins - 1).astype(int)
        return (rng.random(env.num_envs) < chance[env._all, part]).astype(int)

    length = last_steps(env, push)
    assert length.reshape(players, episodes).mean(1).max() < 2.72 / 0.0256
    assert length.max() < 1000


def test_two_velocities_are_enough_for_two_hundred_steps():
    env = make("CartPole", 256, "velocity")
    assert (last_steps(env, lambda observation: (observation @ [0.11, 1.0] > 0).astype(int)) == 200).mean() > 0.99


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


@pytest.mark.parametrize(
    ("task", "params", "message"),
    [
        ("CartPole", {"observe": "speed"}, "observe='speed': expected one of full, position, velocity"),
        ("Pendulum", {"observe": "speed"}, "observe='speed': expected one of full, position, velocity"),
        ("CartPole", {"horizon": 0}, "horizon=0: expected at least 1"),
        ("Pendulum", {"horizon": 0}, "horizon=0: expected at least 1"),
        ("PositionOnlyPendulum", {"max_episode_length": 0}, "max_episode_length=0: expected at least 1"),
        ("NoisyPositionOnlyCartPole", {"max_episode_length": 0}, "max_episode_length=0: expected at least 1"),
        ("NoisyPositionOnlyCartPole", {"noise_sigma": -1.0}, "noise_sigma=-1.0: expected at least 0"),
        ("VelocityOnlyCartPole", {"max_episode_length": 0}, "max_episode_length=0: expected at least 1"),
        (
            "VelocityOnlyCartPole",
            {"first_observation": "x"},
            "first_observation='x': expected one of position, velocity",
        ),
    ],
)
def test_a_wrong_parameter_is_named(task, params, message):
    with pytest.raises(ValueError, match=message):
        make(task, 2, **params)


@pytest.mark.parametrize("task", ["CartPole", "Pendulum", "PositionOnlyCartPole", "PositionOnlyPendulum"])
def test_what_the_rules_pass_to_their_physics_is_no_parameter(task):
    for name, value in (("pay", 2.0), ("sight", "full"), ("most_steps", 9)):
        with pytest.raises(TypeError):
            make(task, 1, **{name: value})
    with pytest.raises(TypeError, match=r"no parameter `pay`; it has: (?!.*\b(sight|most_steps|params)\b)"):
        make(task, 1, pay=2.0)
