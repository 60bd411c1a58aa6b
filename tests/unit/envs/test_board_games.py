"""The three games of the LP-RNN paper, against recordings of the published ones."""

from collections import defaultdict

import numpy as np
import pytest
from golden_env import Episode
from rlmem_envs.lprnn.cued_catch import CuedCatch
from rlmem_envs.lprnn.lights import HORIZON
from rlmem_envs.lprnn.sequence_recall import SequenceRecall
from rlmem_envs.lprnn.teleporter_tmaze import TeleporterTMaze
from rlmem_envs.lprnn.teleporter_world import MARGIN, STRIDE, draw_world
from rlmem_envs.registration import make

SEEK, EXIT, QUIT = 2, 3, 4


def replay(env, episode: Episode, hidden: dict, **watched) -> dict[str, np.ndarray]:
    """Play a recorded episode in every row of `env`: pictures, rewards and ends are those that were recorded.

    Returns what the functions `watched` made of `env` in each frame [T + 1, ...]. The recorded actions count from 1,
    as 0 and the last one mean "quit" there.
    """
    assert bytes(episode.common["plane_chars"]).decode() == env.characters
    obs, _ = env.reset(seed=0, options={"hidden": {k: np.stack([v] * env.num_envs) for k, v in hidden.items()}})
    frames, steps, seen = [(obs, env.boards())], [], defaultdict(list)
    for action in (*(episode["actions"] - 1), None):
        for name, look in watched.items():
            seen[name].append(np.copy(look(env)))
        if action is not None:
            obs, *outcome, _ = env.step(np.full(env.num_envs, action))
            frames.append((obs, env.boards()))
            steps.append(outcome)
    planes, boards = (np.stack(each) for each in zip(*frames, strict=True))
    rewards, terminated, truncated = (np.stack(each, 1) for each in zip(*steps, strict=True))
    for i in range(env.num_envs):
        np.testing.assert_array_equal(boards[:, i], episode["board"])
        np.testing.assert_array_equal(env.painted(boards[:, i]), episode["board_repainted"])
        expected = np.moveaxis(episode["planes"], -1, 1)
        np.testing.assert_array_equal(planes[:, i].reshape(expected.shape), expected)
        np.testing.assert_allclose(rewards[i], episode["rewards"], atol=1e-9)
        np.testing.assert_array_equal(terminated[i], episode["terminated"])
    assert not truncated.any()
    return {name: np.stack(values) for name, values in seen.items()}


def assert_oracle_is_as_good(env, episode: Episode, hidden: dict) -> None:
    """The oracle earns no less than the recorded one."""
    if episode.name.endswith("-oracle"):
        env.reset(seed=0, options={"hidden": {k: np.stack([v] * env.num_envs) for k, v in hidden.items()}})
        total = np.zeros(env.num_envs)
        while not env.over.any():
            total += env.step(env.oracle())[1]
        assert (total > episode["rewards"].sum() - 1e-9).all()


@pytest.mark.recorded_env("cued_catch")
def test_cued_catch_is_the_published_game(episode):
    env = CuedCatch(2, **episode.params)
    hidden = {name: episode[name] for name in ("cue_to_ball", "trial_cue")}
    if len(episode["reward_noise"]):
        hidden["reward_noise"] = episode["reward_noise"]
    seen = replay(env, episode, hidden, ball=lambda env: env.ball[env.t[0]], cues=lambda env: env.trial_cue[0])
    np.testing.assert_array_equal(seen["ball"][:, 0], episode["frame_ball"])
    trial = np.searchsorted(episode["trial_start_frame"], np.arange(len(episode) + 1), side="right") - 1
    cue = np.where(trial < 0, -1, seen["cues"][0][trial])
    np.testing.assert_array_equal(cue, episode["frame_cue"])
    assert len(episode) == env.episode_steps()[1]
    assert_oracle_is_as_good(env, episode, hidden)


@pytest.mark.recorded_env("sequence_recall")
def test_sequence_recall_is_the_published_game(episode):
    env = SequenceRecall(2, **episode.params)
    hidden = {"sequence": episode["sequence"]}
    seen = replay(env, episode, hidden, at=lambda env: env.at, entries=lambda env: env.entries)
    np.testing.assert_array_equal(np.stack(np.divmod(seen["at"][:, 0], 21), 1), episode["player_pos"])
    state = episode["state_after"]
    np.testing.assert_array_equal(seen["entries"][:, 1] == env.params["sequence_length"], state == QUIT)
    entered = np.diff(state == SEEK, prepend=False) & (state != SEEK)  # what SEEK hands over to
    np.testing.assert_array_equal(np.diff(seen["entries"][:, 0], prepend=0), entered)
    if len(hidden["sequence"]) <= HORIZON and len(episode) < env.params["timeout_frames"]:
        assert_oracle_is_as_good(env, episode, hidden)


@pytest.mark.recorded_env("lp_tmaze")
def test_teleporter_tmaze_is_the_published_game(episode):
    env = TeleporterTMaze(2, **episode.params)
    hidden = {name: episode[name] for name in ("goal_side", "speckle")}
    at = replay(env, episode, hidden, at=lambda env: env.at)["at"][:, 1]
    position = np.stack([at // STRIDE, at % STRIDE - MARGIN], 1)
    np.testing.assert_array_equal(position, episode["world_pos"])
    np.testing.assert_array_equal(np.isin(draw_world(), list(b"#*"))[tuple(position.T)], episode["inside_wall"])
    moved = np.diff(position, axis=0, prepend=position[:1])
    teleported = np.abs(moved).sum(1, keepdims=True) > 1
    np.testing.assert_array_equal(np.cumsum(moved * teleported, 0), episode["world_shift"])
    assert_oracle_is_as_good(env, episode, hidden)


@pytest.mark.recorded_env("lp_tmaze_d0_limbo20")
def test_the_world_of_the_teleporter_tmaze_is_the_published_one(path):
    with np.load(path) as file:
        world = file["world_chars"]
    world[np.isin(world, list(b"P+"))] = ord(" ")
    np.testing.assert_array_equal(draw_world(), world)


SMALL = {
    "CuedCatch": {"initial_cue_duration": 2, "num_trials": 8, "reward_free_trials": 1},
    "SequenceRecall": {"sequence_length": 3, "demo_light_on_frames": 2, "demo_light_off_frames": 2},
    "TeleporterTMaze": {"difficulty": 0, "teleport_delay": 3, "limbo_time": 3, "timeout_frames": 80},
}


@pytest.mark.parametrize("task", SMALL)
def test_the_memoryless_player_looks_at_the_board_alone(task):
    env = make(task, 16, **SMALL[task])
    rng = np.random.default_rng(0)
    obs, _ = env.reset(seed=0)
    chosen = {}
    for _ in range(400):
        actions = env.memoryless(rng)
        for row, action in zip(obs[~env.over], actions[~env.over], strict=True):
            assert chosen.setdefault(row.tobytes(), action) == action
        wander = rng.random(16) < 0.3
        obs = env.step(np.where(wander, rng.integers(0, env.single_action_space.n, 16), actions))[0]


@pytest.mark.parametrize("task", SMALL)
def test_planes_are_the_same_numbers_unflattened(task):
    flat, planes = make(task, 3, **SMALL[task]), make(task, 3, **SMALL[task], flat=False)
    a, b = flat.reset(seed=1)[0], planes.reset(seed=1)[0]
    assert b.shape == (3, len(planes.characters), *planes.size)
    for _ in range(30):
        np.testing.assert_array_equal(a, b.reshape(3, -1))
        assert (b.sum(1) == 1).all()  # every cell shows one character
        a, b = (env.step(env.oracle())[0] for env in (flat, planes))


def test_noise_on_the_rewards_of_cued_catch_has_mean_zero_and_the_given_deviation():
    env = CuedCatch(512, initial_cue_duration=1, num_trials=6, reward_free_trials=2, reward_sigma=0.5)
    env.reset(seed=0)
    rewards = np.stack([env.step(env.oracle())[1] for _ in range(env.episode_steps()[1])])
    paid = rewards[rewards != 0]
    assert len(paid) == 4 * 512
    assert paid.mean() == pytest.approx(1, abs=0.04) and paid.std() == pytest.approx(0.5, abs=0.03)


def test_three_fifths_of_the_ground_look_like_wall_and_only_where_it_can_be_seen():
    env = TeleporterTMaze(64, difficulty=4)
    env.reset(seed=0)
    speckle = env._draw(env._all)["speckle"]
    assert speckle[:, 54:68].mean() == pytest.approx(0.6, abs=0.01)
    assert not speckle[:, :54].any() and not speckle[:, 68:].any()
    assert (speckle[0] != speckle[1]).any()


@pytest.mark.parametrize(
    ("task", "params", "message"),
    [
        ("TeleporterTMaze", {"limbo_time": 2}, "limbo_time=2: expected 0 or at least 3"),
        ("TeleporterTMaze", {"difficulty": 6}, "difficulty=6: expected at most 5"),
        ("TeleporterTMaze", {"teleport_delay": -1}, "teleport_delay=-1: expected at least 0"),
        ("CuedCatch", {"num_trials": 0}, "num_trials=0: expected at least 1"),
        ("CuedCatch", {"reward_sigma": -1.0}, "reward_sigma=-1.0: expected at least 0"),
        ("SequenceRecall", {"sequence_length": 0}, "sequence_length=0: expected at least 1"),
    ],
)
def test_what_cannot_be_played_is_refused(task, params, message):
    with pytest.raises(ValueError, match=message):
        make(task, 2, **params)
