"""Weights & Biases through its real client: offline from the files it writes, online against a stand-in server."""

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from helpers import fast_only, killed_at, small_run, without_time
from python_process import Python
from small_runs import SHORT
from wandb_server import StoredRun, WandbServer

from rlmem.commands.cli import main
from rlmem.loops.base import Loop
from rlmem.record import rundir
from rlmem.record.loggers import forget_wandb
from rlmem.record.recorder import read_jsonl
from rlmem.run.train import resume

KEY = "0" * 40

run = partial(small_run, base=SHORT)


@pytest.fixture(autouse=True)
def no_settings(in_tmp, monkeypatch) -> Iterator[None]:
    """Nothing of W&B from this machine: no mode, no key, no service."""
    forget_wandb()  # first: the address of a service in the environment would be restored after it has ended
    for name in [name for name in os.environ if name.startswith("WANDB")]:
        monkeypatch.delenv(name)
    for name in ("HOME", "WANDB_CONFIG_DIR", "WANDB_CACHE_DIR"):
        monkeypatch.setenv(name, str(in_tmp))
    monkeypatch.setenv("NETRC", str(in_tmp / "netrc"))
    yield
    forget_wandb()


@pytest.fixture
def server(monkeypatch) -> Iterator[WandbServer]:
    """A server that the client finds and has a key for."""
    with WandbServer() as server:
        monkeypatch.setenv("WANDB_API_KEY", KEY)
        monkeypatch.setenv("WANDB_BASE_URL", server.url)
        yield server
        forget_wandb()


def at(server: WandbServer, run_dir: Path, project: str = "rlmem") -> StoredRun:
    return server.runs[project, json.loads((run_dir / "wandb_id.json").read_text())]


def metrics(run_dir: Path) -> list[dict[str, Any]]:
    rows = read_jsonl(run_dir / "metrics.jsonl")
    assert len(rows) > 3
    return rows


def offline(run_dir: Path, number: int = -1) -> tuple[list[dict[str, Any]], list[Any]]:
    """Rows, and all records, of an offline directory of the run, by default of the newest."""
    forget_wandb()  # which waits until the service has written everything
    (path,) = sorted(run_dir.glob("wandb/offline-run-*"))[number].glob("run-*.wandb")
    everything = list(records(path))
    history = [record.history for record in everything if record.HasField("history")]
    rows = [{(i.key or i.nested_key[0]): json.loads(i.value_json) for i in row.item} for row in history]
    assert [row["_step"] for row in rows] == list(range(len(rows)))
    return [{name: value for name, value in row.items() if not name.startswith("_")} for row in rows], everything


def records(path: Path) -> Iterator[Any]:
    """Records of a .wandb file: LevelDB's log format, 32 KiB blocks of (crc, length, type, data) after 7 bytes."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, block, parts = path.read_bytes(), 32768, b""
    assert data[:4] == b":W&B"
    position = 7
    while position + 7 <= len(data):
        left = block - position % block
        if left < 7:
            position += left
            continue
        _, length, kind = struct.unpack_from("<IHB", data, position)
        if kind == 0 or position + 7 + length > len(data):
            break
        parts += data[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # a whole record, or the last part of one
            record = Record()
            record.ParseFromString(parts)
            parts = b""
            yield record


def exit_code(everything: list[Any]) -> int:
    (code,) = [record.exit.exit_code for record in everything if record.HasField("exit")]
    return code


def test_offline_holds_what_metrics_jsonl_holds(in_tmp):
    run_dir = run("logger=[tensorboard,wandb]", "logger.wandb.mode=offline", "logger.wandb.tags=[a,b]")
    rows, everything = offline(run_dir)
    assert rows == metrics(run_dir)
    assert exit_code(everything) == 0
    (begun,) = [record.run for record in everything if record.HasField("run")]
    assert (begun.project, begun.display_name, list(begun.tags)) == ("rlmem", "run", ["a", "b"])
    assert json.loads({update.key: update.value_json for update in begun.config.update}["total_steps"]) == 500
    defined = {(r.metric.glob_name or r.metric.name): r.metric.step_metric for r in everything if r.HasField("metric")}
    assert defined["*"] == "step"
    assert (run_dir / "tensorboard").is_dir()


@pytest.mark.slow
def test_videos_and_the_best_agent_go_to_the_loggers_and_change_no_number(in_tmp):
    plain = run(run_dir="plain")
    loggers = ["logger=[tensorboard,wandb]", "logger.wandb.mode=offline", "logger.wandb.artifact=true"]
    run_dir = run(*loggers, "evaluation.video_every=400", "env.max_episode_steps=12", run_dir="filmed")
    again = run("env.max_episode_steps=12", run_dir="plain_again")
    assert without_time(run_dir) == without_time(again) != without_time(plain)
    evaluated = [row["step"] for row in read_jsonl(run_dir / "metrics.jsonl") if "eval/greedy/best" in row]
    films = [run_dir / f"videos/step_{step}.gif" for step in evaluated[1:]]  # the first is before step 400
    assert sorted((run_dir / "videos").iterdir()) == films
    rows, everything = offline(run_dir)
    assert [row["step"] for row in rows if "eval/video" in row] == evaluated[1:]
    copies = run_dir.glob("wandb/offline-run-*/files/media/videos/eval/*.gif")
    assert {copy.read_bytes() for copy in copies} == {film.read_bytes() for film in films}
    (artifact,) = [record.artifact for record in everything if record.HasField("artifact")]
    assert {entry.path for entry in artifact.manifest.contents} == {"best.pt", "config.yaml"}
    (events,) = (run_dir / "tensorboard").iterdir()
    assert all(film.read_bytes() in events.read_bytes() for film in films)


@pytest.mark.slow
def test_the_newest_offline_directory_of_a_resumed_run_is_complete(in_tmp):
    with killed_at(4):
        run("logger=wandb", "logger.wandb.mode=offline")
    run_dir = Path("run")
    resume(run_dir, [])
    assert len(list(run_dir.glob("wandb/offline-run-*"))) == 2
    rows, everything = offline(run_dir)
    assert rows == metrics(run_dir)
    assert exit_code(everything) == 0
    before, everything = offline(run_dir, 0)
    assert 0 < len(before) < len(rows)
    assert exit_code(everything) == 1
    assert {record.run.run_id for record in everything if record.HasField("run")} == {
        json.loads((run_dir / "wandb_id.json").read_text())
    }


@pytest.mark.slow
def test_every_job_of_a_process_has_its_own_run(in_tmp, server):
    """Also after one that failed, and one whose mode was another."""
    with killed_at(3):
        run("logger=wandb", run_dir="failed")
    run("logger=wandb", "logger.wandb.mode=offline", run_dir="offline")
    run("logger=wandb", run_dir="whole")
    failed, whole = at(server, Path("failed")), at(server, Path("whole"))
    assert len(server.runs) == 2
    assert failed.rows == read_jsonl(Path("failed/metrics.jsonl"))
    assert whole.rows == metrics(Path("whole"))
    assert (failed.exit_code, whole.exit_code) == (1, 0)
    assert offline(Path("offline"))[0] == metrics(Path("offline"))


@pytest.mark.parametrize("network", fast_only(["no key"], ["no key", "silent", "refused"]))
def test_without_a_key_or_network_the_run_goes_offline_in_time(in_tmp, monkeypatch, capsys, network):
    with socket.create_server(("127.0.0.1", 0)) as silent:  # connections are accepted, and never answered
        if network != "no key":
            monkeypatch.setenv("WANDB_API_KEY", KEY)
            port = 9 if network == "refused" else silent.getsockname()[1]
            monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{port}")
        began = time.monotonic()
        run_dir = run("logger=wandb", "logger.wandb.init_timeout=3", "total_steps=300")
        forget_wandb()
        assert time.monotonic() - began < 80  # on a busy machine; W&B alone would wait for 90 s
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "goes offline" in line]
    assert {"no key": "no W&B API key", "refused": "refused", "silent": "deadline exceeded"}[network] in line
    assert line.endswith("rlmem sync run")
    assert offline(run_dir)[0] == metrics(run_dir)


@pytest.mark.slow
def test_a_process_ends_soon_though_the_server_never_answers(in_tmp):
    """W&B's reports about itself would keep it for 20 s."""
    code = "from pathlib import Path; from rlmem.record.loggers import RunInfo, WandbLogger; "
    code += "WandbLogger(Path('.'), RunInfo('a', {}), init_timeout=1).close(False); print('closed', flush=True)"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        env = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
        env |= {"WANDB_API_KEY": KEY, "WANDB_BASE_URL": f"http://127.0.0.1:{silent.getsockname()[1]}"}
        job = Python([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, text=True)
        assert job.stdout is not None
        assert job.stdout.readline() == "closed\n"
        began = time.monotonic()
        assert job.wait(240) == 0
        assert time.monotonic() - began < 18


@pytest.mark.slow
def test_a_dead_service_is_said_once_and_the_run_goes_on(in_tmp, monkeypatch, capsys):
    def iterate(loop: Loop) -> bool:
        nonlocal pid
        if loop.updates == 2 and pid is None:
            found = subprocess.run(["pgrep", "-P", str(os.getpid()), "wandb-core"], capture_output=True, text=True)
            pid = int(found.stdout)
            os.kill(pid, signal.SIGKILL)
            time.sleep(0.5)
        return original(loop)

    pid, original = None, Loop.iterate
    monkeypatch.setattr(Loop, "iterate", iterate)
    run_dir = run("logger=wandb", "logger.wandb.mode=offline")
    assert pid is not None
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("logger=wandb")]
    assert len(said) == 1
    assert "stopped" in said[0] and "rlmem sync run" in said[0]
    assert metrics(run_dir)[-1]["step"] == 500
    assert offline(run("logger=wandb", "logger.wandb.mode=offline", run_dir="next"))[0] == metrics(Path("next"))


STANDING_STILL = """
import sys, time
from rlmem.commands.cli import main
from rlmem.loops.base import Loop

def iterate(loop):
    if loop.updates == 9:
        time.sleep(600)
    return original(loop)

original, Loop.iterate = Loop.iterate, iterate
main(sys.argv[1:])
"""
"""A command line that trains for nine updates and then waits to be killed."""


@pytest.mark.slow
def test_a_run_killed_and_resumed_online_has_every_row_once(in_tmp, server):
    """kill -9 when the server has rows that come after the checkpoint."""
    env = {**os.environ, "WANDB__FILE_STREAM_TRANSMIT_INTERVAL": "0.2"}
    arguments = [*SHORT, "memory=mlp", "total_steps=1500", "checkpoint.every=500", "logger=wandb", "run_dir=run"]
    job = Python([sys.executable, "-c", STANDING_STILL, "train", *arguments], stdout=subprocess.DEVNULL, env=env)
    run_dir, deadline = Path("run"), time.monotonic() + 240
    while not (server.runs and any("update" in row and row["update"] == 9 for row in at(server, run_dir).rows)):
        assert time.monotonic() < deadline and job.poll() is None
        time.sleep(0.05)
    job.kill()
    job.wait()
    before = len(at(server, run_dir).sent)
    resume(run_dir, [])
    stored = at(server, run_dir)
    assert len(server.runs) == 1
    assert 0 < before < len(stored.sent)
    assert stored.sent == list(range(len(metrics(run_dir))))
    told = [{name: value for name, value in row.items() if not name.startswith("time/")} for row in stored.rows]
    assert told == without_time(run_dir)  # times of rows that were written twice are those of the first time
    assert stored.exit_code == 0


@pytest.mark.slow
def test_what_a_dying_network_took_is_sent_later(in_tmp, server, monkeypatch, capsys):
    def iterate(loop: Loop) -> bool:
        server.hang |= loop.updates == 2
        return original(loop)

    original = Loop.iterate
    monkeypatch.setattr(Loop, "iterate", iterate)
    run_dir = run("logger=wandb", "logger.wandb.init_timeout=2")
    assert "rlmem sync run" in capsys.readouterr().out.partition("did not close")[2]
    forget_wandb()
    monkeypatch.setattr(Loop, "iterate", original)
    assert len(at(server, run_dir).sent) < len(metrics(run_dir))
    assert main(["sync", "run", "--timeout", "1"]) == 1
    server.hang = False
    assert main(["sync", "run"]) == 0
    assert at(server, run_dir).rows == metrics(run_dir)
    assert sorted(at(server, run_dir).sent) == list(range(len(metrics(run_dir))))


@pytest.mark.slow
def test_sync_uploads_from_the_directory_alone_and_nothing_twice(in_tmp, server, capsys):
    with killed_at(4):
        run()
    run_dir = Path("run")
    with open(run_dir / "metrics.jsonl", "a") as file:
        file.write('{"step": 4')  # half a row
    assert main(["sync", "run"]) == 0
    present = len(metrics(run_dir))
    stored = at(server, run_dir)
    url = f"{server.url}/a-team/rlmem/runs/{json.loads((run_dir / 'wandb_id.json').read_text())}"
    assert capsys.readouterr().out.splitlines()[-1] == f"run: {present} of {present} rows sent; {url}"
    assert stored.exit_code == 1, "it has not reached its end"
    resume(run_dir, [])
    rows = metrics(run_dir)
    files = sorted(path.name for path in run_dir.iterdir())
    capsys.readouterr()
    assert main(["sync", "run"]) == 0
    assert capsys.readouterr().out == f"run: {len(rows) - present} of {len(rows)} rows sent; {url}\n"
    assert main(["sync", "run"]) == 0
    assert capsys.readouterr().out == f"run: all {len(rows)} rows were there already; {url}\n"
    assert stored.sent == list(range(len(rows)))
    assert stored.exit_code == 0
    assert stored.settings["displayName"] == "run"
    assert json.loads(stored.settings["config"])["total_steps"] == {"value": 500}
    assert sorted(path.name for path in run_dir.iterdir()) == files


@pytest.mark.slow
def test_sync_sends_runs_where_their_logger_or_the_flags_say(in_tmp, server, capsys):
    node = ["logger=wandb", "logger.wandb.mode=offline", "logger.wandb.project=mine", "logger.wandb.group=g"]
    run(*node, run_dir="a")
    run(run_dir="b")
    assert main(["sync", "a"]) == 0
    assert at(server, Path("a"), "mine").settings["groupName"] == "g"
    assert main(["sync", "a", "b", "--project", "ours", "--entity", "us", "--group", "h", "--tags", "x,y"]) == 0
    assert capsys.readouterr().out.count("/us/ours/runs/") == 2
    for run_dir in (Path("a"), Path("b")):
        stored = at(server, run_dir, "ours")
        assert stored.rows == metrics(run_dir)
        assert {key: stored.settings[key] for key in ("entity", "groupName", "tags")} == {
            "entity": "us",
            "groupName": "h",
            "tags": ["x", "y"],
        }


@pytest.mark.slow
def test_sync_says_what_is_wrong(in_tmp, server, monkeypatch, capsys):
    run(), run(run_dir="other")
    capsys.readouterr()
    server.refuse = 400
    assert main(["sync", "run", "other", "--timeout", "5"]) == 1
    refused, other = capsys.readouterr().err.splitlines()
    assert "run: W&B took 0 of" in refused and "`rlmem sync run`" in refused
    assert other.startswith("rlmem: failed: other")
    with rundir.lock(Path("run")):
        assert main(["sync", "run"]) == 2
    assert "another process" in capsys.readouterr().err
    server.refuse = None
    assert main(["sync", "nowhere", "run"]) == 2
    said = capsys.readouterr()
    assert "nowhere: not a run directory" in said.err
    assert "rows sent" in said.out
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    assert main(["sync", "run", "--timeout", "4"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "refused" in line and "`rlmem sync run`" in line
    monkeypatch.delenv("WANDB_API_KEY")
    assert main(["sync", "run"]) == 2
    assert main(["sync", "run", "other"]) == 2
    (line,) = set(capsys.readouterr().err.splitlines())
    assert line.startswith("rlmem: error: no W&B API key") and "wandb login" in line
