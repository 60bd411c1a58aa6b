"""Parts of the user's own (memory, algorithm, environment, batching, encoder) take one file: a class, by its name."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from helpers import SMALLEST, fast_only, small_run
from pages import blocks

from rlmem.commands.cli import main
from rlmem.config.catalog import default_choices
from rlmem.config.foreign import foreign_lines
from rlmem.config.schema import GROUPS
from rlmem.core.errors import UserError
from rlmem.memory import FFM, SHM, GTrXL

OWN = """
from dataclasses import dataclass
import rlmem_envs.registration
from gymnasium.vector import VectorEnv
from rlmem.algos.ppo import PPO
from rlmem.batching import Segment
from rlmem.memory import GRU
from rlmem.agents.encoder import Encoder

class Memory(GRU):
    def __init__(self, input_size: int, hidden_size: int = 5, rates=(1, 2), activation=print):
        super().__init__(input_size, hidden_size)

@dataclass(kw_only=True)
class Algorithm(PPO):
    clip: float = 0.3

def make(cards: int = 3, num_envs: int = 2) -> VectorEnv:
    return rlmem_envs.registration.make("RepeatFirst", num_envs)

class Batching(Segment):
    def __init__(self, length: int = 8):
        super().__init__(length)

class Reader(Encoder):
    def __init__(self, observation_space, action_space, hidden_size: int = 6):
        super().__init__(observation_space, action_space, hidden_size)
"""
CLASSES = {
    "memory": ("Memory", "hidden_size", 4),
    "algo": ("Algorithm", "clip", 0.1),
    "env": ("make", "cards", 5),
    "batching": ("Batching", "length", 4),
    "encoder": ("Reader", "hidden_size", 4),
}
"""Group -> a class of the file, one of its keys, and a value other than the default."""


@pytest.fixture(autouse=True)
def own_file(in_tmp) -> None:
    (in_tmp / "own_parts.py").write_text(OWN)


@pytest.mark.parametrize("group", fast_only(["memory", "env"], CLASSES))
def test_a_class_is_chosen_like_an_option(group, capsys):
    name, key, value = CLASSES[group]
    choice, assigned = f"{group}=own_parts.{name}", f"{group}.{key}={value}"
    others = [line for line in SMALLEST if not line.startswith((f"{group}=", f"{group}."))]
    assert main(["train", *others, choice, assigned, "run_dir=run"]) == 0
    node = yaml.safe_load(Path("run/config.yaml").read_text())[group]
    assert (node["_target_"], node[key]) == (f"own_parts.{name}", value)
    assert json.loads(Path("run/run.json").read_text())["choices"][group] == f"own_parts.{name}"
    assert main(["resume", "run", "total_steps=64"]) == 0
    assert main(["train", "-m", *others, choice, f"{group}.{key}={value},{value}", "--dry-run"]) == 0
    assert main(["sweep", *others, f"{choice},{default_choices()[group]}", "--dry-run"]) == 0
    capsys.readouterr()
    assert main(["config", choice, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown[f"{group}.{key}"]["source"] == f"own_parts.{name}"
    assert main(["train", "--dry-run", choice, f"{group}.{key}x=1"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"did you mean `{group}.{key}`?" in line
    assert main(["train", "--dry-run", f"{choice}s"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{choice}s: own_parts: no class or function `{name}s`; did you mean `{name}`?" in line


def test_another_user_may_choose_shipped_options_only():
    lines = [f"{group}=own_parts.X" for group in GROUPS] + ["+memory=gru,own_parts.X", "memory =x.Y"]
    assert list(foreign_lines(["memory=gru", "algo=ppo", *lines])) == lines


def test_the_example_of_a_command_runs(capsys):
    (example,) = (block.text for block in blocks("CONTRIBUTING.md") if "`rlmem count`" in block.text)
    command: dict[str, Any] = {"__name__": "count"}
    exec(example, command)
    command["run"](small_run("checkpoint.every=16"), since=20)
    assert capsys.readouterr().out.splitlines()[-1] == "1"
    with pytest.raises(UserError, match="nothing_here"):
        command["run"](Path("nothing_here"))


@pytest.mark.parametrize(
    ("model", "option"), [(FFM, {"ablation": "ni"}), (SHM, {"calibration": "none"}), (GTrXL, {"queries": "plain"})]
)
def test_options_of_published_code_need_a_class_that_computes_them(model, option):
    own = type("Own", (model,), {})
    with pytest.raises(ValueError, match=f"Published{model.__name__}"):
        own(6, **option)
    published = type(model(6, **option))
    assert type("Own", (published,), {})(6, **option) is not None
