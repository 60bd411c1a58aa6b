"""Damaged files of one's own, and outputs that cannot be: one line that says which file, exit code 2, no traceback."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from helpers import SMALLEST, refusal

from rlmem.config.compose import load
from rlmem.config.messages import shell
from rlmem.run.train import train

# --- configurations --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [["config"], ["train", "--dry-run"], ["train", "-m", "--dry-run"]])
def test_a_mapping_for_a_null_of_hydra_is_refused_by_its_key(command, capsys):
    line = refusal(capsys, *command, "hydra.sweeper.params={seed: 1}")
    assert line == "hydra.sweeper.params: takes no such value"


def test_annotations_that_cannot_be_checked_accept_what_is_given(capsys):
    """Those of Gymnasium's own functions name callables where they mean types."""
    command = ["train", "--dry-run", "env=gym", "env._target_=gymnasium.make_vec", "env.id=CartPole-v1"]
    assert "env=gym: cannot be made (" in refusal(capsys, *command)


BAD_YAML = "# A memory\n_target_: rlmem.memory.gru.GRU\nhidden_size: 8\n  bias: 3\n"


@pytest.mark.parametrize("command", [["config"], ["train", "--dry-run"], ["sweep", "--dry-run", "seed=0,1"]])
def test_bad_indentation_in_a_yaml_of_ones_own_is_said_with_file_and_line(command, in_tmp, capsys):
    (in_tmp / "own" / "memory").mkdir(parents=True)
    (in_tmp / "own" / "memory" / "toy.yaml").write_text(BAD_YAML)
    line = refusal(capsys, *command, f"hydra.searchpath=[file://{in_tmp / 'own'}]", "memory=toy")
    assert line.startswith(f"{in_tmp}/own/memory/toy.yaml:4: cannot be read as YAML (mapping values are not allowed")


@pytest.mark.parametrize("arguments", [["sweep", "bad.yaml"], ["reproduce", "bad.yaml"]])
def test_bad_indentation_in_a_file_for_a_command_is_said_with_file_and_line(arguments, in_tmp, capsys):
    (in_tmp / "bad.yaml").write_text("# Mine\ngrid:\n  seed: [0, 1]\n memory: [ffm]\n")
    assert refusal(capsys, *arguments).startswith("bad.yaml:4: cannot be read as YAML (")


def emptied(config: dict) -> dict:
    return {}


def flattened(config: dict) -> dict:
    return dict.fromkeys(config, 3)


def halved(config: dict) -> dict:
    return dict(list(config.items())[: len(config) // 2])


def misspelt(config: dict) -> dict:
    return {f"{key}_": value for key, value in config.items()}


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("trained") / "run"
    train(load([*SMALLEST, f"run_dir={path}"]))
    return path


@pytest.mark.parametrize("verb", ["resume", "eval"])
@pytest.mark.parametrize("damage", [emptied, flattened, halved, misspelt])
def test_a_broken_configuration_of_a_run_is_one_line(
    damage: Callable[[dict], dict], verb, run_dir, tmp_path, monkeypatch, capsys
):
    config = yaml.safe_load((run_dir / "config.yaml").read_text())
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(damage(config)))
    (tmp_path / "run.json").write_text((run_dir / "run.json").read_text())
    line = refusal(capsys, verb, tmp_path)
    assert line.endswith("restore the run's config.yaml")
    assert len(line) < 500


# --- examples that work when they are typed ---------------------------------------------------------------------------


def test_a_run_whose_name_begins_with_a_dash_is_suggested_as_it_is_typed(run_dir, in_tmp, capsys):
    shutil.copytree(run_dir, "-dash")
    line = refusal(capsys, "resume", "./-dash", "seed=1")
    assert line.endswith("; e.g. rlmem resume ./-dash total_steps=2000000")
    assert shell(Path("-dash"), "--flag", Path("my run")) == "./-dash --flag 'my run'"


def test_an_id_is_suggested_with_the_option_of_its_package(capsys):
    game = "env.id=MiniGrid-Empty-5x5-v0"
    for typed, option in (
        ("env=MiniGrid-Empty-5x5-v0", f"env=minigrid {game}"),
        ("env=minigrid:MiniGrid-Empty-5x5-v0", f"env=minigrid {game}"),
        ("env=ALE/Pong-v5", "env=atari env.game=Pong"),
        ("env=CartPole-v1", "env=gym env.id=CartPole-v1"),
    ):
        assert refusal(capsys, "config", typed).endswith(f"; e.g. rlmem train {option}")


def test_no_algorithm_suggests_itself(in_tmp, capsys):
    (in_tmp / "odd.py").write_text(ODD)
    command = ["train", "--dry-run", "env=gym", "env.id=odd:Odd-v0"]
    for algorithm, example in (
        ("sacd", "env=repeat_previous"),
        ("sac", "env=pendulum"),
        ("ppo", "env=repeat_previous"),
    ):
        assert refusal(capsys, *command, f"algo={algorithm}").endswith(f"; e.g. {example}")


ODD = """
import gymnasium as gym
from gymnasium import spaces

class Odd(gym.Env):
    observation_space, action_space = spaces.Discrete(2), spaces.MultiBinary(3)

    def reset(self, *, seed=None, options=None):
        return 0, {}

    def step(self, action):
        return 0, 0.0, True, False, {}

gym.register("Odd-v0", Odd)
"""


# --- outputs ---------------------------------------------------------------------------------------------------------

OUTPUTS = {
    "report": ["report", "RUN", "--out"],
    "markdown": ["report", "RUN", "--markdown"],
    "plot": ["plot", "RUN", "--out"],
    "dataset": ["dataset", "generate", "env=pendulum", "--random", "--episodes=1", "--out"],
    "play": ["play", "env=cued_catch_small", "--player=oracle", "--gif"],
}


@pytest.mark.parametrize("place", [".", "folder/..", ""])
@pytest.mark.parametrize("what", OUTPUTS)
def test_an_output_that_is_a_directory_is_refused_before_anything_is_made(what, place, run_dir, in_tmp, capsys):
    (in_tmp / "folder").mkdir()
    arguments = [str(run_dir) if word == "RUN" else word for word in OUTPUTS[what]]
    line = refusal(capsys, *arguments, place)
    assert f"{arguments[-1]}: expected a file to write, got {place!r}" in line
    assert list(in_tmp.iterdir()) == [in_tmp / "folder"]


@pytest.mark.parametrize("arguments", [["report", "RUN", "--out"], ["play", "env=cued_catch_small", "--gif"]])
def test_an_output_below_a_file_is_one_line(arguments, run_dir, in_tmp, capsys):
    (in_tmp / "file").write_text("")
    arguments = [str(run_dir) if word == "RUN" else word for word in arguments]
    assert "file/x" in refusal(capsys, *arguments, "file/x")
