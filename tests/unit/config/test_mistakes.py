"""Damaged files of one's own, and outputs that cannot be: one line that says which file, exit code 2, no traceback."""

import re
import shutil
from pathlib import Path

import pytest
import yaml
from helpers import SMALLEST, refusal

from rlmem.config.compose import load
from rlmem.config.messages import shell
from rlmem.run.train import train

# --- configurations --------------------------------------------------------------------------------------------------


BAD_YAML = "# Mine\n_target_: rlmem.memory.gru.GRU\nhidden_size: 8\n  bias: 3\n"


@pytest.mark.parametrize(
    "command",
    [["config"], ["train", "--dry-run"], ["sweep", "--dry-run", "seed=0,1"], ["sweep", "conf/memory/toy.yaml"]],
)
def test_bad_indentation_in_a_yaml_of_ones_own_is_said_with_file_and_line(command, in_tmp, capsys):
    file = in_tmp / "conf/memory/toy.yaml"
    file.parent.mkdir(parents=True)
    file.write_text(BAD_YAML)
    line = refusal(capsys, *command, *(["memory=toy"] if "conf/memory/toy.yaml" not in command else []))
    assert re.search(r"conf/memory/toy\.yaml:4: cannot be read as YAML", line)


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("trained") / "run"
    train(load([*SMALLEST, f"run_dir={path}"]))
    return path


def test_a_broken_configuration_of_a_run_is_one_line(run_dir, tmp_path, capsys):
    config = yaml.safe_load((run_dir / "config.yaml").read_text())
    misspelt = {f"{key}_": value for key, value in config.items()}
    for broken in ({}, dict.fromkeys(config, 3), dict(list(config.items())[: len(config) // 2]), misspelt):
        (tmp_path / "config.yaml").write_text(yaml.safe_dump(broken))
        (tmp_path / "run.json").write_text((run_dir / "run.json").read_text())
        for verb in ("resume", "eval"):
            line = refusal(capsys, verb, tmp_path)
            assert line.endswith("restore the run's config.yaml") and len(line) < 500


# --- examples that work when they are typed ---------------------------------------------------------------------------


def test_a_run_whose_name_begins_with_a_dash_is_suggested_as_it_is_typed(run_dir, in_tmp, capsys):
    shutil.copytree(run_dir, "-dash")
    line = refusal(capsys, "resume", "./-dash", "seed=1")
    assert line.endswith("; e.g. rlmem resume ./-dash total_steps=2000000")
    assert shell(Path("-dash"), "--flag", Path("my run")) == "./-dash --flag 'my run'"


def test_no_algorithm_suggests_itself(in_tmp, capsys):
    (in_tmp / "odd.py").write_text(ODD)
    command = ["train", "--dry-run", "env=gym", "env.id=odd:Odd-v0"]
    assert "observation space" in refusal(capsys, *command, "env.id=odd:Film-v0")
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
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, True, False, {}

class Film(Odd):
    observation_space, action_space = spaces.Box(0, 255, (2, 8, 8, 3)), spaces.Discrete(2)

gym.register("Odd-v0", Odd)
gym.register("Film-v0", Film)
"""


# --- outputs ---------------------------------------------------------------------------------------------------------

OUTPUTS = {
    "report": ["report", "RUN", "--out"],
    "markdown": ["report", "RUN", "--markdown"],
    "plot": ["plot", "RUN", "--out"],
    "dataset": ["dataset", "generate", "env=pendulum", "--random", "--episodes=1", "--out"],
    "play": ["play", "env=cued_catch_small", "--player=oracle", "--gif"],
}


@pytest.mark.parametrize("what", OUTPUTS)
def test_an_output_that_is_no_file_is_refused_before_anything_is_made(what, run_dir, in_tmp, capsys):
    (in_tmp / "folder").mkdir()
    (in_tmp / "file").touch()
    arguments = [str(run_dir) if word == "RUN" else word for word in OUTPUTS[what]]
    for place in (".", "folder/..", ""):
        assert f"{arguments[-1]}: expected a file to write, got {place!r}" in refusal(capsys, *arguments, place)
    if what in ("report", "play"):
        assert "file/x" in refusal(capsys, *arguments, "file/x")
    assert sorted(in_tmp.iterdir()) == [in_tmp / "file", in_tmp / "folder"]
