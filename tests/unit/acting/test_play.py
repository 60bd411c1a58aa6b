"""`rlmem play`, `rlmem list env` and videos of evaluation, as a user types them."""

import io
import json
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from rlmem_envs.registration import TASKS

from benchmarks import run
from rlmem.acting.film import Frame, Watched, caption, write_gif
from rlmem.acting.film import picture as draw
from rlmem.commands.cli import main
from rlmem.config.compose import load
from rlmem.run.nodes import make_env


def test_a_person_plays_by_keys(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.StringIO("s\nhxcq"))
    assert main(["play", "env=repeat_previous", "--seed", "1"]) == 0
    out = capsys.readouterr().out
    assert "step 3" in out and "step 4" not in out  # x is no key, q quits
    monkeypatch.setattr("sys.stdin", io.StringIO("nonsense\n0.5\nnan\n\n"))
    assert main(["play", "env=position_only_pendulum"]) == 0
    out = capsys.readouterr().out
    assert "expected an action of Box" in out and "step 1" in out and "step 2" not in out
    assert "environment 0: action [nan] is not in Box" in out


@pytest.mark.parametrize(("player", "least", "most"), [("oracle", 1, 1), ("random", -0.9, 0), ("memoryless", -0.9, 0)])
def test_the_players_of_the_rule_card_play(capsys, player, least, most):
    assert main(["play", "env=repeat_previous", "--player", player, "--seed", "0", "--episodes", "2"]) == 0
    assert least - 1e-6 <= float(capsys.readouterr().out.split("mean return ")[-1]) <= most + 1e-6


def test_random_play_follows_action_masks(capsys):
    """Leafy fails where an action is forbidden."""
    for actions in ("discrete", "multi"):
        env = ["env=gym", "env.id=leafy:Leafy-v0", "env.kwargs.kind=box", f"env.kwargs.actions={actions}"]
        given = [*env, "env.kwargs.mask=method", "--player", "random", "--seed", "0", "--episodes", "4"]
        assert main(["play", *given]) == 0, capsys.readouterr().err


def test_evaluation_films_a_greedy_episode(in_tmp, capsys):
    run = ["env=repeat_previous", "memory=mlp", "total_steps=60", "env.num_envs=4", "evaluation.every=null"]
    assert main(["train", *run, "evaluation.episodes=2", "run_dir=run", "algo.rollout_slots=26"]) == 0
    capsys.readouterr()
    assert main(["eval", "run", "--episodes", "2", "--json", "video=true"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["video_whole"]
    with Image.open(result["video"]) as gif:
        assert min(gif.size) > 150 and max(gif.size) > 350
        assert gif.n_frames == result["video_steps"] + 1 == 52, "every step has its number, so none is like another"


def test_a_film_tells_action_reward_step_and_return(in_tmp):
    """The words are what was acted, and they are letters in the frame, whole, below a picture that is not covered."""
    frames: list[Frame] = []
    with closing(make_env(load(["env=repeat_previous"]), 1)) as task:
        env = Watched(task, lambda obs, said: frames.append(Frame(draw(task), said)))
        env.reset(seed=0)
        total, rewards = 0.0, []
        for action in (0, 1, 2, 3, 0):
            reward = float(env.step(np.array([action]))[1][0])
            rewards.append(reward)
            total += reward
    assert frames[0].caption == ("step 0", "return 0")
    assert frames[-1].caption == ("step 5, action 0", f"reward {rewards[-1]:.4g}, return {total:.4g}")
    assert any(rewards)
    write_gif(frames, Path("game.gif"))
    picture = frames[-1].picture
    with Image.open("game.gif") as gif:
        gif.seek(5)
        shown = np.asarray(gif.convert("RGB"))
    times = gif.width // picture.shape[1]
    letters = shown[picture.shape[0] * times :].max(-1) > 128
    assert times > 1 and letters.any(1).sum() > 20, "two lines of text"
    assert not letters[:, -2:].any() and not letters[-2:].any()


def test_a_caption_of_many_numbers_is_cut_and_still_fits(in_tmp):
    said = caption(12345, np.linspace(-1, 1, 17), -0.125, 1e6, "truncated")
    assert said == ("step 12345, action [-1.00, -0.88, -0.75, -0.62, ...], truncated", "reward -0.125, return 1e+06")
    write_gif([Frame(np.zeros((64, 64, 3), np.uint8), said)], Path("a.gif"))
    with Image.open("a.gif") as gif:
        assert not (np.asarray(gif.convert("RGB"))[:, -3:].max(-1) > 128).any()


def test_a_film_ends_before_it_fills_the_memory(monkeypatch, in_tmp, capsys):
    monkeypatch.setattr("rlmem.acting.film.LONGEST", 10)
    run = ["env=repeat_previous", "memory=mlp", "total_steps=60", "env.num_envs=1", "evaluation.every=null"]
    assert main(["train", *run, "evaluation.episodes=1", "run_dir=run", "algo.rollout_slots=26"]) == 0
    assert main(["eval", "run", "--episodes", "1", "video=true"]) == 0
    assert "a greedy episode, its first 9 steps: run/videos" in capsys.readouterr().out


def test_gymnasium_environments_are_filmed_as_they_draw_themselves(in_tmp):
    pytest.importorskip("pygame")
    arguments = ["env=gym", "env.id=CartPole-v1", "env.kwargs.render_mode=rgb_array", "--player", "random"]
    assert main(["play", *arguments, "--gif", "pole.gif"]) == 0
    with Image.open("pole.gif") as gif:
        assert gif.size[0] == 600 and gif.size[1] > 400


def test_the_list_tells_what_is_known_of_every_environment(capsys):
    assert main(["list", "env", "--json"]) == 0
    rows = {(row["name"], row["level"] or row["backend"]): row for row in json.loads(capsys.readouterr().out)["env"]}
    hard = rows["repeat_previous", "hard"]
    assert (hard["observation"], hard["action"], hard["steps"], hard["oracle"]) == ("4", "4", "155", 1.0)
    robots = {name: row for (name, _), row in rows.items() if row["backend"] == "mujoco"}
    if find_spec("mujoco"):
        assert robots["hopper_p"]["observation"] == "R5" and robots["humanoid"]["random"] is not None
    described = {name for (name, _), row in rows.items() if row["tests"] and row["random"] is not None}
    assert len(described) >= len(TASKS)
    assert main(["list", "env"]) == 0
    assert "repeat_previous *" in capsys.readouterr().out


def test_environments_are_measured_beside_their_package(in_tmp, capsys):
    assert run.main(["env", "--tasks", "RepeatPrevious,TwoStepCue", "--rounds", "1", "--budget", "1"]) == 0
    rates = json.loads((in_tmp / "bench-env.json").read_text())["tasks"]["RepeatPrevious"]["steps_per_second"]
    assert set(rates) == {"1", "64", "1024", "8192", "package"} and min(rates.values()) > 0
    assert "N = 64: at least" in capsys.readouterr().out
    assert run.main(["env", "--tasks", "RepeatPrevius"]) == 2
    assert "did you mean" in capsys.readouterr().err
    assert torch.get_num_threads() == 1
