"""IMPALA with actors on Ray: exactly the budget, whatever dies. (make test-cluster)"""

import os
import shlex
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import torch
from helpers import wait_for
from pages import commands, small

from rlmem.record.recorder import read_jsonl
from rlmem.run.stored import agent_state

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(3600)]

SMALL = [
    "algo=impala", "env=repeat_first", "env.max_episode_steps=15", "env.num_envs=4", "memory=gru",
    "memory.hidden_size=8", "encoder.hidden_size=8", "algo.head_sizes=[8]", "algo.rollout_slots=10",
    "evaluation.episodes=2", "evaluation.every=null", "checkpoint.every=null", "run_dir=run", "algo.actors=2",
]  # fmt: skip

PATIENCE = 900
"""Seconds that a run on Ray has for anything: on a busy machine Ray alone may take minutes to begin."""

ENVIRONMENT = """
import os
from gymnasium.vector import VectorEnv
from rlmem_envs import popgym

def made(num_envs: int, how: str, after: int) -> VectorEnv:
    env = popgym.make("RepeatFirst", "easy", num_envs)
    step, seen = env.step, iter(range(after))
    def failing(action):
        if next(seen, None) is None and os.getppid() != int(os.environ["STARTER"]):
            os._exit(9) if how == "die" else 1 / 0
        return step(action)
    env.step = failing
    return env
"""
"""An environment that dies or raises after so many steps, though not in the process that the test starts."""


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen]]:
    """Starts `rlmem train` in a group of processes of its own, which ends with the test."""
    jobs = []

    def begin(*choices: str, small: Sequence[str] = SMALL) -> subprocess.Popen:
        command = [sys.executable, "-m", "rlmem", "train", *small, *choices]
        env = os.environ | {"STARTER": str(os.getpid())}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        jobs.append(subprocess.Popen(command, env=env, text=True, start_new_session=True, **pipes))
        return jobs[-1]

    yield begin
    for job in jobs:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
            job.communicate()


def processes_of(pid: int) -> dict[int, str]:
    """The command line of every process below this one."""
    below, found = {pid}, {}
    table = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            table[int(folder.name)] = parent, (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
        except OSError:  # it has ended
            continue
    while new := {child for child, (parent, _) in table.items() if parent in below} - below:
        below |= new
        found |= {child: table[child][1] for child in new}
    return found


def actors_of(job: subprocess.Popen) -> list[int]:
    return [pid for pid, line in processes_of(job.pid).items() if line.startswith("ray::Worker")]


def updates_at(number: int):
    metrics = Path("run/metrics.jsonl")
    return lambda: metrics.exists() and len(metrics.read_text().splitlines()) >= number


def assert_nothing_remains(below: dict[int, str]) -> None:
    """The processes that were there have ended, and the files of their Ray are gone."""
    folders = {Path(word) for line in below.values() for word in line.replace("=", " ").split() if "/ray-" in word}
    assert folders
    wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in below))
    assert not [folder for folder in folders if folder.exists()]


def rows_of_updates() -> list[dict]:
    return [row for row in read_jsonl(Path("run/metrics.jsonl")) if "update" in row]


def test_a_run_takes_exactly_its_budget_though_an_actor_is_killed(in_tmp, start):
    job = start("total_steps=20001", "checkpoint.every=5000")
    wait_for(updates_at(3), job, PATIENCE)
    first, second = wait_for(lambda: len(found := actors_of(job)) == 2 and found, job, PATIENCE)
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: set(actors_of(job)) - {first, second}, job, PATIENCE)
    below = processes_of(job.pid)
    told, complaints = job.communicate(timeout=PATIENCE)
    assert job.returncode == 0, complaints
    rows = rows_of_updates()
    assert rows[-1]["step"] == sum(row["batch/transitions"] for row in rows) == 20001
    assert [row["update"] for row in rows] == list(range(1, len(rows) + 1))
    assert rows[0]["actors/restarts"] == 0 and rows[-1]["actors/restarts"] == 1
    (said,) = [line for line in told.splitlines() if " died (" in line]
    assert said.startswith("step ") and said.endswith("; its running episodes are dropped, and a new one begins")
    assert "2 processes on Ray; rollouts come in any order" in told
    assert {0, 1} <= {row["impala/lag"] for row in rows}
    assert all(("impala/ratio_max_dev" in row) == (row["impala/lag"] == 0) for row in rows)
    assert max(row.get("impala/ratio_max_dev", 0) for row in rows) <= 1e-5
    episodes = read_jsonl(Path("run/episodes.jsonl"))
    assert {episode["env"] for episode in episodes} == set(range(8))
    assert all(episode["length"] == 15 for episode in episodes), "none went on in another process"
    assert [episode["step"] for episode in episodes] == sorted(episode["step"] for episode in episodes)
    assert episodes[-1]["step"] <= 20001
    assert_nothing_remains(below)


def test_one_actor_has_no_lag_and_a_stopped_run_goes_on(in_tmp, start):
    job = start("total_steps=4003", "algo.actors=1")
    wait_for(updates_at(5), job, PATIENCE)
    below = processes_of(job.pid)
    os.killpg(job.pid, signal.SIGUSR1)  # as a scheduler does: every process of the job
    told, complaints = job.communicate(timeout=PATIENCE)
    assert job.returncode == 75, complaints
    assert "stopped; saved up to step" in told
    assert_nothing_remains(below)
    before = agent_state(Path("run"))
    assert 0 < before["step"] < 4003
    command = [sys.executable, "-m", "rlmem", "resume", "run"]
    subprocess.run(command, check=True, timeout=PATIENCE, stdout=subprocess.DEVNULL)
    rows = rows_of_updates()
    assert rows[-1]["step"] == sum(row["batch/transitions"] for row in rows) == 4003
    assert all(row["impala/lag"] == 0 and row["impala/ratio_max_dev"] <= 1e-5 for row in rows)
    observed = Counter(episode["return"] for episode in read_jsonl(Path("run/episodes.jsonl")))
    assert len(observed) > 3, "the process that came with the resumption draws other episodes"
    after = agent_state(Path("run"))
    assert not all(torch.equal(before["agent"][name], after["agent"][name]) for name in before["agent"])


@pytest.mark.parametrize("how", ["die", "raise"])
def test_actors_that_cannot_act_end_the_run_with_a_line(in_tmp, start, how):
    Path("failing.py").write_text(ENVIRONMENT)
    Path("conf/env").mkdir(parents=True)
    Path("conf/env/failing.yaml").write_text("_target_: failing.made\nnum_envs: 4\nafter: 7\nhow: die\n")
    settings = [setting for setting in SMALL if not setting.startswith("env.")]
    job = start("total_steps=4000", "hydra.searchpath=[file://conf]", "env=failing", f"env.how={how}", small=settings)
    told, complaints = job.communicate(timeout=PATIENCE)
    assert job.returncode == 1
    if how == "die":
        assert "Traceback" not in complaints
        assert "actors died 7 times, and no rollout came in between" in complaints
        assert told.count(" died (") == 6
    else:
        assert "ZeroDivisionError" in complaints
        assert " died (" not in told


@pytest.mark.parametrize("command", [line for line in commands("docs/clusters.md") if "algo.actors=" in line])
def test_the_command_of_the_guide_runs(in_tmp, command):
    subprocess.run([sys.executable, "-m", *shlex.split(small(command))], check=True, timeout=PATIENCE)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "auto"])
def test_a_cluster_that_is_not_there_is_a_mistake(in_tmp, start, address):
    job = start("total_steps=400", f"algo.ray_address={address}")
    _, complaints = job.communicate(timeout=PATIENCE)
    assert job.returncode == 2
    assert f"algo.ray_address={address}: no cluster answers (" in complaints
    assert len(complaints.splitlines()) == 1
