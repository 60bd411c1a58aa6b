"""How a command ends that has lost its terminal or its reader, or that a signal reaches at any moment of its life."""

import errno
import io
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from helpers import assert_same_end, fast_only, wait_for
from python_process import Python, run_python
from rich.console import Console
from small_runs import AGENT, CUE_DQN

from rlmem.commands.cli import main
from rlmem.config.compose import load
from rlmem.core.command import OutputStream, Requests, Stopped, Unread, stopping_politely, taken_over
from rlmem.record.checkpoint import Checkpoints
from rlmem.record.recorder import Progress
from rlmem.run.train import train

RUN = ["train", "env=two_step_cue", *AGENT, "memory=mlp", "evaluation.every=250", "checkpoint.every=null"]
LONG = [*RUN, "total_steps=100000", "evaluation.every=null", "run_dir=run", "on_exists=resume"]
STORM = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, or needs /dev/full")


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "rlmem", *arguments]


@contextmanager
def started(*arguments: str, **how: Any) -> Iterator[subprocess.Popen[bytes]]:
    how = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | how
    with subprocess.Popen(command(*arguments), **how) as process:
        try:
            yield process
        finally:
            process.kill()


def trains(run_dir: str = "run") -> bool:
    metrics = Path(run_dir) / "metrics.jsonl"
    return metrics.exists() and metrics.stat().st_size > 0


def catches(process: subprocess.Popen[bytes], signum: int) -> bool:
    """Whether it has a handler for a signal."""
    (mask,) = re.findall(r"SigCgt:\s*(\w+)", Path(f"/proc/{process.pid}/status").read_text())
    return bool(int(mask, 16) >> (signum - 1) & 1)


# --- a terminal that is lost -----------------------------------------------------------------------------------------


@linux
@pytest.mark.slow
def test_a_run_whose_terminal_is_lost_saves_and_can_go_on(in_tmp):
    """The session of a real terminal: it gets SIGHUP when that closes, and cannot write to it any more."""
    master, slave = os.openpty()
    controlling = "import fcntl, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    controlling += "from rlmem.commands.cli import main; sys.exit(main())"
    process = Python(
        [sys.executable, "-c", controlling, *LONG],
        stdin=slave, stdout=slave, stderr=slave,
    )  # fmt: skip
    os.close(slave)
    try:
        wait_for(trains, process)
        os.close(master)
        assert process.wait(240) == 75
    finally:
        process.kill()
    saved = Checkpoints(Path("run/checkpoints")).load()[1]["step"]
    assert saved > 0
    assert f"stopped; saved up to step {saved}" in (Path("run") / "log.txt").read_text()


def test_a_signal_is_heard_though_nobody_can_be_told(capfd):
    class Loop:
        stop: BaseException | None = None

    loop, kept = Loop(), os.dup(2)
    reader, writer = os.pipe()
    os.close(reader)
    try:
        os.dup2(writer, 2)
        with stopping_politely(loop):
            signal.raise_signal(signal.SIGHUP)
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(writer)
    assert isinstance(loop.stop, Stopped) and loop.stop.code == 75


# --- output that nobody takes ----------------------------------------------------------------------------------------


def without(*numbers: int) -> Callable[[], None]:
    """For a process that begins with these of its standard streams closed."""
    return lambda: [os.close(number) for number in numbers] and None


@pytest.fixture
def gone() -> Iterator[int]:
    """A pipe whose reader has left."""
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


@pytest.fixture
def full() -> Iterator[io.FileIO]:
    with io.FileIO("/dev/full", "w") as file:
        yield file


def assert_whole(run_dir: str) -> None:
    log = (Path(run_dir) / "log.txt").read_text()
    assert log.startswith("rlmem 0.") and "evaluation at 5" in log and "done: 500 steps" in log
    assert not [path for path in Path(run_dir).glob("*.jsonl") for line in open(path) if not json.loads(line)]


@pytest.mark.slow
@linux
@pytest.mark.parametrize(
    ("stdout", "stderr", "closed"),
    [
        ("gone", None, [2]),
        pytest.param("full", "full", [], marks=pytest.mark.slow),
        pytest.param(None, None, [1], marks=pytest.mark.slow),
        pytest.param(None, None, [0, 1, 2], marks=pytest.mark.slow),
    ],
)
def test_training_goes_on_without_its_output(in_tmp, request, stdout, stderr, closed):
    """A file that took the number of a closed stream would have the notices of signals, and C's prints, in it."""
    streams = {"stdout": stdout, "stderr": stderr}
    given = {name: request.getfixturevalue(value) for name, value in streams.items() if value}
    with started(*RUN, "run_dir=run", preexec_fn=without(*closed), **given) as process:
        assert process.communicate(timeout=240)[1] in (b"", None)
        assert process.returncode == 0
    assert_whole("run")


@linux
@pytest.mark.parametrize("line", fast_only(["list"], ["--version", "list", "train --help", "config --json"]))
def test_a_result_that_cannot_be_printed_is_a_fault_but_a_reader_may_leave(line, full, gone):
    def ended(**how: Any) -> tuple[int, str]:
        how = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | how
        done = subprocess.run(command(*line.split()), timeout=240, **how)
        return done.returncode, (done.stderr or b"").decode()

    assert ended(stdout=full) == (1, "rlmem: failed: the output cannot be written (No space left on device)\n")
    assert ended(stdout=full, stderr=full) == (1, "")
    assert ended(stdout=gone) == (0, "")
    assert ended(preexec_fn=without(1)) == (0, "")
    assert ended(preexec_fn=without(0, 1, 2)) == (0, "")
    assert ended(stderr=full)[0] == 0


@linux
def test_a_mistake_is_one_though_it_cannot_be_said(full, gone):
    for stream in (full, gone):
        done = subprocess.run(command("list", "nonsense"), stdout=stream, stderr=stream, timeout=240)
        assert done.returncode == 2


@linux
@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["eval", "run", "--episodes", "2"], ["report", "run", "--out", "r.html"]])
def test_results_of_a_run_end_like_all_others(in_tmp, arguments, full, gone):
    train(load([*RUN[1:], "run_dir=run"]))
    for stream, code in ((full, 1), (gone, 0)):
        done = subprocess.run(command(*arguments), stdout=stream, stderr=subprocess.PIPE, text=True, timeout=240)
        assert done.returncode == code
        assert "Traceback" not in done.stderr and done.stderr.count("\n") == code


def test_output_that_cannot_be_written_is_dropped_and_said_once(gone):
    going_on = OutputStream(gone, ends=False)
    assert [going_on.write(b"abc"), going_on.write(memoryview(b"de"))] == [3, 2]
    assert going_on.lost is not None and going_on.lost.errno == errno.EPIPE
    ending = OutputStream(gone, ends=True)
    with pytest.raises(Unread):
        ending.write(b"abc")
    assert ending.write(b"abc") == 3


def test_output_waits_for_a_pipe_that_does_not_wait_by_itself():
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    text = b"x" * (1 << 20)
    drain = subprocess.Popen(
        [sys.executable, "-c", "import sys; print(len(sys.stdin.read()))"], stdin=reader, stdout=-1
    )
    os.close(reader)
    with io.BufferedWriter(OutputStream(writer, ends=True)) as stream:
        stream.write(text)
    os.close(writer)
    assert drain.communicate(timeout=240)[0] == b"1048576\n"


# --- signals at any moment -------------------------------------------------------------------------------------------

STARTS = {
    "train": (LONG, STORM, 75),
    "interrupt": (LONG, (signal.SIGINT,), 130),
    "resume": (["resume", "run"], STORM, 75),
    "sweep": (["sweep", "seed=0,1", "env=two_step_cue"], STORM, 75),
    "population": (["population", "env=two_step_cue"], STORM, 75),
    "reproduce": (["reproduce", "memoroids/figure4", "--budget", "smoke"], STORM, 75),
}


@linux
@pytest.mark.parametrize("name", fast_only(["train", "interrupt"], STARTS))
def test_signals_to_a_command_that_is_starting_have_their_code(in_tmp, name):
    """They arrive while it imports: nothing has been written, unless the machine was faster than the signals."""
    arguments, numbers, code = STARTS[name]
    with started(*arguments) as process:
        wait_for(lambda: all(catches(process, number) for number in (signal.SIGTERM, *numbers)), process)
        for number in numbers:
            process.send_signal(number)
        out, err = process.communicate(timeout=240)
    assert process.returncode == code, err.decode()
    assert b"Traceback" not in err
    assert b" saved" in out if any(in_tmp.iterdir()) else not out


DESTROYED = """
import os, signal
from rlmem.core import command
class Object:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        sum(range(10))
requests = command.Requests(of_command=True)
command.take_over(requests)
Object()
print(requests.first)
"""


@pytest.mark.slow
def test_a_signal_inside_a_destructor_is_heard_and_shows_no_traceback():
    done = run_python([sys.executable, "-c", DESTROYED], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "stopped by SIGTERM\n", "")


@linux
def test_a_command_that_prints_is_ended_by_a_signal_as_any_other():
    with started("check", "memory=mlp") as process:
        wait_for(lambda: b"torch" in Path(f"/proc/{process.pid}/maps").read_bytes(), process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(240) == -signal.SIGTERM


@pytest.mark.slow
def test_a_storm_at_any_moment_means_requeue_or_done_and_the_run_goes_on(in_tmp):
    whole, cut = [*RUN, "run_dir=whole"], [*RUN, "run_dir=cut", "on_exists=resume"]
    began = time.monotonic()
    subprocess.run(command(*whole), check=True, capture_output=True)
    longest, drawn, codes = time.monotonic() - began, random.Random(0), []
    for _ in range(12):
        with started(*cut) as process:
            wait_for(lambda process=process: catches(process, signal.SIGTERM), process)
            time.sleep(drawn.uniform(0, 1.1 * longest))
            for number in drawn.sample(STORM, len(STORM)):
                process.send_signal(number)
            err = process.communicate(timeout=240)[1]
            codes.append(process.returncode)
        assert process.returncode in (0, 75) and b"Traceback" not in err, err.decode()
    assert 75 in codes
    subprocess.run(command(*cut), check=True, capture_output=True)
    assert_same_end("cut", "whole")


@pytest.fixture
def command_of_this_process(monkeypatch) -> Requests:
    """As if this process were one of `rlmem train`."""
    requests = Requests(of_command=True)
    monkeypatch.setattr("rlmem.core.command._process", requests)
    return requests


def test_a_request_that_an_import_has_swallowed_stops_the_run_at_its_first_chance(command_of_this_process):
    class Loop:
        stop: BaseException | None = None

    requests, loop = command_of_this_process, Loop()
    with pytest.raises(Stopped):
        requests.handle(signal.SIGTERM, None)
    with stopping_politely(loop):
        assert isinstance(loop.stop, Stopped) and loop.stop.signum == signal.SIGTERM
    assert requests.ends_with(1) == 75, "whatever error an import has made of it"
    assert requests.ends_with(0) == 0


def test_whoever_insists_while_a_command_ends_has_the_code_of_what_it_did(command_of_this_process, monkeypatch):
    left: list[int] = []
    monkeypatch.setattr(os, "_exit", left.append)
    monkeypatch.setattr("rlmem.core.command.SAME", 0.0)
    requests = command_of_this_process
    assert requests.ends_with(0) == 0
    requests.handle(signal.SIGTERM, None)
    assert left == []
    time.sleep(0.001)
    requests.handle(signal.SIGTERM, None)
    assert left == [0]


def test_a_function_call_leaves_the_signals_of_its_process_alone(capsys):
    before = [signal.getsignal(number) for number in STORM]
    assert main(["train", "--dry-run", *RUN[1:]]) == 0
    assert [signal.getsignal(number) for number in STORM] == before and not taken_over()


def test_an_episode_longer_than_the_replay_is_a_fault_since_the_run_has_begun(in_tmp, capsys):
    assert main(["train", *CUE_DQN, "env=count_recall", "algo.capacity=30", "run_dir=run"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert re.match(r"rlmem: failed: step \d+: an episode of environment \d has more transitions than .*\(30\)", line)
    assert "algo.capacity=300" in line
    assert "failed: step" in Path("run/log.txt").read_text()


# --- the bar ---------------------------------------------------------------------------------------------------------

SHARES = {"env": 0.1, "act": 0.3, "learn": 0.55, "sample": 0.05}


def bar(width: int, total: int, steps: int, log: Path, shares: dict[str, float] = SHARES) -> str:
    """The last line that a terminal of so many columns shows."""
    screen = io.StringIO()
    console = Console(file=screen, width=width, force_terminal=True, color_system=None, highlight=False, soft_wrap=True)
    with Progress(total, log, console=console) as progress:
        progress.began -= 3600
        progress.update(steps, 0.75, shares)
        progress.update(steps, -0.25, shares)
        screen.seek(0)
        screen.truncate()
        assert progress.bar is not None
        progress.bar.refresh()
        shown = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", screen.getvalue()).strip("\r\n")
    assert "\n" not in shown and len(shown) <= width
    return shown


@pytest.mark.parametrize("total", [500, 2_000_000, 300_000_000])
@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 160])
def test_the_bar_keeps_steps_total_and_time_left_at_any_width(width, total, tmp_path):
    steps = total * 2 // 5
    shown = bar(width, total, steps, tmp_path / "log.txt")
    assert f"{steps}/{total}" in shown and "left 1:30:00" in shown
    parts = ["learn 55%" in shown, "best 0.750" in shown, "return -0.250" in shown]
    assert parts == sorted(parts), "the split goes first, then the best return"
    assert width < 80 or parts[2]
    assert width < 160 or all(parts)
