"""The benchmarks measure what they say, in turns, and never lose a contestant; nothing here about absolute times."""

import json
import re
import sys
import time
from pathlib import Path

import pytest
import torch
from helpers import ROOT
from rlmem.evidence.bench.figure3 import PEER, PEERS, Figure3Bench, Rows
from rlmem.evidence.bench.returns import ReturnsBench

from benchmarks import run
from benchmarks.env import EnvBench
from benchmarks.memory import MemoryBench
from rlmem.commands.bench import IN_A_CLONE
from rlmem.config.catalog import catalog
from rlmem.evidence.bench import figure3, returns
from rlmem.evidence.bench.scan import ScanBench
from rlmem.evidence.bench.timing import CPU, MIB, Stopwatch, peak_bytes
from rlmem.evidence.bench.train import TrainBench

TINY = {"rounds": 2, "budget": 5.0, "threads": 1, "device": "cpu"}


def test_contestants_take_turns_after_one_warm_up_each():
    calls: list[str] = []
    times = Stopwatch(rounds=3, budget=9).turns({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")})
    assert "".join(calls) == "ab" + "ab" * 3
    assert [len(t.seconds) for t in times.values()] == [3, 3]


def test_a_fast_call_is_repeated_within_its_turn():
    calls: list[int] = []
    times = Stopwatch(rounds=2, budget=9).turns({"fast": lambda: calls.append(1)}, at_least=0.05)
    assert len(calls) > 20
    assert len(times["fast"].seconds) == 2


def compute(seconds: float) -> None:
    """Use the processor for so long."""
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_what_is_slow_or_raises_is_noted_and_does_not_stop_the_others():
    def fail() -> None:
        raise ValueError("two\nlines")

    contestants = {"slow": lambda: compute(0.4), "half": lambda: compute(0.08), "broken": fail, "fine": int}
    times = Stopwatch(rounds=5, budget=0.2).turns(contestants)
    assert times["slow"].note == "measured once, without a warm-up"
    assert times["slow"].median >= 0.4
    assert times["half"].note.endswith("of 5 rounds")
    assert (times["broken"].note, times["broken"].median) == ("ValueError: two lines", None)
    assert (times["fine"].note, len(times["fine"].seconds)) == ("", 5)


def test_the_time_of_the_whole_is_foreseen_from_a_part_of_it():
    in_proportion = lambda part: lambda: compute(0.8 / part)  # noqa: E731
    assert Stopwatch(budget=0.5).why_not(in_proportion).startswith("skipped: about 1 s")
    assert Stopwatch(budget=60).why_not(in_proportion) == ""
    quadratic = lambda part: lambda: compute(3.2 / part**2)  # noqa: E731
    assert Stopwatch(budget=0.5).why_not(quadratic).startswith("skipped")
    assert Stopwatch().why_not(lambda part: [][part]) == "IndexError: list index out of range"


def take_twice(mib: int):
    """Nothing, and 2 `mib` of which only half is alive at a time."""

    def whole() -> None:
        for _ in range(2):
            torch.ones(mib * MIB // 4)

    return (lambda: torch.ones(1)), whole


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="not measured there")
def test_peak_memory_counts_what_is_alive_at_once():
    assert 64 <= peak_bytes(take_twice, (64,), CPU) / MIB < 80


def test_a_tape_holds_the_episodes_of_the_segments():
    (x, start), (tape, tape_start) = (Rows(scheme, 4, 16).batch(3, CPU) for scheme in ("segment", "tape"))
    assert (x.shape, tape.shape) == ((4, 16, 3), (1, 64, 3))
    assert torch.equal(x.flatten(0, 1), tape[0])
    assert torch.equal(start.flatten(), tape_start[0])
    assert start.sum(1).tolist() == [1, 1, 1, 1]


def test_the_peers_are_one_network():
    bench = MemoryBench(input_size=3, hidden_size=4)
    gru, loop = (bench.build(bench.node(name)) for name in PEERS)
    loop.load_state_dict({f"rnn.{name.removesuffix('_l0')}": p for name, p in gru.rnn.state_dict().items()})
    x, start = Rows("segment", 2, 5).batch(3, CPU)
    torch.testing.assert_close(gru(x, gru.initial_state(2), start), loop(x, loop.initial_state(2), start))


@pytest.mark.slow
def test_bench_memory_reports_every_cell_and_goes_on_after_an_error(in_tmp, monkeypatch):
    pytest.importorskip("matplotlib")
    load = figure3.load

    def broken(overrides):
        if "memory=mlp" in overrides:
            raise ValueError("half written")
        return load(overrides)

    monkeypatch.setattr(figure3, "load", broken)
    sizes = {"lengths": [8, 32], "slots": 512, "hidden_size": 16}
    result = MemoryBench.run(models=["mlp", "ffm"], **sizes, **TINY)
    assert json.loads((in_tmp / "bench-memory.json").read_text()) == json.loads(json.dumps(result))
    assert (in_tmp / "bench-memory.png").stat().st_size > 10_000
    assert list(result["models"]) == [PEER, "mlp", "ffm"]
    assert result["models"]["mlp"] == {"error": "ValueError: half written"}
    ffm = result["models"]["ffm"]
    cells = [(cell["scheme"], cell["length"], cell["episodes"]) for cell in ffm["cells"]]
    assert cells == [(scheme, length, 512 // length) for length in (8, 32) for scheme in ("segment", "tape")]
    assert all(row["seconds"] > 0 and row["peer_seconds"] > 0 for row in ffm["latency"] + ffm["cells"])
    assert all(cell["peak_bytes"] > 0 and cell["note"] == "" for cell in ffm["cells"])


def test_numbers_are_written_before_the_plot(in_tmp, monkeypatch):
    figure_class = pytest.importorskip("matplotlib.figure").Figure

    def fail(*_, **__):
        raise RuntimeError("no plot")

    monkeypatch.setattr(figure_class, "savefig", fail)
    with pytest.raises(RuntimeError, match="no plot"):
        ScanBench.run(shapes=((2, 8, 2),), **TINY)
    assert json.loads((in_tmp / "bench-scan.json").read_text())["scans"]


@pytest.mark.slow
def test_figure3_measures_updates_steps_memory_and_size(in_tmp, capsys):
    pytest.importorskip("matplotlib")
    result = Figure3Bench.run(models=["ffm"], rows=Rows("segment", 2, 8), **TINY | {"budget": 2.0})
    assert list(result["models"]) == [*PEERS, "FFM"]
    for row in result["models"].values():
        assert row["train_seconds"] > row["step_seconds"] > 0
        assert row["peak_bytes"] > 4 * row["parameters"]  # the gradients at least
        assert 1 <= row["updates_measured"] <= 30
    assert "FFM's Figure 3" in capsys.readouterr().out
    assert (in_tmp / "bench-figure3.png").exists()


def test_the_papers_models_are_options_of_ours():
    assert set(figure3.PAPER.values()) <= set(catalog()["memory"])


def test_bench_scan_has_a_row_for_every_case_and_engine(in_tmp):
    pytest.importorskip("matplotlib")
    rows = ScanBench.run(shapes=((2, 64, 8),), **TINY)["scans"]
    assert len(rows) == 2 * 2 * 4
    assert {row["moves"] for row in rows if row["decay"] == "constant"} == {5}
    for row in rows:
        assert (row["seconds"] is None) == bool(row["note"])
        assert row["seconds"] is None or row["copy_share"] == row["copy_seconds"] / row["seconds"]
    assert {row["note"] for row in rows if row["engine"] == "triton"} == {"does not run on a CPU device"}
    assert (in_tmp / "bench-scan.png").exists()


def test_the_methods_of_bench_returns_agree():
    transitions, methods = returns.return_methods(20, 50)
    found = {name: torch.as_tensor(method()) for name, method in methods.items()}
    assert {name: len(values) for name, values in found.items()} == dict.fromkeys(found, transitions)
    torch.testing.assert_close(found[returns.PREFIX], found[returns.PREFIX_SCAN])
    torch.testing.assert_close(found[returns.RETURN], found[returns.RETURN_SCAN])
    advantages = {name: torch.as_tensor(method()) for name, method in returns.gae_methods(30, 7).items()}
    torch.testing.assert_close(advantages[returns.SCAN].T, advantages[returns.LOOP], rtol=1e-4, atol=1e-5)


def test_bench_returns_writes_every_case(in_tmp):
    pytest.importorskip("matplotlib")
    result = ReturnsBench.run(episodes=(3, 5), longest=(4,), shapes=((6, 2),), **TINY)
    assert [(case["episodes"], case["longest"]) for case in result["returns"]] == [(3, 4), (5, 4)]
    assert all(value > 0 for case in result["returns"] + result["gae"] for value in case["seconds"].values())
    assert json.loads((in_tmp / "bench-returns.json").read_text())["gae"][0]["T"] == 6
    assert (in_tmp / "bench-returns.png").exists()


def test_every_benchmark_of_a_clone_is_a_class_whose_fields_are_options(monkeypatch, capsys):
    passed = {}
    monkeypatch.setattr(MemoryBench, "run", lambda **options: passed.update(options) or options)
    assert run.main(["memory", "--models", "ffm,gru", "--lengths", "8,16", "--budget", "0.5", "--json", "x.json"]) == 0
    assert passed == {"models": ("ffm", "gru"), "lengths": (8, 16), "budget": 0.5, "json_path": Path("x.json")}
    monkeypatch.setattr(EnvBench, "run", lambda **options: {"failed": options})
    assert run.main(["env", "--rounds", "1"]) == 1
    for name in run.BENCHMARKS:
        assert run.benchmark(name).name == name
    assert set(IN_A_CLONE) <= set(run.BENCHMARKS)
    with pytest.raises(SystemExit, match="2"):
        run.main(["returns", "--models", "ffm"])
    monkeypatch.undo()
    capsys.readouterr()
    assert run.main(["memory", "--models", "fmf"]) == 2
    assert "fmf: no such memory; did you mean `ffm`?" in capsys.readouterr().err


def test_the_benchmarks_of_documents_accept_their_options():
    documents = [ROOT / "README.md", ROOT / "benchmarks/README.md", *ROOT.glob("docs/*.md")]
    texts = [path.read_text() for path in (*documents, *ROOT.glob("experiments/*/*.yaml"))]
    commands = [line for text in texts for line in re.findall(r"python benchmarks/run\.py ([a-z][^`#]*)", text)]
    assert len(commands) > 12
    for command in commands:
        name, *arguments = re.sub(r"\bN\b", "1", command).split()
        run.options(run.benchmark(name)).parse_args(arguments)
    assert {name for text in texts for name in re.findall(r"rlmem bench (\w+)", text)} == {"train", "scan"}


@pytest.mark.parametrize("bench", [EnvBench, MemoryBench, ReturnsBench, ScanBench, TrainBench])
def test_published_numbers_are_shown_by_their_benchmark(bench):
    path = ROOT / "benchmarks" / f"{bench.name}-2-cores.json"
    result = json.loads(path.read_text())
    tables = list(bench().tables(result))
    assert all(len(row) == len(table.texts) + len(table.numbers) for table in tables for row in table.rows)
    text = "".join(table.text() for table in tables)
    first = {"env": "tasks", "train": "steps_per_second"}.get(bench.name, "models")
    assert [name for name in result.get(first, ()) if name not in text] == []
    assert all(isinstance(line, str) for line in [*bench().notes(result), *bench().verdicts(result)])
