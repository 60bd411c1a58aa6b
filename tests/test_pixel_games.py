"""Visual Match and Key-to-Door: recorded episodes picture by picture, colours, apples, players."""

import numpy as np
import pytest
from rlmem_envs.pixels import board as on
from rlmem_envs.pixels.apple_game import NEVER, SLOTS
from rlmem_envs.registration import make

FACTS = ("apple_layout", "apple_reward_value", "explore_player_pos")
GAMES = {
    "visual_match": ("VisualMatch", ("passive",), (*FACTS, "target_symbol", "explore_target_pos")),
    "key_to_door": ("KeyToDoor", ("reward_grid",), (*FACTS, "explore_key_pos", "door_pos", "reward_player_pos")),
}
SHORT = {"explore_frames": 2, "distractor_frames": 30, "reward_frames": 10}


def rebuilt(episode, **more):
    """Two environments with the rules of a recorded episode."""
    task, extra, _ = GAMES[episode.params["game"]]
    same = ("num_apples", "fix_apple_reward_in_episode", "final_reward", "respawn_every", *extra)
    rules = {name: episode.params[name] for name in same if name in episode.params}
    frames = {f"{phase}_frames": number for phase, number in episode.params["max_frames"].items()}
    worth = episode.params["apple_reward"]
    return make(task, 2, apple_reward=tuple(worth) if isinstance(worth, list) else worth, **rules, **frames, **more)


def hidden(episode) -> dict[str, np.ndarray]:
    """What a recorded episode hides, for both environments."""
    facts = {name: episode[name] for name in GAMES[episode.params["game"]][2]}
    if not episode.params["fix_apple_reward_in_episode"]:  # a reward for each picture of the second phase
        frames = episode.params["max_frames"]
        facts["apple_reward_value"] = episode["rewards"][frames["explore"] :][: frames["distractor"]]
    if "target_symbol" in facts:
        rows = [list(episode["colour_chars"]).index(symbol) for symbol in b"bce"]
        facts["colours"] = episode["colour_rgb"][rows].argmax(1)
    return {name: np.stack([fact, fact]) for name, fact in facts.items()}


def assert_replayed(episode):
    env = rebuilt(episode)
    for code in range(on.SIGN):
        if code not in range(on.OBJECT, on.SIGN) and (at := episode["colour_chars"] == on.CHARACTERS[code]).any():
            assert (episode["colour_rgb"][at] == on.COLOURS[code]).all()
    frames = [env.reset(seed=0, options={"hidden": hidden(episode)})[0]]

    def assert_as_recorded(t):
        pictures = np.pad(episode["board"][t], 2, constant_values=ord(" "))
        row, column = episode["player_pos"][t]
        assert (env.characters == episode["board"][t]).all(), t
        assert (pictures[row : row + 5, column : column + 5] == episode["crop_board"][t]).all(), t
        assert (frames[t].reshape(2, -1) == episode["observations"][t]).all(), t
        assert (env.player_pos == episode["player_pos"][t]).all(), t
        assert (env.chapter == episode["chapter"][t]).all() and (env.chapter_frame == episode["chapter_frame"][t]).all()
        if "has_key" in episode.arrays:
            assert (env.has_key == episode["has_key"][t]).all(), t

    assert_as_recorded(0)
    last_phase = 0.0
    for t, action in enumerate(episode["actions"]):
        obs, reward, terminated, truncated, infos = env.step(np.array([action, action]))
        frames.append(obs)
        last_phase += reward[0] * (episode["chapter"][t] == 2)
        np.testing.assert_allclose(reward, episode["rewards"][t], atol=1e-9)
        assert (terminated == episode["terminated"][t]).all() and (truncated == episode["truncated"][t]).all()
        assert_as_recorded(t + 1)
    assert terminated.all()
    assert (infos["success"] == episode["success"]).all()
    assert last_phase == pytest.approx(float(episode["last_phase_reward"]))
    flat = rebuilt(episode, flat=True)
    assert (flat.reset(seed=0, options={"hidden": hidden(episode)})[0] == episode["observations"][0]).all()


@pytest.mark.recorded_env("visual_match")
def test_visual_match_as_recorded(episode):
    assert_replayed(episode)


@pytest.mark.recorded_env("key_to_door")
def test_key_to_door_as_recorded(episode):
    assert_replayed(episode)


def walk(env, *actions: int) -> list[float]:
    """Rewards of environment 0."""
    return [env.step(np.full(env.num_envs, action))[1][0] for action in actions]
