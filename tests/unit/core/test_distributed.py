"""Several processes that train one run: the same update as one, the same run however started, and none left behind."""

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import yaml
from helpers import ROOT, wait_for, without_time
from parallel_update import CASES, PARTS, updated
from python_process import Python

from rlmem.commands.train import run
from rlmem.config.compose import load
from rlmem.core.errors import UserError
from rlmem.record.checkpoint import Checkpoints
from rlmem.record.recorder import read_jsonl
from rlmem.run.train import plan, resume

TWO = [
    "trainer.devices=2", "env=count_recall", "env.num_envs=4", "algo.num_minibatches=2", "algo.rollout_slots=32",
    "algo.epochs=1", "memory.hidden_size=16", "evaluation.episodes=4", "device=cpu",
]  # fmt: skip
RLMEM = [sys.executable, "-m", "rlmem"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "rlmem"]
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen]]:
    """Start a process, which does not outlive the test."""
    started = []

    def popen(*command: str) -> subprocess.Popen:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        started.append(Python(command, env=ONE_THREAD, **pipes))
        return started[-1]

    yield popen
    for process in started:
        process.kill()


@pytest.mark.slow
def test_an_update_of_two_processes_is_that_of_one_process_with_all_rows(tmp_path, start):
    script = str(ROOT / "tests/support/parallel_update.py")
    jobs = [start(sys.executable, script, str(tmp_path), str(rank)) for rank in (0, 1)]
    told = [job.communicate(timeout=280) for job in jobs]
    assert [job.returncode for job in jobs] == [0, 0], told
    first, second = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in (0, 1))
    for case in CASES | PARTS:
        assert all(torch.equal(first[case][0][name], second[case][0][name]) for name in first[case][0]), case
        assert first[case][1] == second[case][1], case
    for case in CASES:
        weights, metrics = updated(case)
        for name, weight in weights.items():
            torch.testing.assert_close(first[case][0][name], weight, rtol=0, atol=1e-10, msg=f"{case}: {name}")
        alike = (
            metrics.keys()
            - {"batch/pad_fraction", "ppo/feature_rank", "impala/feature_rank"}
            - ({"batch/rows"} if "nothing" in case else set())
        )
        alike -= {"batch/episodes"} if "nothing" in case else set()
        assert {n: first[case][1][n] for n in alike} == pytest.approx({n: metrics[n] for n in alike}, abs=1e-8), case


def wait_for_steps(run_dir: str, steps: int, job: subprocess.Popen) -> None:
    """Until a checkpoint of so many steps at least is there."""
    newest = lambda: max((int(p.stem[5:]) for p in Path(run_dir, "checkpoints").glob("step_*.pt")), default=0)  # noqa: E731
    wait_for(lambda: newest() >= steps, job)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="finds the second process in /proc")
def test_a_run_is_the_same_whoever_started_its_processes_and_whatever_interrupted_it(in_tmp, start):
    """One run goes through under torchrun. In the other a process dies, the resumed one is told to stop, and so on."""
    settings = [*TWO, "total_steps=2013", "evaluation.every=1000", "checkpoint.every=200"]
    whole = start(*TORCHRUN, "train", *settings, "run_dir=whole")
    cut = start(*RLMEM, "train", *settings, "run_dir=cut")
    wait_for_steps("cut", 200, cut)
    (second,) = Path(f"/proc/{cut.pid}/task/{cut.pid}/children").read_text().split()
    os.kill(int(second), signal.SIGKILL)
    said, told = cut.communicate(timeout=240)
    assert cut.returncode == 1
    assert said.count("2 processes, each with 2 of the environments") == 1
    assert "process 1 of 2" in told and "SIGKILL" in told and "rlmem resume cut" in told, told
    assert len(told.splitlines()) == 1, told

    stopped = start(*RLMEM, "resume", "cut")
    wait_for_steps("cut", 700, stopped)
    stopped.send_signal(signal.SIGTERM)
    assert stopped.wait(240) == 75
    assert whole.wait(240) == 0, whole.communicate()
    assert len(without_time("cut")) < len(without_time("whole"))
    resume(Path("cut"), [])

    rows, episodes = without_time("whole"), read_jsonl(Path("whole/episodes.jsonl"))
    assert without_time("cut") == rows
    assert read_jsonl(Path("cut/episodes.jsonl")) == episodes
    first, second = (Checkpoints(Path(run, "checkpoints")).load()[1]["agent"] for run in ("whole", "cut"))
    assert all(torch.equal(first[name], second[name]) for name in first)

    updates = [row for row in rows if "update" in row]
    assert rows[-1]["step"] == sum(row["batch/transitions"] for row in updates) == 2013
    assert updates[-1]["batch/transitions"] == 1  # nothing was left for the second process
    assert all(row["ppo/ratio_max_dev"] <= 1e-5 for row in updates)
    assert sum("eval/greedy/return_mean" in row for row in rows) == 3
    assert sum(row["train/episodes"] for row in updates) == len(episodes)
    assert {episode["env"] for episode in episodes} == {0, 1, 2, 3}
    assert [e["step"] for e in episodes] == sorted(e["step"] for e in episodes)
    played = [[e["return"] for e in episodes if e["env"] == env] for env in range(4)]
    assert all(a != b for a, b in itertools.combinations(played, 2))  # environments and actions of their own
    assert yaml.safe_load(Path("whole/config.yaml").read_text())["trainer"] == {"devices": 2}
    with pytest.raises(UserError, match=r"trainer\.devices"):
        resume(Path("whole"), ["trainer.devices=1"])


@pytest.mark.parametrize("devices", [1, 3])
def test_another_number_of_processes_than_torchrun_started_is_refused(monkeypatch, devices):
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UserError, match="one of 2 processes"):
        plan(load([f"trainer.devices={devices}", "env.num_envs=6"]))
    with pytest.raises(UserError, match="-m: torchrun"):
        run(["trainer.devices=2", "seed=0,1"], multirun=True)


@pytest.mark.slow
def test_a_process_that_waits_for_a_dead_one_in_vain_is_ended(start):
    """As NCCL would: the other process fails at once, since it is told to train nothing."""
    script = """
import threading, time
from rlmem.core.parallel import Crew, end_if_hanging
threading.Thread(target=end_if_hanging, args=(Crew(None, 2, 1), threading.Event(), 0.1)).start()
time.sleep(100)
"""
    job = start(sys.executable, "-c", script)
    _, told = job.communicate(timeout=240)
    assert job.returncode == 1
    assert "process 1 of 2" in told.splitlines()[-1]
