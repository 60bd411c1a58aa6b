"""`rlmem eval` of several runs: a line each, means over seeds, and a reason for what cannot be evaluated."""

import csv
import json
import shutil
from pathlib import Path

import gymnasium
import pytest
import torch
from gymnasium.envs.classic_control import CartPoleEnv
from helpers import SMALLEST, small_run
from spoilt import resealed

from rlmem.commands.cli import main
from rlmem.core.errors import UserError
from rlmem.evidence.page.evaluations import evaluated, means, runs_table
from rlmem.evidence.statistics import contrast
from rlmem.record.checkpoint import Checkpoints
from rlmem.record.recorder import read_jsonl
from rlmem.record.tables import Value
from rlmem.run.evaluate import evaluate_run

RUNS = {"mlp-0": ("mlp", 0), "mlp-1": ("mlp", 1), "gru-0": ("gru", 0)}


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    for name, (memory, seed) in RUNS.items():
        small_run(f"memory={memory}", "memory.hidden_size=4", f"seed={seed}", run_dir=folder / name)
    return folder


@pytest.fixture
def folder(trained, in_tmp) -> Path:
    return Path(shutil.copytree(trained, "runs"))


def test_runs_become_a_table_with_means_over_seeds(folder, capsys):
    assert main(["eval", str(folder), "env.max_episode_steps=9", "--episodes", "3", "--csv", "t.csv", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    rows = {run["run"]: run for run in found["runs"]}
    for name, (memory, seed) in RUNS.items():
        (row,) = read_jsonl(folder / name / "eval.jsonl")  # recorded as that of a single eval
        run = rows[f"runs/{name}"]
        assert (run["memory"], run["seed"], run["env"], run["step"]) == (memory, seed, "repeat_first", 32)
        assert run["episodes"] == row["episodes"] == 3 and row["env"]["max_episode_steps"] == 9
        assert [run["greedy_return"], run["sampled_return"]] == [row[k]["return_mean"] for k in ("greedy", "sampled")]
        assert run["greedy_return_sem"] == row["greedy"]["return_sem"]
        assert run["overrides"] == "env.max_episode_steps=9" and "video" not in run
    cells = {cell["cell"]: cell for cell in found["cells"]}
    assert {name: sorted(cell["seeds"]) for name, cell in cells.items()} == {"mlp": [0, 1], "gru": [0]}
    returns = [rows[f"runs/mlp-{seed}"]["sampled_return"] for seed in (0, 1)]
    mean = contrast([(1, returns)])
    sampled = cells["mlp"]["sampled_return"]
    assert (sampled["mean"], sampled["low"], sampled["high"]) == pytest.approx((mean.value, *mean.bounds()))
    with open("t.csv", newline="") as file:
        lines = list(csv.DictReader(file))
    assert {line["run"]: float(line["greedy_return"]) for line in lines} == {
        name: run["greedy_return"] for name, run in rows.items()
    }


def test_a_run_names_its_checkpoint_in_every_command_that_reads_it(folder, capsys):
    assert main(["eval", "runs/mlp-0@32", "--episodes", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["step"] == 32
    command = ["analyze", "demand", "runs/mlp-0@32", "--slots", "4", "--json"]
    assert main(command) == 0 and json.loads(capsys.readouterr().out)["step"] == 32
    for command in ("eval", "export", "push", "analyze demand"):
        assert main([*command.split(), "runs/mlp-0@32", "--step", "5"]) == 2
        assert "--step 5: runs/mlp-0@32 names another checkpoint" in capsys.readouterr().err
    assert main(["eval", "runs/mlp-0@5"]) == 2
    assert "runs/mlp-0: no checkpoint 5; accepted: " in capsys.readouterr().err
    assert main(["resume", "runs/mlp-0@32"]) == 2
    assert "e.g. rlmem train init_from=runs/mlp-0@32 run_dir=runs/mlp-0-2" in capsys.readouterr().err


def test_an_environment_that_cannot_be_made_here_gives_way_to_another_by_its_id(in_tmp):
    gymnasium.register("Mine-v0", CartPoleEnv, max_episode_steps=5)
    small_run("env=gym", "env.id=Mine-v0", "env.num_envs=2", run_dir="mine")
    del gymnasium.registry["Mine-v0"]
    with pytest.raises(UserError, match=r"Mine. doesn't exist.*; e.g. env.id=CartPole-v1, or env.id=my_module:Mine-v0"):
        evaluate_run(Path("mine"), 2)
    row = evaluate_run(Path("mine"), 2, overrides=["env.id=gymnasium:CartPole-v1"])
    assert row["env"]["id"] == "gymnasium:CartPole-v1" and "greedy" in row
    with pytest.raises(UserError, match=r"env.id=MountainCar-v0: has other observations or actions than those"):
        evaluate_run(Path("mine"), 2, overrides=["env.id=MountainCar-v0"])


def test_the_same_as_text_and_by_a_pattern(folder, capsys):
    assert main(["eval", "runs/mlp-*", "--episodes", "2"]) == 0
    out = capsys.readouterr().out
    assert "runs/mlp-0" in out and "runs/mlp-1" in out and "gru" not in out
    assert main(["eval", "runs/mlp-0", "--episodes", "2"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("greedy")]
    table = next(line for line in out.splitlines() if line.startswith("runs/mlp-0"))
    assert "overrides" not in out
    assert line.split()[1][:5] in table


def test_a_link_below_a_folder_is_named_and_not_followed(folder, capsys):
    (folder.parent / "others").mkdir()
    (folder / "mlp-0").rename(folder.parent / "others" / "mlp-0")
    (folder / "far").symlink_to((folder.parent / "others" / "mlp-0").absolute())
    assert main(["eval", str(folder), "--episodes", "2"]) == 1
    out = capsys.readouterr().out.splitlines()
    assert out[-1].startswith(f"not evaluated: {folder / 'far'}: is a link, which is not followed; expected its target")
    only = folder.parent / "only"
    only.mkdir()
    (folder / "far").rename(only / "far")
    assert main(["eval", str(only)]) == 2
    assert "is a link, which is not followed" in capsys.readouterr().err


def test_what_cannot_be_evaluated_is_named_last_and_the_others_are_evaluated(folder, capsys):
    for path in (folder / "mlp-0" / "checkpoints").iterdir():
        path.unlink()
    (folder / "mlp-1" / "run.json").write_text("{")
    assert main(["eval", "runs/mlp-0", "runs/gru-0", "runs/mlp-1", "nowhere", "--episodes", "2"]) == 1
    out = capsys.readouterr().out.splitlines()
    assert any(line.startswith("runs/gru-0") for line in out)
    first, second, third = out[-3:]
    assert first.startswith("not evaluated: runs/mlp-0: no intact checkpoint")
    assert second.startswith("not evaluated: runs/mlp-1/run.json: is damaged")
    assert third.startswith("not evaluated: nowhere: not a run directory")
    Path("old.csv").write_text("kept")
    for name in ("old.csv", "new.csv"):
        assert main(["eval", "runs/mlp-0", "nowhere", "--episodes", "2", "--csv", name]) == 1
    assert Path("old.csv").read_text() == "kept" and not Path("new.csv").exists(), "nothing could be evaluated"


def test_mistakes_are_said_before_anything_is_played(folder, capsys):
    for words, said in (
        (["runs", "algo.lr=1"], "algo.lr=1: cannot be evaluated differently"),
        (["env.level=medium"], "env.level=medium: "),
        (["runs", "video=maybe"], "expected true or false"),
        (["runs", "--csv", "runs"], "expected a file to write"),
        (["runs", "--csv", "nowhere/t.csv"], "nowhere/t.csv: cannot be written"),
    ):
        assert main(["eval", *words]) == 2
        assert said in capsys.readouterr().err
    assert not list(folder.glob("*/eval.jsonl"))


def test_kinds_of_episodes_of_any_name_have_a_score_and_what_is_missing_has_no_part_in_means(folder):
    result = {"return_mean": 1.0, "return_std": 0.5, "return_sem": 0.25}
    row = {"run": "runs/mlp-0", "step": 32, "episodes": 4, "drop_0": result, "drop_0.5": result, "env": {"level": None}}
    found = evaluated([row | {"video": "v.gif"}, row | {"run": "runs/mlp-1"}], "env.level=medium")
    assert [run.scores["drop_0.5 return"].mean for run in found] == [1.0, 1.0]
    lines = runs_table(found).text().splitlines()
    assert "drop_0 return" in lines[2] and lines[4].split()[-2:] == ["env.level=medium", "v.gif"]
    found[1] = found[1]._replace(scores={"drop_0 return": Value(None)})
    (cell,) = means(found)
    assert (cell.scores["drop_0 return"].mean, cell.scores["drop_0 return"].n) == (1.0, 1)


@pytest.mark.slow
def test_the_jobs_of_a_sweep_are_its_runs(in_tmp, capsys):
    words = [word for word in SMALLEST if not word.startswith("memory=")]
    assert main(["sweep", *words, "memory=mlp", "seed=0,1", "--dir", "s"]) == 0, capsys.readouterr().err
    capsys.readouterr()
    assert main(["eval", "s", "--episodes", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["runs"]) == 2 and not found["not_evaluated"]
    assert [(cell["cell"], sorted(cell["seeds"])) for cell in found["cells"]] == [("mlp", [0, 1])]


def test_weights_that_are_not_finite_are_named(folder):
    run_dir = next(path.parent for path in sorted(folder.rglob("config.yaml")))
    (*_, path) = Checkpoints(run_dir / "checkpoints").paths()
    state = torch.load(path, weights_only=True)
    name = next(name for name, x in state["agent"].items() if x.is_floating_point())
    state["agent"][name].view(-1)[0] = float("nan")
    resealed(path, state)
    with pytest.warns(UserWarning, match=rf"1 of \d+ weights are not finite, such as {name}"):
        assert main(["eval", str(run_dir), "--episodes", "1"]) == 0
