"""Whole runs: the record, determinism, resume, evaluation, loggers, refusals."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from gymnasium.vector import VectorEnv
from helpers import killed_at, options

from rlmem.config.compose import load
from rlmem.config.paths import conf_dir
from rlmem.errors import UserError
from rlmem.record.checkpoint import Checkpoints
from rlmem.record.recorder import read_jsonl
from rlmem.run.evaluate import evaluate_run
from rlmem.run.train import plan, resume, train

SMALL = [
    "env.num_envs=4", "algo.num_minibatches=2", "algo.rollout_slots=32", "algo.epochs=1", "memory.hidden_size=16",
    "total_steps=500", "evaluation.every=200", "evaluation.episodes=4", "checkpoint.every=150", "threads=1",
]  # fmt: skip


def run(*overrides: str, run_dir: str = "run") -> Path:
    train(load([*SMALL, f"run_dir={run_dir}", *overrides]))
    return Path(run_dir)


def without_time(run_dir: Path, keep=lambda row: True) -> list[dict]:
    rows = read_jsonl(run_dir / "metrics.jsonl")
    return [{k: v for k, v in row.items() if not k.startswith("time/")} for row in rows if keep(row)]


def weights(run_dir: Path) -> dict[str, torch.Tensor]:
    return Checkpoints(run_dir / "checkpoints").load()[1]["agent"]


def test_episodes_that_the_budget_cut_have_no_mean_return(in_tmp):
    """Position-only CartPole, whose episodes differ in length: only the short ones of the last rollout have ended."""
    overrides = ["env=position_only_cartpole", "algo.complete_episodes=true", "evaluation.every=null"]
    updates = [row for row in read_jsonl(run(*overrides) / "metrics.jsonl") if "update" in row]
    assert len(updates) > 1 and updates[-1]["train/episodes"] > 0
    assert ["train/return_mean" in row for row in updates] == [True] * (len(updates) - 1) + [False]


def test_a_run_directory_is_the_record(in_tmp):
    run_dir = run()
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


def test_two_processes_with_one_seed_write_the_same_metrics(in_tmp):
    command = [
        sys.executable,
        "-m",
        "rlmem",
        "train",
        *SMALL,
        "memory=lstm",
        "batching=segment",
        "batching.length=8",
    ]
    jobs = [subprocess.Popen([*command, f"run_dir={name}"], stdout=subprocess.DEVNULL) for name in ("a", "b")]
    assert [job.wait(120) for job in jobs] == [0, 0]
    a, b = without_time(Path("a")), without_time(Path("b"))
    assert a == b
    assert len(a) > 5
    assert (Path("a") / "episodes.jsonl").read_text() == (Path("b") / "episodes.jsonl").read_text()


def test_another_seed_writes_other_metrics(in_tmp):
    assert without_time(run("seed=1", run_dir="a")) != without_time(run("seed=2", run_dir="b"))


def test_evaluating_more_often_does_not_change_training(in_tmp):
    training = lambda row: "update" in row  # noqa: E731
    often = without_time(run("evaluation.every=50", run_dir="often"), training)
    never = without_time(run("evaluation.every=null", run_dir="never"), training)
    assert often == never


SCHEMES = ("tape", "segment")
RESUMED = [
    pytest.param(memory, batching, marks=[] if number % 4 == turn else [pytest.mark.slow])
    for number, memory in enumerate(options("memory"))
    for turn, batching in enumerate(SCHEMES)
]
"""Every memory under both schemes: of half of them one in every run, the others slow (`make test-slow`)."""


@pytest.mark.parametrize(("memory", "batching"), RESUMED)
def test_a_killed_run_resumes_exactly(in_tmp, memory, batching):
    """Stop after some checkpoint, resume: the same metrics file and the same parameters as a run that went through."""
    choices = [f"memory={memory}", f"batching={batching}", "env=count_recall", "evaluation.every=null"]
    whole = run(*choices, run_dir="whole")
    with killed_at(4):
        run(*choices, run_dir="cut")
    assert len(read_jsonl(Path("cut/metrics.jsonl"))) < len(read_jsonl(whole / "metrics.jsonl"))
    resume(Path("cut"), [])
    assert without_time(Path("cut")) == without_time(whole)
    assert Path("cut/episodes.jsonl").read_text() == (whole / "episodes.jsonl").read_text()
    for name, tensor in weights(whole).items():
        assert torch.equal(tensor, weights(Path("cut"))[name]), name


def test_kill_minus_nine_loses_nothing_but_time(in_tmp):
    choices = ["memory=gru", "total_steps=3000", "checkpoint.every=300", "evaluation.every=null"]
    whole = run(*choices, run_dir="whole")
    command = [sys.executable, "-m", "rlmem", "train", *SMALL, *choices, "run_dir=cut"]
    job = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not list(Path("cut/checkpoints").glob("*.pt")) and time.monotonic() < deadline and job.poll() is None:
        time.sleep(0.01)
    job.send_signal(signal.SIGKILL)
    job.wait()
    resume(Path("cut"), [])
    assert without_time(Path("cut")) == without_time(whole)


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 75), ("SIGINT", 130), ("SIGUSR1", 75)])
def test_a_polite_signal_saves_and_the_run_resumes_exactly(in_tmp, name, code):
    choices = ["memory=mlp", "total_steps=3000", "checkpoint.every=null", "evaluation.every=null"]
    whole = run(*choices, run_dir="whole")
    command = [sys.executable, "-m", "rlmem", "train", *SMALL, *choices, "run_dir=cut"]
    job = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    metrics = Path("cut/metrics.jsonl")
    while time.monotonic() < deadline and not (metrics.exists() and metrics.stat().st_size):
        time.sleep(0.01)
    job.send_signal(getattr(signal, name))
    assert job.wait(60) == code
    (checkpoint,) = Path("cut/checkpoints").glob("step_*.pt")
    assert 0 < int(checkpoint.stem.removeprefix("step_")) < 3000
    resume(Path("cut"), [])
    assert without_time(Path("cut")) == without_time(whole)


def test_a_run_whose_checkpoints_are_all_damaged_is_refused_and_its_record_kept(in_tmp):
    run_dir = run()
    before = (run_dir / "metrics.jsonl").read_text()
    for path in (run_dir / "checkpoints").glob("*.pt"):
        path.write_bytes(path.read_bytes() + b"x")
    for refused in (lambda: resume(run_dir, ["total_steps=900"]), lambda: evaluate_run(run_dir, episodes=2)):
        with pytest.warns(UserWarning, match="damaged"), pytest.raises(UserError, match="no intact checkpoint"):
            refused()
    assert (run_dir / "metrics.jsonl").read_text() == before


def test_a_record_that_lost_rows_is_refused(in_tmp):
    run_dir = run()
    (run_dir / "metrics.jsonl").write_text("")
    with pytest.warns(UserWarning, match="lost rows"), pytest.raises(UserError, match="of which the record has all"):
        resume(run_dir, ["total_steps=900"])
    assert (run_dir / "metrics.jsonl").read_text() == ""


def test_two_processes_never_train_in_one_directory(in_tmp):
    from rlmem.record import rundir

    run_dir = run()
    with rundir.lock(run_dir), pytest.raises(UserError, match="another process"):
        resume(run_dir, ["total_steps=900"])
    (run_dir / ".lock").unlink()
    (run_dir / ".lock").mkdir()
    with pytest.raises(UserError, match="is a folder"):
        resume(run_dir, ["total_steps=900"])


def test_a_run_killed_before_its_first_checkpoint_starts_again(in_tmp):
    run_dir = run()
    for path in (run_dir / "checkpoints").iterdir():
        path.unlink()
    before = without_time(run_dir)
    resume(run_dir, [])
    assert without_time(run_dir) == before


def test_a_finished_run_can_be_trained_longer(in_tmp):
    run_dir = run()
    resume(run_dir, ["total_steps=900"])
    updates = [row for row in read_jsonl(run_dir / "metrics.jsonl") if "update" in row]
    assert sum(row["batch/transitions"] for row in updates) == updates[-1]["step"] == 900
    about = json.loads((run_dir / "run.json").read_text())
    assert about["resumed"][0]["step"] == 500
    assert about["started"]
    with pytest.raises(UserError, match="has taken 900 steps"):
        resume(run_dir, ["total_steps=100"])
    assert "total_steps: 900" in (run_dir / "config.yaml").read_text()


def test_resume_refuses_what_would_change_the_experiment(in_tmp):
    run_dir = run()
    for override in ("algo.lr=0.1", "seed=3", "memory=gru", "env.level=hard"):
        with pytest.raises(UserError, match=override.split("=")[0]):
            resume(run_dir, [override])


def test_evaluation_has_its_own_streams_and_takes_other_levels(in_tmp):
    run_dir = run()
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


def test_evaluation_refuses_a_level_the_agent_cannot_read(in_tmp):
    run_dir = run("env=count_recall")
    with pytest.raises(UserError, match="observation space"):
        evaluate_run(run_dir, episodes=1, overrides=["env.level=hard"])


def test_choices_that_do_not_go_together_are_refused_before_anything_is_written(in_tmp):
    with pytest.raises(UserError, match=r"algo=ppo.*does not support action space MultiBinary"):
        train(load(["env._target_=test_run.make_multibinary"]))
    with pytest.raises(UserError, match="observation space"):
        train(load(["env=gym", "env.id=rlmem-test/Film-v0"]))
    with pytest.raises(UserError, match="cannot be made"):
        train(load(["env=gym", "env.id=NoSuchGame-v0"]))
    with pytest.raises(UserError, match="num_decs"):
        train(load(["env.params={num_decs: 3}"]))
    if not torch.cuda.is_available():
        with pytest.raises(UserError, match="device=cuda"):
            train(load(["device=cuda"]))
    assert list(in_tmp.iterdir()) == []


def make_multibinary(name: str, level: str = "easy", num_envs: int = 2, **others: object) -> VectorEnv:
    """An environment whose actions PPO does not support."""
    from gymnasium import spaces
    from rlmem_envs.vector import vectorise
    from scripted import Scripted

    class MultiBinary(Scripted):
        def __init__(self):
            super().__init__()
            self.action_space = spaces.MultiBinary(3)

    return vectorise(MultiBinary, 8)


@pytest.fixture(autouse=True, scope="module")
def film_env():
    import gymnasium as gym
    import numpy as np
    from scripted import Scripted

    class Film(Scripted):
        def __init__(self):
            super().__init__()
            self.observation_space = gym.spaces.Box(0, 255, (2, 8, 8, 3), np.uint8)

    gym.register("rlmem-test/Film-v0", Film)
    yield
    del gym.registry["rlmem-test/Film-v0"]


def test_a_labyrinth_without_its_package_names_the_extra(in_tmp, monkeypatch):
    from rlmem_envs.popgym import package

    monkeypatch.setattr(package.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install '\.\[labyrinth\]' in a clone of rlmem"):
        train(load(["env=labyrinth_escape", "env.backend=popgym"]))


def test_a_directory_that_cannot_be_written_is_said(in_tmp):
    Path("file").touch()
    for run_dir in ("file", "file/run", "/proc/run"):
        with pytest.raises(UserError, match="run_dir="):
            train(load([*SMALL, f"run_dir={run_dir}"]))


def test_a_run_directory_is_never_overwritten(in_tmp):
    run_dir = run()
    with pytest.raises(UserError, match="on_exists=resume to continue it"):
        run()
    assert read_jsonl(run_dir / "metrics.jsonl")


def test_a_dry_run_writes_nothing_and_says_what_would_happen(in_tmp):
    text = plan(load(["memory=lstm", "seed=3"]))
    assert "seed 3" in text
    assert "lstm" in text
    assert "395,264 parameters" in text  # POPGym's LSTM of 256 on 128 inputs
    assert list(in_tmp.iterdir()) == []


@pytest.mark.parametrize("env", [o for o in options("env") if "_popgym" in (conf_dir() / f"env/{o}.yaml").read_text()])
def test_every_popgym_family_trains_at_its_hardest(in_tmp, env):
    rows = read_jsonl(run(f"env={env}", "env.level=hard", "total_steps=200", "evaluation.every=null",
                          "evaluation.episodes=1") / "metrics.jsonl")  # fmt: skip
    assert rows[-2]["step"] == 200
    assert all(row.get("ppo/ratio_max_dev", 0) <= 1e-5 for row in rows)


def test_one_environment_is_enough(in_tmp):
    run_dir = run("env.num_envs=1", "algo.num_minibatches=8")
    assert read_jsonl(run_dir / "metrics.jsonl")[-1]["step"] == 500


def test_any_gymnasium_environment_trains(in_tmp):
    for env_id in ("CartPole-v1", "Pendulum-v1"):
        run_dir = run("env=gym", f"env.id={env_id}", run_dir=env_id)
        assert read_jsonl(run_dir / "metrics.jsonl")[-1]["step"] == 500


def test_a_published_setting_may_fix_the_budget_and_is_still_overridden():
    config = load(["algo=ppo_popgym"])
    assert config.values["total_steps"] == 15_000_000
    assert config.values["env"]["num_envs"] == 64
    assert config.values["algo"]["gae_lambda"] == 1.0
    assert load(["algo=ppo_popgym", "total_steps=10", "env.num_envs=8"]).values["total_steps"] == 10


def test_tensorboard_shows_what_metrics_jsonl_holds(in_tmp):
    assert_shown(run("logger=tensorboard"))


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


def test_rows_that_are_not_written_again_as_they_were_are_said(in_tmp, capsys):
    with killed_at(4):
        run("checkpoint.every=null", run_dir="same")
    resume(Path("same"), [])
    assert "not the row" not in capsys.readouterr().out
    with killed_at(4):
        run("checkpoint.every=null", run_dir="other")
    resume(Path("other"), ["evaluation.every=50"])
    assert capsys.readouterr().out.count("not the row that was here before") == 1


def test_a_damaged_record_turns_its_mirrors_off_and_not_the_run(in_tmp, capsys):
    """One that is not noticed, since a checkpoint of before knows its length alone."""
    run_dir = run()
    file = run_dir / "metrics.jsonl"
    file.write_bytes(b"\0" + file.read_bytes()[1:])
    checkpoints = Checkpoints(run_dir / "checkpoints")
    _, state = checkpoints.load()
    lengths = {name: position["bytes"] for name, position in state["record"].items()}
    checkpoints.save(state["step"], state | {"record": lengths})
    resume(run_dir, ["total_steps=900", "+logger.tensorboard._target_=rlmem.record.loggers.TensorBoardLogger"])
    assert "logger=tensorboard stopped: metrics.jsonl is damaged" in capsys.readouterr().out
    assert json.loads(file.read_text().splitlines()[-1])["step"] == 900


def test_a_logger_that_breaks_is_said_once_and_never_stops_the_run(in_tmp, monkeypatch, capsys):
    from rlmem.record.loggers import TensorBoardLogger

    def broken(self, number, row):
        raise RuntimeError("the server is gone")

    monkeypatch.setattr(TensorBoardLogger, "log", broken)
    run_dir = run("logger=tensorboard")
    assert capsys.readouterr().out.count("the server is gone") == 1
    assert read_jsonl(run_dir / "metrics.jsonl")[-1]["step"] == 500
