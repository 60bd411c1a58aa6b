"""Several jobs: how a launcher is chosen, how its jobs fail and go on. joblib, submitit, Ray: make test-cluster."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import helpers
import pytest
import torch
import yaml
from helpers import wait_for
from hydra.core.config_store import ConfigStore
from pages import blocks, commands, small, with_examples

from rlmem.commands.cli import main
from rlmem.config.catalog import catalog
from rlmem.config.compose import load
from rlmem.core.errors import UserError
from rlmem.jobs import multirun
from rlmem.record import rundir

TINY = [*helpers.TINY, "memory.hidden_size=8"]

GUIDE = "docs/clusters.md"
ELSEWHERE = [
    line
    for block in blocks(GUIDE)
    for line in re.sub(r"\\\n +", "", block.text).splitlines()
    if block.skipped and "launcher=" in line
]


def runs(folder: Path) -> dict[int, list[str]]:
    """The finished runs below a folder: the seed of each, and the lines of its log."""
    found = {}
    for path in folder.rglob("metrics.jsonl"):
        log = (path.parent / "log.txt").read_text().splitlines()
        if any(line.startswith("done: ") for line in log):
            found[yaml.safe_load((path.parent / "config.yaml").read_text())["seed"]] = log
    return found


def test_a_launcher_is_an_option_like_any_other_but_no_part_of_a_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert set(catalog()["launcher"]) == {"basic", "joblib", "ray", "slurm", "submitit_local"}
    assert main(["train", "launcher=slurm", "--help"]) == 0
    text = capsys.readouterr().out
    assert "launcher.timeout_min=240" in text
    assert "hydra." not in text.replace("${hydra.", "")
    assert main(["train", "-m", "seed=3", "launcher=basic", *TINY]) == 0
    (run,) = tmp_path.glob("runs/*/*/run.json")
    assert json.loads(run.read_text())["overrides"] == ["seed=3", *TINY]
    assert "launcher" not in (run.parent / "config.yaml").read_text()


def test_mistakes_of_the_launcher_and_of_the_jobs_come_together(capsys):
    assert main(["train", "-m", "launcher=basc", "memory=ffm,gur"]) == 2
    assert [line.split()[2] for line in capsys.readouterr().err.splitlines()] == ["launcher=basc:", "memory=gur:"]


@pytest.mark.parametrize(
    ("choice", "extra"),
    [("launcher=joblib", "cluster"), ("launcher=slurm", "cluster"), ("hydra/launcher=ray", "ray")],
)
def test_a_launcher_whose_package_is_missing_names_the_extra(choice, extra, monkeypatch, capsys):
    shipped = ConfigStore.instance().repo["hydra"]["launcher"]
    for name in multirun.EXTRAS:
        monkeypatch.delitem(shipped, f"{name}.yaml", raising=False)
    assert main(["train", "-m", "seed=0,1", choice]) == 2
    line = f"rlmem: error: {choice}: its package is not installed; e.g. pip install '.[{extra}]' in a clone of rlmem\n"
    assert capsys.readouterr().err == line


def test_the_launcher_is_left_out_of_the_jobs():
    lines = ["launcher=basic", "hydra.sweep.dir=here", "memory=ffm,gru"]
    assert multirun.jobs_of(lines) == [("memory=ffm",), ("memory=gru",)]
    keyed = multirun.jobs_of(["memory=ffm,gru", "memory.ffm.trace_size=16,32", "run_dir=runs/${memory}"])
    assert [job[-1] for job in keyed] == ["memory.trace_size=16", "memory.trace_size=32", "run_dir=runs/${memory}"]
    chosen = multirun.Launcher("basic", ("+launcher=basic", "hydra.sweep.dir=here"), "here", ".")
    assert multirun.choose(lines) == chosen


FRAGILE = """
from rlmem.memory.gru import GRU

class Fragile(GRU):
    def __init__(self, input_size: int, hidden_size: int = 8):
        super().__init__(input_size, hidden_size)

    def step(self, x, state, start):
        if self.output_size > 9:
            raise RuntimeError(f"width {self.output_size}")
        return super().step(x, state, start)
"""


@pytest.fixture
def fragile(tmp_path, monkeypatch) -> list[str]:
    """Arguments of four jobs of which two fail, with a class that only the current folder has."""
    (tmp_path / "fragile.py").write_text(FRAGILE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    sweep = ["train", "-m", "memory._target_=fragile.Fragile", "memory.hidden_size=8,10,9,11"]
    return [*sweep, *(line for line in TINY if not line.startswith("memory"))]


def failures(stderr: list[str]) -> list[str]:
    """The widths of the jobs named at the end."""
    lines = [line for line in stderr if line.startswith("rlmem: error: job failed: ")]
    assert all(line.split("RuntimeError: width ")[1] in line.split("RuntimeError")[0] for line in lines)
    return [line.rpartition(" ")[2] for line in lines]


@pytest.mark.slow
def test_every_failing_job_is_named_and_none_stops_the_others(fragile, tmp_path, capsys):
    assert main([*fragile, "hydra.sweeper.max_batch_size=3"]) == 1
    assert failures(capsys.readouterr().err.splitlines()) == ["10", "11"]
    assert len(list(tmp_path.glob("runs/*/*/checkpoints"))) == 2


@pytest.mark.slow
def test_the_same_command_goes_on_in_a_directory_of_its_own(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    subdir = "${hydra.runtime.choices.memory}-s${seed}-${hydra.job.override_dirname}"
    names = ["hydra.sweep.dir=study", f"hydra.sweep.subdir={subdir}", "launcher=basic"]
    assert main(["train", "-m", "seed=0", *names, *TINY]) == 0
    assert "resumed" not in capsys.readouterr().out
    assert main(["train", "-m", "seed=0,1", *names, *TINY]) == 0
    assert capsys.readouterr().out.count("resumed at step 128") == 1
    assert sorted(runs(tmp_path / "study")) == [0, 1]
    memory = load(TINY).choices["memory"]
    starts = [f"{memory}-s{seed}-" for seed in range(2)]
    assert [path.name[: len(starts[0])] for path in sorted(tmp_path.glob("study/*=*"))] == starts
    assert not list(tmp_path.glob("study/*launcher*"))


def test_a_job_for_another_machine_may_ask_for_what_this_one_lacks(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    jobs = [[*TINY, "device=cuda"], [*TINY, "device=cpu"]]
    assert [config.settings.device for config in multirun.check_jobs(jobs, elsewhere=True)] == ["cuda", "cpu"]
    with pytest.raises(UserError, match="no CUDA device is available here"):
        multirun.check_jobs(jobs)


def test_jobs_that_start_in_the_same_second_take_directories_of_their_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = load([])
    with ThreadPoolExecutor(8) as pool:
        taken = list(pool.map(lambda _: rundir.create(config), range(40)))
    assert len(set(taken)) == 40


def test_lines_of_jobs_side_by_side_are_labelled_and_no_terminal(tmp_path):
    with open(tmp_path / "out", "w") as file:
        out = multirun.Prefixed(file, "[3] ")
        print("one", "two\nthree", file=out, flush=True)
        assert not out.isatty()
    assert (tmp_path / "out").read_text() == "[3] one two\n[3] three\n"


SIDE_BY_SIDE = {
    "joblib": ["launcher=joblib", "launcher.n_jobs=2"],
    "joblib, as Hydra says it": ["hydra/launcher=joblib", "hydra.launcher.n_jobs=2"],
    "submitit_local": ["launcher=submitit_local"],
    "ray": ["launcher=ray", "launcher.ray.init.num_cpus=2"],
}
PATIENCE = 900
"""Seconds that a launcher has: Ray alone may take minutes to begin on a busy machine."""


def cluster(test: Callable) -> Callable:
    """A test of `make test-cluster`."""
    return pytest.mark.cluster(pytest.mark.timeout(3 * PATIENCE)(test))


each_launcher = pytest.mark.parametrize("launcher", SIDE_BY_SIDE)


class Started:
    """The installed command in a process of its own; its output lies in files."""

    def __init__(self, folder: Path, *arguments: str):
        self.out, self.err = folder / "stdout", folder / "stderr"
        command = [str(Path(sys.executable).parent / "rlmem"), *arguments]
        with open(self.out, "w") as out, open(self.err, "w") as err:
            self.process = subprocess.Popen(command, stdout=out, stderr=err)

    def end(self, code: int = 0) -> list[str]:
        """Wait for this exit code; the lines of stderr."""
        assert self.process.wait(PATIENCE) == code, self.out.read_text() + self.err.read_text()
        return self.err.read_text().splitlines()


@pytest.fixture
def rlmem(tmp_path, monkeypatch) -> Iterator[Callable[..., Started]]:
    """Start the command in the test's folder. At the end nothing that it started is left."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("STARTED_BY", str(tmp_path))
    yield lambda *arguments: Started(tmp_path, *arguments)
    wait_for(lambda: not list(processes(f"STARTED_BY={tmp_path}", "environ")), seconds=PATIENCE)


def processes(words: str, file: str = "cmdline") -> Iterator[int]:
    """The processes in whose command line, or environment, some words stand."""
    for path in Path("/proc").glob(f"[0-9]*/{file}"):
        with suppress(OSError):  # it has ended
            if words in path.read_bytes().replace(b"\0", b" ").decode(errors="replace"):
                yield int(path.parent.name)


@cluster
@each_launcher
def test_failing_jobs_are_named_by_every_launcher(launcher, rlmem, fragile, tmp_path):
    assert failures(rlmem(*fragile, *SIDE_BY_SIDE[launcher]).end(code=1)) == ["10", "11"]
    assert len(list(tmp_path.rglob("step_*.pt"))) == 2


LONG = [*(line for line in TINY if not line.startswith("total_steps")), "total_steps=6000", "checkpoint.every=500"]


def begun(folder: Path) -> list[str]:
    """The numbers of the jobs that have a checkpoint."""
    return [path.parent.parent.name.partition("-")[0] for path in folder.rglob("step_*.pt")]


@cluster
def test_a_job_that_submitit_puts_back_into_the_queue_goes_on(rlmem, tmp_path):
    """SIGUSR2 is what Slurm sends before the time limit."""
    started = rlmem("train", "-m", "seed=0,1", "launcher=submitit_local", *LONG)
    wait_for(lambda: begun(tmp_path), started.process, PATIENCE)
    os.kill(next(processes(f"submitit.core._submit {tmp_path}")), signal.SIGUSR2)
    started.end()
    logs = runs(tmp_path)
    assert sorted(logs) == [0, 1]
    assert sum(line.startswith("stopped; saved up to step") for log in logs.values() for line in log) == 1
    assert sum(line.startswith("resumed at step") for log in logs.values() for line in log) == 1


@cluster
def test_a_job_of_ray_whose_process_dies_goes_on_in_another(rlmem, tmp_path):
    started = rlmem("train", "-m", "seed=0,1", *SIDE_BY_SIDE["ray"], *LONG)
    wait_for(lambda: begun(tmp_path), started.process, PATIENCE)
    (pid,) = set(re.findall(rf"pid=(\d+)\)\S* \[{begun(tmp_path)[0]}\] rlmem", started.out.read_text()))
    os.kill(int(pid), signal.SIGKILL)
    started.end()
    logs = runs(tmp_path)
    assert sorted(logs) == [0, 1]
    assert any(line.startswith("resumed at step") for log in logs.values() for line in log)


@cluster
def test_a_launcher_that_gives_up_says_so_in_a_line(rlmem, tmp_path):
    started = rlmem("train", "-m", "seed=0", "launcher=submitit_local", *LONG)
    wait_for(lambda: begun(tmp_path), started.process, PATIENCE)
    os.kill(next(processes(f"submitit.core._submit {tmp_path}")), signal.SIGKILL)
    (line,) = started.end(code=1)
    assert line.startswith("rlmem: failed: submitit_local gave up (UncompletedJobError: ")


@cluster
@pytest.mark.parametrize("command", [line for line in commands(GUIDE) if "launcher=" in line])
def test_the_commands_of_the_guide_run(command, rlmem):
    rlmem(*shlex.split(small(command))[1:]).end()


@cluster
@pytest.mark.parametrize("command", ELSEWHERE)
def test_the_commands_of_the_guide_for_other_machines_are_accepted(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(with_examples(GUIDE, tmp_path))
    assert main([*shlex.split(small(command))[1:], "--dry-run"]) == 0
    if "launcher=lab" in command:
        found = multirun.choose(shlex.split(command)[3:])
        assert found.name == "submitit_slurm"
