"""Sweeps: what the jobs are, whose they are, and that none is lost or done twice whatever is killed."""

import io
import json
import os
import platform
import shlex
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex

import pytest
import torch
from helpers import ROOT, TINY, wait_for, without_time
from pages import commands, with_examples
from python_process import Python
from rich.console import Console

from rlmem.commands.cli import main
from rlmem.config.compose import load
from rlmem.config.overrides import assignment
from rlmem.core import processes
from rlmem.core.errors import UserError
from rlmem.jobs import pool
from rlmem.jobs.manifest import Job, Manifest
from rlmem.jobs.pool import Options, Pool, reason_of_failure
from rlmem.jobs.run import config_hash
from rlmem.jobs.search import propose, study
from rlmem.jobs.spec import SweepSpec, axes, expand, label, probes, specify
from rlmem.jobs.status import View, log_file, rows, tail
from rlmem.record import rundir
from rlmem.record.recorder import read_jsonl

ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "envs")])}


# What the jobs are


def jobs_of(*overrides: str, pairs: Sequence[str] = (), file: Path | None = None) -> list[tuple[str, ...]]:
    return expand(axes(specify(file, overrides, pairs, None)))


def test_a_key_of_one_option_is_for_the_jobs_with_that_option():
    jobs = jobs_of("memory=ffm,gru", "memory.ffm.trace_size=16,32", "memory.gru.hidden_size=8", "seed=0,1")
    assert jobs == [
        ("memory=ffm", "seed=0", "memory.trace_size=16"),
        ("memory=ffm", "seed=0", "memory.trace_size=32"),
        ("memory=ffm", "seed=1", "memory.trace_size=16"),
        ("memory=ffm", "seed=1", "memory.trace_size=32"),
        ("memory=gru", "seed=0", "memory.hidden_size=8"),
        ("memory=gru", "seed=1", "memory.hidden_size=8"),
    ]
    assert jobs_of("memory.ffm.trace_size=16,32") == [("memory.trace_size=16",), ("memory.trace_size=32",)]
    assert jobs_of("logger.wandb.mode=offline") == [("logger.wandb.mode=offline",)]  # a group of several options


def test_pairs_go_together():
    assert jobs_of("seed=0,1", pairs=["env=a,b algo.gamma=0.9,0.99"]) == [
        ("seed=0", "env=a", "algo.gamma=0.9"),
        ("seed=0", "env=b", "algo.gamma=0.99"),
        ("seed=1", "env=a", "algo.gamma=0.9"),
        ("seed=1", "env=b", "algo.gamma=0.99"),
    ]
    together = "memory.ffm.trace_size=16,32 memory.ffm.hidden_size=8,4"
    assert len(jobs_of("memory=ffm,gru", pairs=[together])) == 2 + 1


def test_a_file_is_another_way_to_write_a_command():
    file = ROOT / "tests/data/sweep.yaml"
    grid = ["memory=ffm,gru", "memory.ffm.trace_size=16,32", "seed=range(0,2)", "env.params={k: 1},{k: 2}"]
    pair = "algo.lr=1e-3,1e-4 algo.gamma=0.9,0.99"
    assert jobs_of(file=file) == jobs_of("env=repeat_first", "total_steps=1e5", *grid, pairs=[pair])
    assert len(jobs_of(file=file)) == 3 * 2 * 2 * 2
    fewer = jobs_of("seed=7", "total_steps=64", file=file)
    assert len(fewer) == 3 * 2 * 2
    assert all({"seed=7", "total_steps=64"} < set(job) and "total_steps=1e5" not in job for job in fewer)


def test_a_text_stays_one_value():
    texts = ["a/b-c.d", "x,y", "it's", "a=b c", "null me", ""]
    assert [load([assignment("run_dir", text)]).values["run_dir"] for text in texts] == texts
    assert assignment("algo.lr", "1e-3") == "algo.lr=1e-3"


def test_names_say_what_varies():
    lines = ["memory=ffm,gru", "memory.ffm.trace_size=16,32", "seed=0,1", "env=parity", "algo.lr=0.00012345678,1e-3"]
    found = axes(specify(None, lines, (), None))
    assert [label(job, found) for job in expand(found)][::3] == [
        "ffm-seed0-lr0.000123-trace_size16",
        "ffm-seed0-lr0.001-trace_size32",
        "ffm-seed1-lr0.001-trace_size16",
        "gru-seed0-lr0.001",
    ]


def test_a_search_tries_every_value_once_before_it_starts():
    lines = ["memory=ffm,gru", "algo.lr=interval(1e-5,1e-2)", "memory.ffm.trace_size=1,2"]
    assert probes(axes(specify(None, lines, (), "maximize"))) == [
        ("memory=ffm", "algo.lr=1e-05", "memory.trace_size=1"),
        ("memory=ffm", "algo.lr=1e-05", "memory.trace_size=2"),
        ("memory=gru", "algo.lr=1e-05"),
        ("memory=ffm", "algo.lr=0.01", "memory.trace_size=1"),
        ("memory=ffm", "algo.lr=0.01", "memory.trace_size=2"),
    ]


def test_a_dry_run_lists_the_jobs_and_leaves_out_repetitions(in_tmp, capsys):
    assert main(["sweep", "--dry-run", "memory=mlp,gru", *TINY[:7], "total_steps=128,1.28e2"]) == 0
    *jobs, repeated, last = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in jobs] == [["001", "memory=mlp"], ["002", "memory=gru"]]
    assert repeated.startswith("2 jobs repeat others and are left out, such as memory=mlp ")
    assert last.startswith("2 jobs in sweeps/memory-total_steps-")
    assert list(in_tmp.iterdir()) == []


def test_equal_runs_have_equal_hashes():
    same = [["memory=gru", "seed=1"], ["seed=1", "memory=gru", "run_dir=x"], ["memory=gru", "seed=1", "on_exists=new"]]
    assert len({config_hash(load(lines)) for lines in same}) == 1
    assert config_hash(load(["memory=gru", "seed=2"])) != config_hash(load(same[0]))


@pytest.mark.parametrize(
    ("lines", "hashed"),
    [
        ("memory=gru env=repeat_first", "4b7efcdb944e"),
        ("memory=s5 algo=pqn", "e6d8fa7d257f"),
        ("memory=gru batching=segment", "65fd435048a4"),
        ("algo=classify env=temporal_order memory=lstm", "1af75d1680f4"),
    ],
)
def test_stored_jobs_are_known_after_their_classes_moved(lines, hashed):
    """The hashes are those of commit 72d28dda, in which other modules held these classes."""
    assert config_hash(load(lines.split())) == hashed


# Whose they are


def manifest(folder: Path, seeds: int) -> Manifest:
    """A sweep over so many seeds, of which nothing has been checked."""
    made = Manifest(folder)
    new = [Job(f"seed{seed}", (f"seed={seed}",), f"hash{seed}", 1, 128) for seed in range(seeds)]
    made.submit(SweepSpec((f"seed=range(0,{seeds})",)), new)
    return made


def claimed(made: Manifest, owner: str, busy: Sequence[str] = ()) -> Job | None:
    return made.claim(owner, lambda name: name in busy)


def test_jobs_can_be_added_but_not_taken_away(tmp_path):
    manifest(tmp_path, 2)
    more = manifest(tmp_path, 3)
    assert [job.name for job in more.jobs()] == ["001-seed0", "002-seed1", "003-seed2"]
    with pytest.raises(UserError, match="holds 1 jobs that are not asked for now, such as seed=2; jobs can be added"):
        manifest(tmp_path, 2)
    with pytest.raises(UserError, match=r"holds another sweep \(seed=range\(0,3\)\)"):
        more.submit(SweepSpec(("seed=1",), (), "maximize"), [])
    assert more.specification() == SweepSpec(("seed=range(0,3)",))


WORKER = """
import sys
from pathlib import Path
from secrets import token_hex
from rlmem.jobs.manifest import Manifest
made, me = Manifest(Path.cwd()), token_hex(8)
with made.working(me):
    while (job := made.claim(me, lambda name: False)) is not None:
        print(job.number)
        made.finish(job, float(job.number))
"""


def test_no_two_processes_claim_the_same_job(in_tmp):
    made = manifest(in_tmp, 40)
    start = [sys.executable, "-c", WORKER]
    workers = [Python(start, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    taken = Counter(int(line) for worker in workers for line in worker.communicate(timeout=240)[0].split())
    assert taken == dict.fromkeys(range(1, 41), 1)
    assert [(job.state, job.attempts, job.result) for job in made.jobs()] == [("done", 1, n) for n in range(1, 41)]


DIES = """
import os, signal
from pathlib import Path
from secrets import token_hex
from rlmem.jobs.manifest import Manifest
made, me = Manifest(Path.cwd()), token_hex(8)
with made.working(me):
    made.claim(me, lambda name: False)
    print(me, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_jobs_of_a_dead_process_are_taken_over_and_no_others(in_tmp):
    made, me = manifest(in_tmp, 2), token_hex(8)
    with made.working(me):
        mine = claimed(made, me)
        dead = Python([sys.executable, "-c", DIES], env=ENVIRONMENT, stdout=subprocess.PIPE, text=True)
        start = dead.communicate(timeout=240)[0].strip()
        assert (in_tmp / f".{start}.lock").exists() and made.jobs()[1].start == start
        assert [row.state for row in rows(made)] == ["running", "interrupted"]
        assert claimed(made, me, busy=["002-seed1"]) is None  # its last process still saves
        taken = claimed(made, me)
        assert (taken.name, taken.attempts, taken.pid) == ("002-seed1", 2, os.getpid())
        assert claimed(made, me) is None
        made.finish(mine, 0.5)
        assert [job.state for job in made.jobs()] == ["done", "running"]
    assert made.state(made.jobs()[1]) == "interrupted"


def test_what_a_process_says_of_a_job_that_it_has_lost_does_not_count(tmp_path):
    made, me = manifest(tmp_path, 1), token_hex(8)
    theirs, mine = claimed(made, token_hex(8)), claimed(made, me)
    made.finish(theirs, 1.0)
    made.fail(theirs, 1, "late", retries=0)
    assert [(job.state, job.host) for job in made.jobs()] == [("running", platform.node())]
    made.finish(mine, 2.0)
    assert [(job.state, job.result) for job in made.jobs()] == [("done", 2.0)]


@pytest.mark.parametrize("start", ["../0123456789abcde", "5f3a-boot 4711", None])
def test_the_name_of_a_lock_leads_nowhere(tmp_path, start):
    made = manifest(tmp_path, 1)
    assert claimed(made, start) and made.state(made.jobs()[0]) == "interrupted"


def test_a_failed_job_is_tried_again_after_the_others_so_many_times(tmp_path):
    made, me = manifest(tmp_path, 2), token_hex(8)
    assert not made.fail(claimed(made, me), 1, "boom", retries=1)
    assert claimed(made, me).name == "002-seed1"
    assert made.fail(claimed(made, me), 1, "boom", retries=1)
    made.reopen(retries=1, afresh=False)
    assert claimed(made, me) is None
    made.reopen(retries=2, afresh=False)
    assert made.fail(claimed(made, me), 1, "boom", retries=2)
    made.reopen(retries=0, afresh=True)
    stopped = claimed(made, me)
    made.release(stopped)
    assert (stopped.failures, made.jobs()[0].state, made.jobs()[0].attempts) == (0, "waiting", 4)


def test_a_run_directory_is_locked_while_someone_trains_in_it(tmp_path):
    assert not rundir.is_locked(tmp_path / "none")
    with rundir.lock(tmp_path):
        assert rundir.is_locked(tmp_path)
    assert not rundir.is_locked(tmp_path)


# How they are run


def a_job(**changes) -> Job:
    row = dict.fromkeys(Job.__dataclass_fields__) | {"number": 1, "name": "001-a", "overrides": ("seed=1",)}
    return Job(**row | {"threads": 2, "state": "running", "attempts": 1, "failures": 0} | changes)


@pytest.mark.parametrize(
    ("code", "text", "why"),
    [
        (1, "=== attempt 1\nTraceback:\n  line 3\nRuntimeError: boom\n\n", "RuntimeError: boom"),
        (2, "rlmem: error: a: b\n/lib/x.py: UserWarning: leaked\n", "a: b"),
        (1, "rlmem: failed: step 3: the disk is full\n", "step 3: the disk is full"),
        (1, "=== attempt 1\n", "(it wrote nothing)"),
        (-9, "step 3\n", "killed by SIGKILL, perhaps for want of memory"),
        (-11, "step 3\n", "killed by SIGSEGV"),
    ],
)
def test_why_a_job_failed_is_one_line(code, text, why, tmp_path):
    (tmp_path / "log.txt").write_text(text)
    assert reason_of_failure(code, tmp_path / "log.txt") == why


def test_the_table_says_where_every_job_is(tmp_path, capsys):
    made, me = manifest(tmp_path, 4), token_hex(8)
    made.finish(claimed(made, me), 0.25)
    made.fail(claimed(made, me), 1, "RuntimeError: boom", retries=0)
    assert claimed(made, me).name == "003-seed2"
    (tmp_path / "003-seed2").mkdir()
    written = ['{"step": 64, "train/return_last_100": 0.5}', '{"step": 96, "update": 2}', '{"step": 1']
    (tmp_path / "003-seed2" / "metrics.jsonl").write_text("\n".join(written))
    assert main(["sweep", "status", str(tmp_path)]) == 0
    _, *lines, last = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines] == [
        ["001-seed0", "done", "128/128", "0.250", platform.node(), "1"],
        ["002-seed1", "failed", "0/128", platform.node(), "1", "RuntimeError:", "boom"],
        ["003-seed2", "interrupted", "96/128", "0.500", platform.node(), "1"],
        ["004-seed3", "waiting", "0/128"],
    ]
    assert last == "4 jobs: 1 waiting, 1 interrupted, 1 done, 1 failed"


def test_a_terminal_shows_the_jobs_that_run(tmp_path):
    made, out, me = manifest(tmp_path, 2), io.StringIO(), token_hex(8)
    view = View(Console(file=out, force_terminal=True, width=100), made)
    with made.working(me), view.live:
        claimed(made, me)
        view.refresh()
        view.say("a [line]")
    text = out.getvalue()
    assert "a [line]" in text
    assert "001-seed0" in text
    assert "002-seed1" not in text


MEMORIES = """
import os, signal, time
from pathlib import Path
import torch
from torch import nn
from rlmem.memory import RecurrentCell

class Fine(RecurrentCell):
    calls = 0

    def __init__(self, input_size: int):
        super().__init__()
        self.input_size, self.output_size = input_size, 5
        self.W = nn.Linear(input_size, 5)

    def initial_state(self, batch_size):
        return self._like_parameters().new_zeros(batch_size, 5)

    def cell(self, x, h):
        Fine.calls += 1
        self.meet_fate()
        h = 0.9 * h + torch.tanh(self.W(x))
        return h, h

    def meet_fate(self):
        pass

class Slow(Fine):
    def meet_fate(self):
        time.sleep(0.002)

class Raises(Fine):
    def meet_fate(self):
        if Fine.calls > 300:
            raise RuntimeError("boom")

class Killed(Fine):
    def meet_fate(self):
        if Fine.calls > 300 and not Path("killed").exists():
            Path("killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def memories(in_tmp, monkeypatch) -> Path:
    """A folder with memories to which things happen; Python finds them."""
    (in_tmp / "fateful.py").write_text(MEMORIES)
    monkeypatch.syspath_prepend(in_tmp)
    return in_tmp


@contextmanager
def sweeping(*arguments: str, said: str = "said.txt") -> Iterator[subprocess.Popen[bytes]]:
    """`rlmem sweep` in a process of its own; killed at the end, if it is still there."""
    with open(said, "ab") as out:
        process = Python(
            [sys.executable, "-m", "rlmem", "sweep", *arguments],
            env=ENVIRONMENT,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def learns(run_dir: Path) -> bool:
    """Whether a run has written its first row."""
    return bool(tail(run_dir / "metrics.jsonl"))


@pytest.mark.timeout(900)
@pytest.mark.parametrize("jobs", [5, 12])
@pytest.mark.slow
def test_a_sweep_survives_being_killed_twice(memories, jobs):
    """One job raises, one is killed once, one finds its directory half written, two are cut short."""
    fates = ["Slow", "Slow", "Raises", "Killed", *["Fine"] * (jobs - 4)]
    lines = ["  - memory._target_: [" + ", ".join(f"fateful.{fate}" for fate in fates) + "]"]
    lines += [f"    seed: {list(range(jobs))}", f"overrides: {[*TINY, 'total_steps=384', 'checkpoint.every=128']}"]
    Path("several.yaml").write_text("\n".join(["pairs:", *lines]))
    folder = Path("sweeps/several")
    half = folder / "005-Fine-seed4"
    half.mkdir(parents=True)
    (half / "config.yaml").write_text("total_steps: 10")
    (half / "metrics.jsonl").write_text('{"step": 12')

    with sweeping("several.yaml", "--jobs", "2") as first:
        wait_for(lambda: learns(folder / "001-Slow-seed0"))
        first.kill()
    made = Manifest(folder)
    done = lambda: [job.name for job in made.jobs() if job.state == "done"]  # noqa: E731
    assert done() == []
    with sweeping("several.yaml", "--jobs", "2") as second:
        noted = lambda: any(job.failures for job in made.jobs() if job.name == "004-Killed-seed3")  # noqa: E731
        wait_for(lambda: noted() and len(done()) >= 2)
        second.kill()
    with (
        sweeping(str(folder), "--jobs", "1", said="a.txt") as a,
        sweeping(str(folder), "--jobs", "1", said="b.txt") as b,
    ):
        assert (a.wait(600), b.wait(600)) == (1, 1)

    found = {job.name: job for job in made.jobs()}
    failed = found.pop("003-Raises-seed2")
    assert (failed.state, failed.failures, failed.exit_code, failed.error) == ("failed", 2, 1, "RuntimeError: boom")
    for said in ("a.txt", "b.txt"):
        named, counted = Path(said).read_text().splitlines()[-2:]
        assert f"{failed.name} failed (exit code 1, attempt {failed.attempts}): RuntimeError: boom; see " in named
        assert counted.startswith(f"rlmem: error: 1 of {jobs} jobs failed; again ")
    assert half.with_name(f"{half.name}.damaged").is_dir()
    for name, job in found.items():
        assert (job.state, job.failures) == ("done", name == "004-Killed-seed3")
        log, about = log_file(folder, name).read_text(), json.loads((folder / name / "run.json").read_text())
        assert log.count("=== attempt ") == job.attempts and "another process" not in log
        assert 1 + len(about.get("resumed", [])) <= job.attempts
        assert job.result == read_jsonl(folder / name / "metrics.jsonl")[-1]["eval/greedy/return_mean"]
    resumed = [name for name in found if "resumed" in json.loads((folder / name / "run.json").read_text())]
    assert {"001-Slow-seed0", "004-Killed-seed3"} <= set(resumed)
    for name in {*resumed, half.name}:
        assert main(["train", *found[name].overrides, f"run_dir=twins/{name}"]) == 0
        assert without_time(folder / name) == without_time(Path("twins") / name)


def test_gpus_and_threads_are_shared_out(tmp_path, monkeypatch):
    """As the pool starts the jobs, whether or not this machine has GPUs."""
    manifest, starts = Manifest(tmp_path), []
    jobs = [Job(f"s{n}", (f"seed={n}",), f"{n}", threads, 10) for n, threads in enumerate((2, 1))]
    manifest.submit(SweepSpec(("seed=0,1",)), jobs)
    pool = Pool(manifest, View(Console(file=io.StringIO()), manifest), Options(gpus=("5", "6")), places=2)
    monkeypatch.setattr(processes, "start", lambda target, arguments, log, **how: starts.append((arguments, how)))
    pool._fill()
    for number, (arguments, how) in enumerate(starts):
        assert arguments[1:] == [f"seed={number}", f"run_dir={tmp_path}/00{number + 1}-s{number}", "on_exists=resume"]
        assert how["fresh"] == (number == 0)
        assert how["variables"]["OMP_NUM_THREADS"] == ("2", "1")[number]
        assert how["variables"]["CUDA_VISIBLE_DEVICES"] == ("5", "6")[number]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there are GPUs here")
def test_gpus_that_are_not_there_are_refused_before_anything_is_written(in_tmp, capsys):
    assert main(["sweep", "seed=0,1", *TINY, "--gpus", "0", "--dir", "mine"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("rlmem: error: --gpus 0: no CUDA device is available here")
    assert not list(in_tmp.iterdir())


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_ctrl_c_lets_the_jobs_save(memories):
    lines = ["memory._target_=fateful.Slow", *TINY, "total_steps=100000"]
    arguments = ["seed=0,1,2", *lines, "--dir", "mine", "--jobs", "2"]
    with sweeping(*arguments) as process:
        wait_for(lambda: learns(Path("mine/001-seed0")) and learns(Path("mine/002-seed1")))
        process.send_signal(signal.SIGINT)
        assert process.wait(240) == 130
    jobs = ["mine/001-seed0", "mine/002-seed1"]
    assert sorted(map(str, Path("mine").glob("0*"))) == jobs
    made = Manifest(Path("mine"))
    assert [(job.state, job.attempts, job.failures) for job in made.jobs()] == [("waiting", n, 0) for n in (1, 1, 0)]
    assert all(list(Path(name).glob("checkpoints/step_*.pt")) for name in jobs)
    assert "3 waiting; go on with    rlmem sweep mine" in Path("said.txt").read_text()


# A search


def test_proposals_follow_from_the_jobs_so_far_and_repeat_nothing():
    def trial(jobs: Sequence[Job], result: float | None) -> Job | None:
        number, proposal = len(jobs), propose(found, jobs, spec)
        state = "running" if result is None else "done"
        changes = {"number": number, "name": str(number), "state": state, "result": result}
        return proposal and a_job(overrides=proposal[0], params=proposal[1], **changes)

    lines = ["algo.lr=tag(log, interval(1e-5,1e-2))", "memory=ffm,gru", "memory.ffm.trace_size=range(16,49,16)"]
    spec = specify(None, lines, (), "maximize")
    found, jobs = axes(spec), []
    for number in range(12):
        jobs.append(trial(jobs, None if number % 4 == 3 else number / 10))
    assert [trial(jobs[:number], job.result) for number, job in enumerate(jobs)] == jobs
    values = [dict(line.split("=") for line in job.overrides) for job in jobs]
    assert all(1e-5 <= float(value["algo.lr"]) <= 1e-2 for value in values)
    assert {value["memory.trace_size"] for value in values if value["memory"] == "ffm"} <= {"16", "32", "48"}
    assert not any("memory.trace_size" in value for value in values if value["memory"] == "gru")

    spec = specify(None, ["memory=ffm,gru", "seed=range(0,2)"], (), "minimize")
    found, jobs = axes(spec), []
    while (job := trial(jobs, 1.0)) is not None:
        jobs.append(job)
    assert len({job.overrides for job in jobs}) == len(jobs) == 4


def test_a_search_finds_what_runs_return_and_can_be_made_longer(in_tmp, capsys):
    lines = ["memory=mlp", *TINY, "algo.lr=tag(log, interval(1e-5,1e-2))"]
    assert main(["sweep", "--trials", "1", "--dir", "mine", *lines]) == 0
    assert main(["sweep", "mine", "--trials", "2"]) == 0
    found = study(Path("mine"))
    returns = {job.name: job.result for job in Manifest(Path("mine")).jobs()}
    assert {t.user_attrs["name"]: t.value for t in found.trials} == returns
    last = [read_jsonl(Path("mine") / name / "metrics.jsonl")[-1]["eval/greedy/return_mean"] for name in returns]
    assert [*returns.values()] == last
    best = found.best_trial
    assert f"best: return {best.value:.3f} in mine/{best.user_attrs['name']}: " in capsys.readouterr().out
    assert main(["sweep", "mine", "--trials", "2"]) == 0
    assert len(Manifest(Path("mine")).jobs()) == 2


def test_a_search_without_optuna_names_the_extra(in_tmp, monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "rlmem.jobs.search")
    monkeypatch.delattr("rlmem.jobs.search")
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert main(["sweep", "--trials", "2", "algo.lr=interval(1e-5,1e-2)"]) == 2
    assert "pip install '.[sweep]' in a clone of rlmem" in capsys.readouterr().err
    assert list(in_tmp.iterdir()) == []


# The guide


@pytest.mark.slow
def test_the_commands_of_the_guide_run(in_tmp):
    """What would train is composed and checked. The sweep of the file finds its jobs done."""
    with_examples("docs/sweeps.md", in_tmp)
    spec, folder = specify(Path("my_sweep.yaml"), [], [], None), Path("sweeps/my_sweep")
    folder.mkdir(parents=True)
    made = Manifest(folder)
    assert made.submit(spec, [Job("", lines, str(lines), 1, 1) for lines in expand(axes(spec))]) == 18
    while (job := claimed(made, token_hex(8))) is not None:
        made.finish(job, 1.0)
    for line in commands("docs/sweeps.md"):
        arguments = shlex.split(line, comments=True)[2:]
        done = arguments == ["my_sweep.yaml"] or str(folder) in arguments
        assert main(["sweep", *arguments, *([] if done else ["--dry-run"])]) == 0, line


@pytest.mark.parametrize(("per_gpu", "code"), [(1, 0), (4, 0), (4, 1)])
def test_jobs_on_one_gpu_share_it_by_a_daemon_that_ends_with_them(per_gpu, code, tmp_path, monkeypatch):
    """If the daemon cannot start, the sweep runs without it."""
    program, calls = tmp_path / pool.MPS, tmp_path / "calls"
    start = f'if [ "$1" = -d ]; then echo start $CUDA_MPS_PIPE_DIRECTORY; exit {code}; fi'
    program.write_text(f"#!/bin/sh\n{start} >> {calls}\ncat >> {calls}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv(pool.PIPES, raising=False)
    said, starts = [], per_gpu > 1
    with pool.shared_gpus(per_gpu, said.append):
        assert (pool.PIPES in os.environ) == (starts and code == 0)
    assert pool.PIPES not in os.environ
    called = calls.read_text().split() if calls.exists() else []
    assert called[:1] == (["start"] if starts else [])
    assert called[2:] == (["quit"] if starts and code == 0 else [])
    assert [("take turns" in line) for line in said] == ([code == 1] if starts else [])
