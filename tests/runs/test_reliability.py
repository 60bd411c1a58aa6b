"""What may happen to a run from outside: signals, a full disk, damaged files, a dead worker, numbers that are none."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import assert_same_end, fast_only, killed_at, small_run, weights, without_time
from python_process import Python, run_python
from rlmem_envs.diagnostics import two_step_cue
from rlmem_envs.occlusion.robot import Robot
from small_runs import CUE_DQN, RECALL
from spoilt import cut_short

from rlmem.config.compose import load
from rlmem.core.command import Stopped, stopping_politely
from rlmem.core.errors import Fault, UserError
from rlmem.record.checkpoint import Checkpoints
from rlmem.run.evaluate import evaluate_run
from rlmem.run.train import plan, resume, train

run = partial(small_run, base=RECALL)


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    """A run that went through; not to be changed."""
    return run(run_dir=tmp_path_factory.mktemp("finished") / "run")


@pytest.fixture(scope="module")
def killed(tmp_path_factory) -> Path:
    """The same run, killed before its fourth iteration; not to be changed."""
    run_dir = tmp_path_factory.mktemp("killed") / "cut"
    with killed_at(4):
        run(run_dir=run_dir)
    return run_dir


@pytest.fixture
def run_dir(finished, in_tmp) -> Path:
    """A copy of `finished` in an empty folder."""
    return Path(shutil.copytree(finished, "run"))


@pytest.fixture
def cut(killed, in_tmp) -> Path:
    """A copy of `killed` in an empty folder."""
    return Path(shutil.copytree(killed, "cut"))


# --- a run that is there already -------------------------------------------------------------------------------------


def test_the_same_command_goes_on_with_a_run_and_ends_as_if_it_had_never_stopped(finished, in_tmp):
    with killed_at(4):
        run("on_exists=resume", run_dir="cut")
    run("on_exists=resume", run_dir="cut")
    assert_same_end("cut", finished)
    before = (Path("cut") / "metrics.jsonl").read_text()
    again = train(load([*RECALL, "run_dir=cut", "on_exists=resume"]))
    assert again == (Path("cut"), without_time(finished)[-1]["eval/greedy/return_mean"])
    assert (Path("cut") / "metrics.jsonl").read_text() == before


def test_another_experiment_in_the_directory_is_refused_by_the_names_of_its_keys(run_dir):
    before = (run_dir / "metrics.jsonl").read_text()
    with pytest.raises(UserError) as refused:
        run("on_exists=resume", "algo.lr=0.5", "seed=7", "total_steps=800")
    assert [problem.split("=")[0] for problem in refused.value.problems] == ["seed", "algo.lr"]
    assert "seed=7: the run in run has 0" in refused.value.problems[0]
    assert (run_dir / "metrics.jsonl").read_text() == before
    run("on_exists=resume", "total_steps=800", "checkpoint.keep=1")
    assert without_time(run_dir)[-1]["step"] == 800


def test_a_directory_that_is_taken_may_be_left_alone(run_dir):
    before = (Path("run") / "metrics.jsonl").read_text()
    run("on_exists=new", "seed=1")
    assert (Path("run") / "metrics.jsonl").read_text() == before
    assert without_time("run-2")[-1]["step"] == 500


def lose_description(run_dir: Path) -> None:
    (run_dir / "config.yaml").unlink()
    (run_dir / "run.json").unlink()


def lose_rows(run_dir: Path) -> None:
    """Down to where the older of the two checkpoints was taken."""
    path = Checkpoints(run_dir / "checkpoints").paths()[0]
    position = torch.load(path, weights_only=True)["record"]["metrics"]["bytes"]
    os.truncate(run_dir / "metrics.jsonl", position + 10)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a damaged description": lambda run_dir: os.truncate(run_dir / "run.json", 20),
    "no description": lose_description,
    "a damaged checkpoint": lambda run_dir: cut_short(Checkpoints(run_dir / "checkpoints").paths()[-1]),
    "lost rows": lose_rows,
}


@pytest.mark.parametrize("damage", fast_only(["no description", "lost rows"], DAMAGES))
@pytest.mark.filterwarnings("ignore:.*falling back")
def test_a_damaged_run_goes_on_from_what_is_intact(finished, cut, damage):
    DAMAGES[damage](cut)
    run("on_exists=resume", run_dir="cut")
    assert_same_end("cut", finished)
    assert not list(Path().glob("cut.damaged*"))


def damage_all(run_dir: Path) -> None:
    for path in Checkpoints(run_dir / "checkpoints").paths():
        cut_short(path)


def leave_rows_only(run_dir: Path) -> None:
    lose_description(run_dir)
    shutil.rmtree(run_dir / "checkpoints")


@pytest.mark.parametrize("damage", [damage_all, pytest.param(leave_rows_only, marks=pytest.mark.slow)])
@pytest.mark.filterwarnings("ignore:.*falling back")
def test_a_run_of_which_nothing_can_be_used_begins_again_and_its_files_are_kept(finished, cut, capsys, damage):
    damage(cut)
    left = {p.relative_to("cut"): p.stat().st_size for p in Path("cut").rglob("*") if p.suffix in (".jsonl", ".pt")}
    run("on_exists=resume", run_dir="cut")
    assert_same_end("cut", finished)
    assert {path: (Path("cut.damaged") / path).stat().st_size for path in left} == left
    assert "starting from the beginning" in capsys.readouterr().out


def test_a_config_that_was_edited_is_noticed(run_dir):
    text = (run_dir / "config.yaml").read_text()
    (run_dir / "config.yaml").write_text(text.replace("gamma: 0.99", "gamma: 0.5"))
    with pytest.raises(UserError, match=r"run/config.yaml: was edited since it was written; .* --trust"):
        resume(run_dir, ["total_steps=900"])
    with pytest.raises(UserError, match=r"algo\.gamma=0\.5: the checkpoint in run has 0\.99"):
        resume(run_dir, ["total_steps=900"], trust=True)


# --- random kills ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("memory", ["gru", "ffm", "lru"])
@pytest.mark.parametrize(
    "base", [RECALL, CUE_DQN, [*CUE_DQN, "algo=sacd", "batching=segment"]], ids=["ppo", "dqn", "sacd"]
)
def test_random_kills_change_nothing(base, memory, in_tmp):
    """Five kills; every second one waits until a checkpoint is half written, which may be missed."""
    choices, draw, record = [*base, f"memory={memory}", "total_steps=2000"], random.Random(memory), "metrics.jsonl"
    size, cut = (run(base=choices, run_dir="whole") / record).stat().st_size, Path("cut")
    command = [sys.executable, "-m", "rlmem", "train", *choices, f"run_dir={cut}", "on_exists=resume"]
    kills = 0
    for kill in range(5):
        written = lambda: (cut / record).stat().st_size if (cut / record).exists() else 0  # noqa: E731
        moment, process = draw.uniform(written(), size), Python(command, stdout=subprocess.DEVNULL)
        while process.poll() is None:
            if written() >= moment and (kill % 2 or any(cut.glob("checkpoints/*.partial"))):
                process.kill()
                process.wait()
                kills += 1
            time.sleep(0.001)
    run_python(command, check=True)
    assert kills > 1
    assert_same_end(cut, "whole")


# --- checkpoints -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("base", [RECALL, pytest.param(CUE_DQN, marks=pytest.mark.slow)], ids=["ppo", "dqn"])
def test_bytes_that_changed_anywhere_are_never_loaded(in_tmp, base):
    """10 random places: the run falls back to the checkpoint before and ends as if nothing had happened."""
    whole = run("total_steps=700", run_dir="whole", base=base)
    with killed_at(5):
        run("total_steps=700", run_dir="cut", base=base)
    path = Checkpoints(Path("cut/checkpoints")).paths()[-1]
    good, shuffled = path.read_bytes(), random.Random(0)
    for case in range(10):
        where = shuffled.randrange(len(good))
        bad = good[:where] if case % 2 else good[:where] + bytes([good[where] ^ (1 << case % 8)]) + good[where + 1 :]
        path.write_bytes(bad)
        with pytest.warns(UserWarning, match="damaged"):
            assert Checkpoints(path.parent).load()[0] < path
    with pytest.warns(UserWarning, match="damaged"):
        resume(Path("cut"), [])
    assert_same_end("cut", whole)


def test_the_best_agent_is_kept_beside_the_newest(in_tmp):
    run_dir = run("total_steps=800", "checkpoint.keep=1")
    score = "eval/greedy/return_mean"
    best = max((row for row in without_time(run_dir) if score in row), key=lambda row: row[score])
    again = evaluate_run(run_dir, episodes=4, step="best")
    assert again["step"] == best["step"]
    state = torch.load(run_dir / "checkpoints" / "best.pt", weights_only=True)
    assert state["best_return"] == best[score] == without_time(run_dir)[-1]["eval/greedy/best"]
    assert len(Checkpoints(run_dir / "checkpoints").paths()) == 1
    with pytest.raises(UserError, match=r"no checkpoint 7; accepted: best, 800"):
        evaluate_run(run_dir, step=7)


LIMITED = """
import resource, signal, sys
from rlmem.commands.cli import main

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
size = int(sys.argv.pop(1))
resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
sys.exit(main())
"""
"""`rlmem` in a process whose files may not grow beyond so many bytes: what a full disk does, to whoever writes."""


def test_a_full_disk_stops_the_run_with_one_line_and_the_last_checkpoint_is_intact(in_tmp):
    choices = [*CUE_DQN, "total_steps=1500", "checkpoint.every=250", "evaluation.every=500", "algo.update_ratio=0.01"]
    whole = run(run_dir="whole", base=choices)
    command = [sys.executable, "-c", LIMITED, "110000", "train", *choices, "run_dir=cut"]
    done = run_python(command, capture_output=True, text=True, timeout=280)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("rlmem: failed")]
    assert "File too large" in line and "rlmem resume cut" in line
    assert line.split("; ")[-1] in (Path("cut") / "log.txt").read_text()
    assert not list(Path("cut/checkpoints").glob("*.partial"))
    assert 0 < Checkpoints(Path("cut/checkpoints")).load()[1]["step"] < 1500
    resume(Path("cut"), [])
    assert_same_end("cut", whole)


# --- what breaks a run -----------------------------------------------------------------------------------------------


class Faulty(two_step_cue.TwoStepCue):
    """Two-step cue; at every `period`-th step of the vector something goes wrong."""

    def __init__(
        self, num_envs: int = 1, period: int = 20, what: str = "reward", signal_name: str = "SIGTERM", **kwargs: Any
    ):
        super().__init__(num_envs, **kwargs)
        self.period, self.what, self.calls = period, what, np.zeros(1, np.int64)
        self.number = getattr(signal, signal_name)

    def step(self, actions: Any) -> Any:
        self.calls += 1
        obs, reward, *rest = super().step(actions)
        if self.calls[0] % self.period == 0:
            if self.what == "memory":
                raise MemoryError
            if self.what == "allocation":
                torch.empty(10**15)
            if self.what == "signal" and self.num_envs == 4:  # not in evaluation
                signal.raise_signal(self.number)
            if self.what == "reward":
                reward = np.full_like(reward, 1e30)  # whose square is no float32
        return obs, reward, *rest


needs_bullet = pytest.mark.skipif(find_spec("pybullet_envs_gymnasium") is None, reason="needs PyBullet")


def faulty(**keys: Any) -> list[str]:
    return [f"env._target_={__name__}.Faulty", *(f"+env.{key}={value}" for key, value in keys.items())]


SQUARED = [*CUE_DQN, "algo.td_loss=squared", "algo.reward_scale=1"]


@pytest.mark.parametrize("base", [RECALL, pytest.param(SQUARED, marks=pytest.mark.slow)], ids=["ppo", "dqn"])
def test_a_loss_that_is_no_number_stops_the_run_by_name(in_tmp, capsys, base):
    with pytest.raises(Fault, match=r"step \d+: not a finite number: .*on_nan=skip.*rlmem resume run") as failed:
        run("env=two_step_cue", *faulty(what="reward", period=70), "checkpoint.every=50", base=base)
    assert str(failed.value).split("; ")[0] in (Path("run") / "log.txt").read_text()
    agent = Checkpoints(Path("run/checkpoints")).load()[1]["agent"]
    assert all(torch.isfinite(tensor).all() for tensor in agent.values())


@pytest.mark.parametrize("base", [pytest.param(RECALL, marks=pytest.mark.slow), SQUARED], ids=["ppo", "dqn"])
def test_steps_that_are_no_numbers_may_be_skipped(in_tmp, base):
    run("env=two_step_cue", *faulty(what="reward", period=70), "on_nan=skip", base=base)
    last = [row for row in without_time("run") if "nan/skipped" in row][-1]
    assert last["nan/skipped"] > 0
    agent = Checkpoints(Path("run/checkpoints")).load()[1]["agent"]
    assert all(torch.isfinite(tensor).all() for tensor in agent.values())


@pytest.mark.parametrize("what", ["memory", "allocation"])
def test_a_lack_of_memory_is_named(in_tmp, what):
    with pytest.raises(Fault, match=r"step \d+: out of memory \(.*rlmem resume run"):
        run("env=two_step_cue", *faulty(what=what, period=61))


# --- warm start ------------------------------------------------------------------------------------------------------


def test_a_warm_start_takes_the_weights_and_nothing_else(run_dir):
    first = run_dir.rename("first")
    run("init_from=first", "seed=5", run_dir="second")
    with killed_at(1):
        run("init_from=first", "seed=5", run_dir="third")
    start = Checkpoints(Path("third/checkpoints")).load()[1]
    trained = weights(first)
    assert all(torch.equal(start["agent"][name], trained[name]) for name in trained)
    assert start["step"] == 0
    shutil.rmtree(first)  # what it began with is its own now
    resume(Path("third"), [])
    assert_same_end("third", "second")


def test_a_warm_start_from_another_kind_of_agent_is_refused_in_one_line(run_dir):
    run_dir.rename("first")
    for source, override, what in [
        ("first", "memory.hidden_size=9", "its agent is made otherwise"),
        ("first@77", "seed=0", "no checkpoint 77"),
        ("nowhere", "seed=0", "not a run directory"),
    ]:
        with pytest.raises(UserError, match=what) as refused:
            run(f"init_from={source}", override, run_dir="second")
        assert "\n" not in refused.value.problems[0]
        assert refused.value.problems[0].startswith(f"init_from={source}: ")
        with pytest.raises(UserError, match=what):
            plan(load([*RECALL, f"init_from={source}", override]))
        assert not Path("second").exists()


# --- descriptions ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_stop_before_an_evaluation_puts_it_off(in_tmp):
    """The signal comes in an iteration after which an evaluation is due: the resumed run begins with it."""
    choices = ["env=two_step_cue", *faulty(what="signal", period=70), "evaluation.every=50", "total_steps=400"]
    choices.append("evaluation.episodes=2")
    with pytest.raises(Stopped) as stopped:
        run(*choices, run_dir="cut")
    assert stopped.value.code == 75
    state = Checkpoints(Path("cut/checkpoints")).load()[1]
    assert state["owed"] and "eval/greedy/return_mean" not in without_time("cut")[-1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(signal, "raise_signal", lambda number: None)
        resume(Path("cut"), [])
        assert_same_end("cut", run(*choices, run_dir="whole"))


@pytest.mark.parametrize("name", fast_only(["SIGHUP"], ["SIGUSR1", "SIGHUP"]))
def test_other_signals_save_as_well(in_tmp, name):
    with pytest.raises(Stopped) as stopped:
        run("env=two_step_cue", *faulty(what="signal", period=70, signal_name=name), "evaluation.episodes=2")
    assert stopped.value.code == 75
    assert 0 < Checkpoints(Path("run/checkpoints")).load()[1]["step"] < 500


def test_a_second_signal_does_not_wait(in_tmp, monkeypatch):
    """It comes before the update is over that the first one waits for: nothing of it is saved."""
    monkeypatch.setattr("rlmem.core.command.SAME", 0.0)  # this environment sends both within milliseconds
    choices = ["env=two_step_cue", *faulty(what="signal", period=35), "evaluation.episodes=2"]
    with pytest.raises(Stopped):
        run(*choices, "algo.rollout_slots=80")
    assert not list(Path("run/checkpoints").glob("*"))
    assert "stopped; there is no checkpoint yet" in (Path("run") / "log.txt").read_text()


ROBOT = ["env=hopper", "env.num_envs=4", "env.workers=2", "total_steps=400", "checkpoint.every=100"]


@needs_bullet
def test_a_robots_worker_that_dies_ends_the_run_by_name(in_tmp, monkeypatch):
    def step(env: Any, actions: Any) -> Any:
        steps.append(actions)
        if len(steps) == 50:
            env._crew.members[1].process.kill()
        return original(env, actions)

    steps: list[Any] = []
    original = Robot.step
    monkeypatch.setattr(Robot, "step", step)
    with pytest.raises(Fault, match=r"step 1\d\d: worker 1 .* died with exit code -9 \(SIGKILL\); saved up to step 1"):
        run(*ROBOT)


def test_signals_at_once_are_one_request_and_a_later_one_stops_at_once(monkeypatch):
    """The kernel tells of a parent's end once for each of its threads; a person who insists takes longer."""

    class Loop:
        stop: BaseException | None = None

    loop = Loop()
    monkeypatch.setattr("rlmem.core.command.SAME", 60.0)
    with stopping_politely(loop):
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT):
            os.kill(os.getpid(), number)
        assert isinstance(loop.stop, Stopped) and loop.stop.signum == signal.SIGTERM
        monkeypatch.setattr("rlmem.core.command.SAME", 0.0)
        time.sleep(0.001)
        with pytest.raises(Stopped) as caught:
            signal.raise_signal(signal.SIGINT)
        assert caught.value.signum == signal.SIGINT
