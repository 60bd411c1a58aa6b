"""Peers in environments of their own: their data, and how they take turns with rlmem. No peer is installed here."""

import ast
import json
import shutil
import subprocess
import sys

import pytest

from benchmarks import run
from benchmarks.peers import apart

SPINS = """
from time import process_time

def train(setting, turn):
    print("this is no answer")
    steps = 0
    while True:
        turn(steps)
        steps += {steps}
        end = process_time() + {seconds}
        while process_time() < end:
            pass
        {then}
"""


def test_every_peer_has_a_program_and_pinned_requirements():
    peers, others = apart.known()
    programs = {path.name: ast.parse(path.read_text()) for path in apart.FOLDER.glob("play_*.py")}
    assert sorted(programs) == sorted(f"play_{name}.py" for name in peers)
    for name, program in programs.items():
        (train,) = [it for it in program.body if isinstance(it, ast.FunctionDef) and it.name == "train"]
        assert [argument.arg for argument in train.args.args] == ["setting", "turn"], name
    for peer in peers.values():
        assert set(peer.memories) <= {"lstm", "gru"} and peer.differs
        assert all("==" in text for text in peer.requires) and bool(peer.git) == bool(peer.commit)
    assert others and all(others.values()) and not set(others) & set(peers)


def test_peers_take_turns_and_one_that_fails_is_named(tmp_path, monkeypatch):
    shutil.copy(apart.FOLDER / "turns.py", tmp_path)
    programs = {"rlmem": (5, 0.02, ""), "slow": (10, 0.08, ""), "broken": (5, 0.0, "raise ValueError('no more')")}
    for name, (steps, seconds, then) in programs.items():
        (tmp_path / f"play_{name}.py").write_text(SPINS.format(steps=steps, seconds=seconds, then=then))
    monkeypatch.setattr(apart, "FOLDER", tmp_path)
    peers = [apart.Peer("slow", ("gru",), ours=("one",)), apart.Peer("broken", ("gru",))]
    peers += [apart.Peer("other", ("lstm",))]
    failed: dict[str, str] = {}
    found = apart.compare(peers, "gru", 2, apart.SETTING, tmp_path, failed)
    assert failed == {"broken, gru": "ValueError: no more"}
    assert [it["ours"] for it in found["rlmem"]] == [("one",), ()] and list(found["peers"]) == ["slow"]
    slow = found["peers"]["slow"]
    assert 7900 < slow["cpu_us"] < 12000 and 1.5 < slow["cpu_least"] <= slow["cpu_ratio"] <= slow["cpu_most"] < 2.5
    assert slow["versions"]["python"] == "{}.{}.{}".format(*sys.version_info)


def test_a_failure_of_rlmem_is_one_line_and_ends_what_was_started(in_tmp, tmp_path, monkeypatch, capsys):
    shutil.copy(apart.FOLDER / "turns.py", tmp_path)
    for name, then in {"rlmem": "raise ValueError('no more')", "slow": ""}.items():
        (tmp_path / f"play_{name}.py").write_text(SPINS.format(steps=1, seconds=0, then=then))
    monkeypatch.setattr(apart, "FOLDER", tmp_path)
    monkeypatch.setattr(apart, "known", lambda: ({"slow": apart.Peer("slow", ("gru",))}, {}))
    file, ended = tmp_path / "found.json", list[str]()
    stop = apart.Contestant.stop
    monkeypatch.setattr(apart.Contestant, "stop", lambda it: (stop(it), ended.append(it.peer.name)))
    assert run.main(["apart", "--memories", "gru", "--json", str(file)]) == 1
    assert "all, gru: rlmem beside them: ValueError: no more\n" in capsys.readouterr().out
    assert sorted(ended) == ["rlmem", "slow"]
    found = json.loads(file.read_text())
    assert found["cases"] == {} and list(found["failed"]) == ["all, gru"]


def test_an_answer_that_takes_too_long_is_told_before_what_was_printed(tmp_path, monkeypatch):
    monkeypatch.setattr(apart, "PATIENCE", 0.3)
    it = apart.Contestant(apart.Peer("late", ("gru",)), "gru", ())
    it.stop()  # before it was started
    it.log = tmp_path / "stderr"
    it.log.write_text("a warning\n")
    sleeps = [sys.executable, "-c", "import time; time.sleep(60)"]
    it.process = subprocess.Popen(sleeps, stdout=subprocess.PIPE, text=True, start_new_session=True)
    with pytest.raises(apart.NotMeasured, match=r"^no answer within 0.3 s; a warning$"):
        it.answer()
    assert it.process.wait(10)


def test_what_cannot_be_installed_is_one_line(tmp_path, monkeypatch):
    peer = apart.Peer("nowhere", ("gru",), ("torch==0",), git=str(tmp_path / "none"), commit="0" * 40)
    monkeypatch.setenv("LC_ALL", "C")  # the words of git
    with pytest.raises(apart.NotMeasured, match=r"^git clone .* failed: fatal: repository '.*' does not exist$"):
        peer.install(tmp_path)
    assert not peer.folder(tmp_path).exists()


@pytest.mark.slow
def test_rlmem_takes_turns_with_itself(in_tmp, tmp_path, capsys):
    file = tmp_path / "found.json"
    assert run.main(["apart", "--dry", "--rounds", "1", "--memories", "gru", "--json", str(file)]) == 0
    found = json.loads(file.read_text())
    case = found["cases"]["gru"]["peers"]["rlmem"]
    assert case["versions"]["torch"] == found["machine"]["torch"] and case["cpu_ratio"] > 0
    assert "beside libraries with environments of their own" in capsys.readouterr().out
