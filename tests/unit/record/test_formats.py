"""Runs outlive versions: stored runs of every format load, evaluate and resume; what is older or newer is refused."""

import json
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from helpers import ROOT, changed, small_run
from spoilt import resealed

import rlmem
from rlmem.commands.cli import main
from rlmem.config.foreign import foreign_problems
from rlmem.config.overrides import leaf_paths
from rlmem.core.errors import UserError
from rlmem.core.moved import MOVED
from rlmem.record import rundir
from rlmem.record.checkpoint import Checkpoints, read, sha256
from rlmem.record.provenance import FORMAT, OLDEST, OtherFormat
from rlmem.record.recorder import read_jsonl
from rlmem.record.trust import sealed
from rlmem.run.stored import experiment_of, require_same_experiment, stored_config

STORED = ROOT / "tests" / "data" / "formats"
NAMES = [f"format_{number}/{name}" for number in range(OLDEST, FORMAT + 1) for name in ("ppo", "dqn")]
CLOSE = 1e-4
"""Between processors and versions of torch, and between versions of rlmem that add in another order."""


@pytest.fixture(params=NAMES)
def stored(request) -> Path:
    return STORED / request.param


@pytest.fixture
def run_dir(stored, in_tmp) -> Path:
    """A copy of a stored run, which was made by somebody else."""
    return Path(shutil.copytree(stored, "run"))


def files(run_dir: Path) -> dict[str, str]:
    names = ("config.yaml", "run.json", "metrics.jsonl", "episodes.jsonl")
    return {str(path): sha256(path) for path in [*map(run_dir.joinpath, names), *run_dir.glob("checkpoints/*")]}


def rows_of(run_dir: Path) -> list[dict[str, float]]:
    """The rows of a run's metrics, without times."""
    return [
        {key: value for key, value in row.items() if not key.startswith("time/")}
        for row in read_jsonl(run_dir / "metrics.jsonl")
    ]


def rewritten(run_dir: Path, change: Callable[[dict], None]) -> Path:
    """The newest checkpoint of a run with another content."""
    path = Checkpoints(run_dir / "checkpoints").paths()[-1]
    state = torch.load(path, weights_only=True)
    change(state)
    resealed(path, state)
    return path


def test_a_stored_run_acts_and_evaluates_to_its_recorded_numbers_and_stays_as_it_is(run_dir):
    before = files(run_dir)
    agent = rlmem.load(f"{run_dir}@best")
    assert agent.act(0, agent.initial_state())[0] in range(4)
    expected = read_jsonl(run_dir / "eval.jsonl")[0]
    found = rlmem.Run(run_dir).evaluate(expected["episodes"], which=expected["step"])
    for kind in ("greedy", "sampled"):
        assert found[kind] == pytest.approx(expected[kind], rel=CLOSE)
    assert files(run_dir) == before


def test_a_stored_run_resumes_to_the_end_that_it_had(run_dir, stored):
    rlmem.Run(run_dir).resume()
    expected, found = rows_of(stored), rows_of(run_dir)
    assert len(found) == len(expected) and found[-1]["step"] == 128
    for row, other in zip(found, expected, strict=True):
        # A metric may be new, and the differences of nearly equal numbers have few digits.
        assert {key: row[key] for key in other} == pytest.approx(other, rel=CLOSE, abs=1e-5)
    assert read_jsonl(run_dir / "episodes.jsonl") == read_jsonl(stored / "episodes.jsonl")
    about = json.loads((run_dir / "run.json").read_text())
    assert about["format"] == FORMAT and [entry["step"] for entry in about["resumed"]] == [64]
    newest = torch.load(Checkpoints(run_dir / "checkpoints").paths()[-1], weights_only=True)
    assert newest["format"] == FORMAT and newest["rlmem"] == rlmem.__version__
    assert rlmem.Run(run_dir).evaluate(2)["step"] == 128


def test_the_command_that_began_a_run_of_before_continues_it(in_tmp, capsys):
    run_dir = Path(shutil.copytree(STORED / f"format_{OLDEST}" / "ppo", "ppo"))
    command = json.loads((run_dir / "run.json").read_text())["overrides"]
    assert main(["train", *command, "on_exists=resume"]) == 0, capsys.readouterr().err
    assert "resumed at step 64" in (run_dir / "log.txt").read_text()


def test_a_run_of_a_removed_compiler_acts_and_resumes_as_its_message_suggests(in_tmp, capsys):
    run_dir = Path(shutil.copytree(STORED / f"format_{FORMAT}" / "ppo", "run"))
    config = run_dir / "config.yaml"
    config.write_text(sealed(changed(config, "compile: 'off'", "compile: inductor").read_text()))
    before = files(run_dir)
    assert rlmem.Run(run_dir).evaluate(2)["step"] == 64
    assert main(["resume", "run"]) == 2
    line = capsys.readouterr().err
    assert line.startswith("rlmem: error: run: compile=inductor is not supported") and files(run_dir) == before
    assert main(shlex.split(line.partition("; e.g. rlmem ")[2])) == 0
    assert rlmem.Run(run_dir).config["compile"] == "off"


def test_a_stored_configuration_has_the_keys_of_a_new_one(stored):
    new = rundir.read(STORED / f"format_{FORMAT}" / stored.name)[0]
    assert dict(leaf_paths(rundir.read(stored)[0])).keys() == dict(leaf_paths(new)).keys()
    best = [read(folder / "checkpoints" / "best.pt") for folder in (stored, STORED / f"format_{FORMAT}" / stored.name)]
    assert best[0].keys() == best[1].keys() and best[0]["experiment"].keys() == best[1]["experiment"].keys()


def newer_run(run_dir: Path) -> None:
    about = json.loads((run_dir / "run.json").read_text())
    (run_dir / "run.json").write_text(json.dumps(about | {"format": FORMAT + 1, "rlmem": "7.0"}))


def newer_checkpoint(run_dir: Path) -> None:
    rewritten(run_dir, lambda state: state.update(format=FORMAT + 1, rlmem="7.0"))


@pytest.mark.parametrize("change", [newer_run, newer_checkpoint])
def test_what_a_newer_version_wrote_is_refused_and_left_alone(in_tmp, capsys, change):
    run_dir = Path(shutil.copytree(STORED / f"format_{FORMAT}" / "ppo", "ppo"))
    command = json.loads((run_dir / "run.json").read_text())["overrides"]
    change(run_dir)
    before = files(run_dir)
    example = r"pip install git\+https://github.com/rlmem/rlmem(@\w{40})?$"  # a checkpoint need not know its commit
    what = f"was written by rlmem 7.0 in format {FORMAT + 1}; rlmem .* reads formats {OLDEST} to {FORMAT}"
    expected = f"{what}; e.g. {example}"
    for use in (
        lambda: rlmem.load(run_dir),
        lambda: rlmem.Run(run_dir).evaluate(2),
        lambda: rlmem.Run(run_dir).resume(),
        lambda: rlmem.train(*command, on_exists="resume"),
        lambda: rlmem.train(*command, init_from=str(run_dir), run_dir="warm"),
    ):
        with pytest.raises(UserError, match=expected):
            use()
    assert files(run_dir) == before and {path.name for path in in_tmp.iterdir()} == {"ppo"}
    assert len(rlmem.Run(run_dir).evaluations()) == 2  # its record is read as before


def test_what_has_no_number_is_refused_and_its_record_still_read(in_tmp):
    run_dir = Path(shutil.copytree(STORED / f"format_{FORMAT}" / "ppo", "run"))
    path = rewritten(run_dir, lambda state: state.pop("format"))
    with pytest.raises(OtherFormat, match=" in format 0; "):
        read(path)
    about = json.loads((run_dir / "run.json").read_text())
    del about["format"]
    (run_dir / "run.json").write_text(json.dumps(about))
    with pytest.raises(OtherFormat, match=" in format 0; "):
        rlmem.load(run_dir)
    assert len(rlmem.Run(run_dir).evaluations()) == 2


def test_what_is_too_old_names_the_commit_that_can_read_it(in_tmp):
    run_dir = Path(shutil.copytree(STORED / "early" / "ppo", "run"))
    example = r"pip install git\+https://github.com/rlmem/rlmem@d85d36485fbc195f0777fcb33edb0e27d2833f5d$"
    for use in (lambda: rlmem.load(run_dir), lambda: rlmem.Run(run_dir).resume()):
        with pytest.raises(OtherFormat, match=f"was written by rlmem 0.1.0 in format 0; .*e.g. {example}"):
            use()
    changed(run_dir / "run.json", "d85d36485fbc195f0777fcb33edb0e27d2833f5d", "; rm -rf")
    with pytest.raises(
        OtherFormat, match=r"e.g. a clone of https://github.com/rlmem/rlmem at the commit that wrote it$"
    ):
        rlmem.load(run_dir)


@pytest.mark.parametrize("number", [-1, True, 1.0, "1", None, 10**30])
def test_what_is_no_number_of_a_format_is_damage(in_tmp, number):
    run_dir = Path(shutil.copytree(STORED / f"format_{FORMAT}" / "ppo", "run"))
    path = rewritten(run_dir, lambda state: state.update(format=number))
    with pytest.raises(ValueError, match="is damaged"):
        read(path)
    about = json.loads((run_dir / "run.json").read_text())
    (run_dir / "run.json").write_text(json.dumps(about | {"format": number}))
    with pytest.raises(rundir.NoRun, match="is damaged"):
        rundir.read(run_dir)


def test_a_number_opens_no_door(in_tmp):
    """A received run may choose its format, and is still refused what is not rlmem's own."""
    run_dir = Path(shutil.copytree(STORED / f"format_{OLDEST}" / "ppo", "run"))
    changed(run_dir / "config.yaml", "rlmem.memory.gru.GRU", "rlmem.loggers.evil.GRU")
    for number in range(OLDEST, FORMAT + 1):
        about = json.loads((run_dir / "run.json").read_text())
        (run_dir / "run.json").write_text(json.dumps(about | {"format": number}))
        with pytest.raises(UserError, match=r"memory._target_"):
            rlmem.load(run_dir)


def test_runs_of_every_format_are_kept():
    assert {path.name for path in STORED.iterdir() if path.is_dir()} == {"early", *(n.split("/")[0] for n in NAMES)}


def test_a_class_that_moved_is_found_by_the_name_that_a_run_stored(in_tmp, monkeypatch):
    run_dir = small_run("memory=gru")
    moved = run_dir / "config.yaml"
    with monkeypatch.context() as patch:
        patch.setitem(MOVED, "rlmem.models", "rlmem.memory")
        changed(moved, "rlmem.memory.gru.GRU", "rlmem.models.gru.GRU")
        config = stored_config(run_dir, trust=True)
        assert config.values["memory"]["_target_"] == "rlmem.memory.gru.GRU"
        assert foreign_problems({"memory": {"_target_": "rlmem.models.gru.GRU"}}) == {}
        stored = experiment_of(config.values) | {"memory._target_": "rlmem.models.gru.GRU"}
        require_same_experiment(stored, config, "the run", "another run_dir")
    with pytest.raises(UserError, match=r"rlmem\.models"):
        stored_config(run_dir, trust=True)
