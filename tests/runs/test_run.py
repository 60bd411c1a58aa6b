"""Whole runs: the record, determinism, resume, evaluation, loggers, refusals."""

import json
import shutil
import signal
import subprocess
import sys
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
from gymnasium.vector import VectorEnv
from helpers import assert_same_weights, killed_at, options, small_run, without_time
from python_process import run_python
from small_runs import SHORT

from rlmem.config.compose import load
from rlmem.config.paths import conf_dir
from rlmem.core.errors import UserError
from rlmem.evidence.page.groups import of_runs
from rlmem.record.checkpoint import Checkpoints
from rlmem.record.recorder import read_jsonl
from rlmem.run.assemble import assemble
from rlmem.run.evaluate import evaluate_run
from rlmem.run.train import plan, resume, train

run = partial(small_run, base=SHORT)


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """A run with the usual memory that went through; not to be changed."""
    return run(run_dir=tmp_path_factory.mktemp("finished") / "run")


@pytest.fixture
def run_dir(finished, in_tmp) -> Path:
    """A copy of `finished` in an empty folder."""
    return Path(shutil.copytree(finished, "run"))


def test_episodes_that_the_budget_cut_have_no_mean_return(in_tmp):
    """Position-only CartPole, whose episodes differ in length: only the short ones of the last rollout have ended."""
    overrides = ["env=position_only_cartpole", "algo.complete_episodes=true", "evaluation.every=null"]
    updates = [row for row in read_jsonl(run(*overrides) / "metrics.jsonl") if "update" in row]
    assert len(updates) > 1 and updates[-1]["train/episodes"] > 0
    assert ["train/return_mean" in row for row in updates] == [True] * (len(updates) - 1) + [False]


def test_a_run_directory_is_the_record(run_dir):
    assert {p.name for p in run_dir.iterdir() if p.name != ".lock"} == {
        "config.yaml", "run.json", "metrics.jsonl", "episodes.jsonl", "checkpoints", "log.txt",
    }  # fmt: skip
    rows = read_jsonl(run_dir / "metrics.jsonl")
    assert rows[-1]["step"] == 500
    updates = [row for row in rows if "update" in row]
    assert sum(row["batch/transitions"] for row in updates) == 500
    assert all(row["ppo/ratio_max_dev"] <= 1e-5 for row in updates)
    assert [row["step"] for row in rows if "eval/greedy/return_mean" in row][-1] == 500
    episodes = read_jsonl(run_dir / "episodes.jsonl")
    assert sum(row["train/episodes"] for row in updates) == len(episodes) > 0
    assert {e["length"] for e in episodes} == {51}
    assert not any(e["truncated"] for e in episodes)
    about = json.loads((run_dir / "run.json").read_text())
    assert about["choices"]["memory"] == "ffm"
    assert about["versions"]["torch"]
    assert "done: 500 steps" in (run_dir / "log.txt").read_text()


@pytest.mark.slow
def test_two_processes_with_one_seed_write_the_same_metrics(in_tmp):
    """A process of its own, whatever was imported and drawn in it before, and this one."""
    choices = [*SHORT, "memory=lstm", "batching=segment", "batching.length=8"]
    command = [sys.executable, "-m", "rlmem", "train", *choices, "run_dir=a"]
    run_python(command, check=True, timeout=280, stdout=subprocess.DEVNULL)
    train(load([*choices, "run_dir=b"]))
    a, b = without_time("a"), without_time("b")
    assert a == b
    assert len(a) > 5
    assert Path("a/episodes.jsonl").read_text() == Path("b/episodes.jsonl").read_text()


def test_another_seed_writes_other_metrics(run_dir):
    assert without_time(run("seed=2", run_dir="other")) != without_time(run_dir)


def test_evaluating_more_often_does_not_change_training(in_tmp):
    training = lambda row: "update" in row  # noqa: E731
    often = without_time(run("evaluation.every=50", run_dir="often"), training)
    never = without_time(run("evaluation.every=null", run_dir="never"), training)
    assert often == never


SIGNALLED = """
import os, signal, sys
from itertools import count
from rlmem.commands.cli import main
from rlmem.loops.base import Loop

calls, iterate, number = count(1), Loop.iterate, getattr(signal, sys.argv.pop())

def iterate_until_signalled(loop):
    if next(calls) == 5:
        os.kill(os.getpid(), number)
    return iterate(loop)

Loop.iterate = iterate_until_signalled
sys.exit(main())
"""
"""`rlmem`, which is sent a signal at the beginning of its fifth iteration; the signal's name is the last argument."""

UNTIL_SIGNALLED = ["memory=mlp", "total_steps=1000", "evaluation.every=null", "checkpoint.every=300"]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> Path:
    """The run that is sent signals in other tests, without any."""
    return run(*UNTIL_SIGNALLED, run_dir=tmp_path_factory.mktemp("undisturbed") / "run")


def signalled(name: str, *choices: str) -> int:
    """The exit code of a run in `cut` that is sent a signal."""
    command = [sys.executable, "-c", SIGNALLED, "train", *SHORT, *UNTIL_SIGNALLED, *choices, "run_dir=cut", name]
    return run_python(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=280).returncode


def test_kill_minus_nine_loses_nothing_but_time(in_tmp, undisturbed):
    assert signalled("SIGKILL") == -signal.SIGKILL
    checkpoints = Checkpoints(Path("cut/checkpoints"))
    assert 0 < checkpoints.load()[1]["step"] < read_jsonl(Path("cut/metrics.jsonl"))[-1]["step"] < 1000
    resume(Path("cut"), [])
    assert without_time("cut") == without_time(undisturbed)
    assert_same_weights("cut", undisturbed)


@pytest.mark.parametrize(
    ("name", "code"),
    [("SIGTERM", 75), *(pytest.param(*other, marks=pytest.mark.slow) for other in (("SIGINT", 130), ("SIGUSR1", 75)))],
)
def test_a_polite_signal_saves_and_the_run_resumes_exactly(in_tmp, undisturbed, name, code):
    assert signalled(name, "checkpoint.every=null") == code
    (checkpoint,) = Path("cut/checkpoints").glob("step_*.pt")
    assert 0 < int(checkpoint.stem.removeprefix("step_")) < 1000
    resume(Path("cut"), [])
    assert without_time("cut") == without_time(undisturbed)


def test_two_processes_never_train_in_one_directory(run_dir, monkeypatch):
    from rlmem.record import rundir

    closed, close = [], VectorEnv.close
    monkeypatch.setattr(VectorEnv, "close", lambda env, **how: (closed.append(env), close(env, **how)))
    with rundir.lock(run_dir), pytest.raises(UserError, match="another process"):
        resume(run_dir, ["total_steps=900"])
    assert len(closed) == 1, "the environments of the run that is refused"
    (run_dir / ".lock").unlink()
    (run_dir / ".lock").mkdir()
    with pytest.raises(UserError, match="is a folder"):
        resume(run_dir, ["total_steps=900"])


def test_a_run_killed_before_its_first_checkpoint_starts_again(run_dir):
    for path in (run_dir / "checkpoints").iterdir():
        path.unlink()
    before = without_time(run_dir)
    resume(run_dir, [])
    assert without_time(run_dir) == before


def test_a_finished_run_can_be_trained_longer(run_dir):
    resume(run_dir, ["total_steps=900"])
    updates = [row for row in read_jsonl(run_dir / "metrics.jsonl") if "update" in row]
    assert sum(row["batch/transitions"] for row in updates) == updates[-1]["step"] == 900
    about = json.loads((run_dir / "run.json").read_text())
    assert about["resumed"][0]["step"] == 500
    assert about["started"]
    with pytest.raises(UserError, match="has taken 900 steps"):
        resume(run_dir, ["total_steps=100"])
    assert "total_steps: 900" in (run_dir / "config.yaml").read_text()


def test_a_run_ends_at_an_evaluation_that_is_good_enough_and_can_go_on_as_if_it_had_not(finished, in_tmp, capsys):
    first, last = without_time(finished, lambda row: "eval/greedy/best" in row)
    early = run(f"evaluation.stop_at={first['eval/greedy/return_mean']}")
    assert without_time(early)[-1] == first
    assert Checkpoints(early / "checkpoints").load()[1]["step"] == first["step"] < last["step"] == 500
    assert f"done: {first['step']} steps (of 500: evaluation.stop_at=" in capsys.readouterr().out
    assert [record.state for record in of_runs([early], [], []).records] == ["done"]
    resume(early, [])
    assert without_time(early)[-1] == first
    resume(early, ["evaluation.stop_at=null"])
    assert without_time(early) == without_time(finished)
    assert_same_weights(early, finished)


@pytest.mark.slow
def test_films_are_due_by_steps_and_one_that_fails_is_said_once(in_tmp, monkeypatch, capsys):
    long = ["env.max_episode_steps=10", "evaluation.every=100", "evaluation.video_every=200"]  # iterations of 128 steps
    filmed = run(*long, run_dir="filmed")
    evaluated = [row["step"] for row in read_jsonl(filmed / "metrics.jsonl") if "eval/greedy/best" in row]
    due = [now for before, now in pairwise([0, *evaluated]) if now // 200 > before // 200 or now == 500]
    assert sorted(path.name for path in (filmed / "videos").iterdir()) == [f"step_{step}.gif" for step in due]

    def broken(env):
        raise RuntimeError("no display")

    monkeypatch.setattr("rlmem.acting.film.picture", broken)
    capsys.readouterr()
    dark = run(*long, run_dir="dark")
    said = [line for line in capsys.readouterr().out.splitlines() if "no videos from here on" in line]
    assert len(said) == 1 and "no display" in said[0]
    assert without_time(dark) == without_time(filmed)


def test_resume_refuses_what_would_change_the_experiment(run_dir):
    for override in ("algo.lr=0.1", "seed=3", "memory=gru", "env.level=hard"):
        with pytest.raises(UserError, match=override.split("=")[0]):
            resume(run_dir, [override])


def test_evaluation_has_its_own_streams_and_takes_other_levels(run_dir):
    first = evaluate_run(run_dir, episodes=6)
    again = evaluate_run(run_dir, episodes=6)
    other = evaluate_run(run_dir, episodes=6, seed=1)
    assert first == again
    assert first["sampled"] != other["sampled"]
    longer = evaluate_run(run_dir, episodes=3, overrides=["env.level=medium"])
    assert longer["greedy"]["length_mean"] == 103
    custom = evaluate_run(run_dir, episodes=3, overrides=["env.params={num_decks: 3}"])
    assert custom["greedy"]["length_mean"] == 155
    assert len(read_jsonl(run_dir / "eval.jsonl")) == 5
    with pytest.raises(UserError, match=r"algo\.lr"):
        evaluate_run(run_dir, episodes=1, overrides=["algo.lr=1"])


def test_evaluations_of_other_memories_may_play_episodes_of_their_own():
    def episodes(*overrides: str) -> int:
        return assemble(load([*SHORT, *overrides]), dry_run=True).evaluation_streams.int("evaluation/env")

    shared, own = episodes("memory=lstm"), "evaluation.own_episodes=true"
    assert (
        shared == episodes("memory=gru")
        and len({shared, episodes("memory=lstm", own), episodes("memory=gru", own)}) == 3
    )
    assert episodes("memory=lstm", own) == episodes("memory=lstm", own, "total_steps=999")


def test_a_directory_that_cannot_be_written_is_said(in_tmp):
    Path("file").touch()
    for run_dir in ("file", "file/run", "/proc/run"):
        with pytest.raises(UserError, match="run_dir="):
            train(load([*SHORT, f"run_dir={run_dir}"]))


def test_a_dry_run_writes_nothing_and_says_what_would_happen(in_tmp):
    text = plan(load(["memory=lstm", "seed=3"]))
    assert "seed 3" in text
    assert "lstm" in text
    assert "395,264 parameters" in text  # POPGym's LSTM of 256 on 128 inputs
    assert list(in_tmp.iterdir()) == []


POPGYM = [o for o in options("env") if "_popgym" in (conf_dir() / f"env/{o}.yaml").read_text()]
KINDS = {"minesweeper", "position_only_pendulum"}
"""A board, and a game with continuous actions; the others are slow."""


@pytest.mark.parametrize("env", [o if o in KINDS else pytest.param(o, marks=pytest.mark.slow) for o in POPGYM])
def test_every_popgym_family_trains_at_its_hardest(in_tmp, env):
    rows = read_jsonl(run(f"env={env}", "env.level=hard", "total_steps=200", "evaluation.every=null",
                          "evaluation.episodes=1") / "metrics.jsonl")  # fmt: skip
    assert rows[-2]["step"] == 200
    assert all(row.get("ppo/ratio_max_dev", 0) <= 1e-5 for row in rows)


@pytest.mark.slow
def test_one_environment_is_enough(in_tmp):
    run_dir = run("env.num_envs=1", "algo.num_minibatches=8")
    assert read_jsonl(run_dir / "metrics.jsonl")[-1]["step"] == 500


def test_any_gymnasium_environment_trains(in_tmp):
    for env_id in ("CartPole-v1", "Pendulum-v1"):
        run_dir = run("env=gym", f"env.id={env_id}", "env.max_episode_steps=40", "total_steps=200", run_dir=env_id)
        assert read_jsonl(run_dir / "metrics.jsonl")[-1]["step"] == 200


def test_tensorboard_of_a_resumed_run_has_every_point_once(in_tmp):
    with killed_at(4):
        run("logger=tensorboard")
    resume(Path("run"), [])
    assert_shown(Path("run"))


def assert_shown(run_dir: Path) -> None:
    """The event files hold what metrics.jsonl holds, in its order."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run_dir / "tensorboard"), size_guidance={"scalars": 0}, purge_orphaned_data=False)
    events.Reload()
    expected: dict[str, list[tuple[int, float]]] = {}
    for row in read_jsonl(run_dir / "metrics.jsonl"):
        for name in row.keys() - {"step"}:
            expected.setdefault(name, []).append((row["step"], pytest.approx(row[name], rel=1e-6, abs=1e-6)))  # float32
    assert len(expected) > 20
    assert {name: [(e.step, e.value) for e in events.Scalars(name)] for name in events.Tags()["scalars"]} == expected


def test_a_logger_that_breaks_is_said_once_and_never_stops_the_run(in_tmp, monkeypatch, capsys):
    from rlmem.record.loggers import TensorBoardLogger

    def broken(self, number, row):
        raise RuntimeError("the server is gone")

    monkeypatch.setattr(TensorBoardLogger, "log", broken)
    run_dir = run("logger=tensorboard")
    assert capsys.readouterr().out.count("the server is gone") == 1
    assert read_jsonl(run_dir / "metrics.jsonl")[-1]["step"] == 500
