"""`make gpu` in its dry form: every part works, so that it works when a GPU is there."""

import json
import sys

import pytest
from helpers import ROOT, EmulatedCapture

from rlmem.agents import graphs
from rlmem.run import assemble
from rlmem.run.assemble import choose_device

sys.path.insert(0, str(ROOT / "benchmarks/gpu"))
import parts
import run


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("names", [["scans", "replaying"], list(parts.PARTS)])
def test_every_part_works_and_has_a_verdict(names, tmp_path, capsys):
    file = tmp_path / "gpu.json"
    code, out = run.main([*names, "--dry", "--json", str(file)]), capsys.readouterr().out
    assert code == 0, out
    found = json.loads(file.read_text())
    assert set(found["parts"]) == set(names)
    for name, part in found["parts"].items():
        assert part["numbers"] and part["verdicts"], name
        for verdict in part["verdicts"]:
            assert verdict["value"] is not None and verdict["what"] in out
    if "tests" in names:
        assert found["parts"]["tests"]["numbers"] == {"passed": 1, "skipped": 0, "failed": {}}


def test_what_was_measured_of_the_same_commit_is_not_measured_again(tmp_path, monkeypatch, capsys):
    file, measured = tmp_path / "gpu.json", []
    verdict = parts.Verdict("w", 1.0, 2.0).as_json()

    def measure(name, dry, seconds):
        measured.append(name)
        if name == "scans" and measured.count("scans") == 1:
            return {"error": "Traceback\nRuntimeError: out of memory", "seconds": 1.0}
        return {"numbers": {}, "verdicts": [verdict], "seconds": 1.0}

    monkeypatch.setattr(run, "measured", measure)
    monkeypatch.setattr(run, "commit", lambda: "one")
    call = lambda *names: run.main([*names, "--dry", "--json", str(file)])  # noqa: E731
    assert call("memories", "scans") == 1, "a part failed"
    assert "FAILED  scans: RuntimeError: out of memory" in capsys.readouterr().out
    assert call("memories", "scans", "check") == 0
    assert measured == ["memories", "scans", "scans", "check"]
    for other in ("another", None, None):  # None: files were changed, who knows how
        monkeypatch.setattr(run, "commit", lambda other=other: other)
        assert call("memories") == 0
    assert measured[4:] == ["memories"] * 3
    assert sorted(json.loads(file.read_text())["parts"]) == ["check", "memories", "scans"], "nothing measured is lost"


def test_a_part_that_takes_too_long_is_ended_with_all_that_it_started():
    assert run.measured("scans", dry=True, seconds=0.1)["error"] == "did not end within 0.1 seconds"


def test_a_goal_is_reached_or_missed_and_a_number_without_one_is_told():
    verdicts = [parts.Verdict("a", 3.0, 2.0, at_most=True, unit="s"), parts.Verdict("b", 3.0, 2.0)]
    verdicts += [parts.Verdict("c", None, note="out of memory"), parts.Verdict("d", 43_210.0, unit="steps/s")]
    verdicts += [parts.Verdict("e", 0, 0, at_most=True)]
    part = {"verdicts": [verdict.as_json() for verdict in verdicts]}
    assert run.lines("part", part, dry=False) == [
        "MISSED  a: 3 s, goal at most 2",
        "reached b: 3, goal at least 2",
        "MISSED  c: not measured (out of memory)",
        "        d: 43,210 steps/s",
        "reached e: 0, goal at most 0",
    ]
    assert not run.holds(part, dry=True), "c was not measured"
    del part["verdicts"][2]
    assert run.holds(part, dry=True)
    assert not run.holds(part, dry=False), "a is missed"


def test_rates_are_measured_without_and_with_graphs(monkeypatch):
    """Also where there is no GPU: graphs are then emulated."""
    device = choose_device("auto")
    if device.type != "cuda":
        monkeypatch.setattr(parts.Setting, "graphs", (parts.GRAPHS,))
        monkeypatch.setattr(assemble, "_require_graphs", lambda *args: None)
        monkeypatch.setattr(graphs, "Capture", EmulatedCapture)
    small = ("algo.rollout_slots=4", "algo.epochs=1", "algo.num_minibatches=1")
    found = parts.rates(parts.Setting(device, dry=True), {"ppo gru": ("memory=gru", *parts.PPO, *small)})
    plain, graphed = "ppo gru, 4 environments", f"ppo gru, 4 environments{parts.GRAPHED}"
    assert list(found) == [plain, graphed]
    assert all(numbers["steps_per_second"] > 0 for numbers in found.values()), found
    assert not found[plain]["without_graph"] and not found[graphed]["without_graph"]
    assert f"{plain}: what graphs gain" in [verdict.what for verdict in parts.judge_rates(found)]


def test_what_is_missing_is_named_with_the_way_to_bring_it(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "pytest", None)
    assert run.main([]) == 2
    assert "cannot import pytest; e.g." in capsys.readouterr().err


def test_a_machine_without_a_gpu_is_told_so(monkeypatch, capsys):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert run.main(["scans"]) == 2
    assert "no CUDA device is available" in capsys.readouterr().err
