"""`rlmem reproduce`: experiment files, cells, expectations, verdicts, and a reproduction that is interrupted."""

import json
import re
import shlex
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from datetime import datetime, timedelta
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from helpers import ROOT, changed
from made_results import item_text

from rlmem.commands.cli import main
from rlmem.config.paths import experiments_dir
from rlmem.core.errors import UserError
from rlmem.evidence import catalog, metrics, registration
from rlmem.evidence.catalog import read
from rlmem.evidence.cost import steps_of
from rlmem.evidence.experiment import BUDGETS
from rlmem.evidence.items import runner_of
from rlmem.evidence.page.find import Item, find
from rlmem.evidence.records import (
    SERIES,
    Curve,
    Record,
    read_curves,
    read_results,
    read_series,
    shipped_records,
    write_curves,
    write_results,
)
from rlmem.evidence.registration import Version
from rlmem.evidence.tables import publish, write
from rlmem.evidence.verdict import Outcome
from rlmem.jobs.manifest import Manifest
from rlmem.jobs.pool import Options
from rlmem.record.facts import RunRecord

RNG = np.random.default_rng

SMALL = item_text("small")


@pytest.fixture
def small(in_tmp: Path) -> Path:
    (in_tmp / "mine").mkdir()
    path = in_tmp / "mine" / "small.yaml"
    path.write_text(SMALL)
    catalog.register(str(path), "laptop")
    return path


def test_rows_are_crossed_and_every_part_of_a_cell_has_its_place(small):
    experiment = read(small)
    assert (experiment.title, list(experiment.rows)) == ("A small experiment", ["gru tape", "mlp tape"])
    planned = experiment.at("laptop").cells()
    assert [cell.name for cell in planned] == ["gru tape/easy", "gru tape/hard", "mlp tape/easy"]
    assert experiment.at("laptop").skipped() == {("mlp tape", "hard"): "it has no chance"}
    hard = planned[1]
    # The budget wins over an exception, whose reason is no longer one, and every key is there once.
    assert hard.reasons == ()
    assert experiment.at("paper").cells()[1].reasons == ("the released code has it",)
    assert [line for line in hard.overrides if line.startswith("algo.lr")] == ["algo.lr=0.02"]
    assert "algo.lr=0.01" in experiment.at("paper").cells()[1].overrides
    assert hard.lines(1)[-1] == "seed=1" and hard.seeds == (0, 1)
    assert experiment.at("smoke").cells()[0].seeds == (0,)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (["gru"], ["gru tape/easy", "gru tape/hard"]),
        (["gru_tape/hard"], ["gru tape/hard"]),
        (["*/easy"], ["gru tape/easy", "mlp tape/easy"]),
        (["hard", "mlp"], ["gru tape/hard", "mlp tape/easy"]),
    ],
)
def test_cells_are_chosen_by_words_and_patterns(small, wanted, found):
    assert [cell.name for cell in read(small).at("laptop").cells(wanted)] == found


def test_a_cell_that_there_is_not_is_refused(small):
    with pytest.raises(UserError, match="--cells grv: no such cell; did you mean `gru"):
        read(small).at("laptop").cells(["grv"])


def test_a_file_may_share_the_runs_of_another(small):
    other = small.with_name("table.yaml")
    other.write_text("# Their best\nruns: mine/small\nmetric: best_eval\n")
    experiment, base = read(other), read(small)
    assert (experiment.title, experiment.metric, experiment.runs) == ("Their best", "best_eval", "mine/small")
    assert experiment.at("laptop").cells() == base.at("laptop").cells()


def test_results_and_curves_survive_their_files(tmp_path):
    records = [
        Record("a b", "", 0, "done", {"final_eval": 0.5, "mmer": -1.25}, 100, 2.5, "abc", "1.0", "def", "2 cores, X"),
        Record("a b", "c,d", 1, "done", {"mmer": 3.0}, 7, 1.0, overrides="env=x 'env.params={a: 1, b: 2}'"),
    ]
    write_results(records, tmp_path / "results.csv")
    assert read_results(tmp_path / "results.csv") == records
    curves = [Curve("a b", "c,d", 1, [1, 2], [0.5, 0.25])]
    write_curves(curves, tmp_path / "curves.csv")
    assert read_curves(tmp_path / "curves.csv") == curves
    (tmp_path / "bad.csv").write_text("a,b\n1,2\n")
    with pytest.raises(UserError, match="cannot be read as results"):
        read_results(tmp_path / "bad.csv")
    with pytest.raises(UserError, match="cannot be read as curves"):
        read_curves(tmp_path / "bad.csv")


def test_processes_that_share_a_reproduction_may_end_at_the_same_time(small, tmp_path):
    experiment = read(small)
    records = [
        Record("gru tape", "easy", seed, "done", {experiment.metric: float(seed)}, 100, 2.5) for seed in range(2)
    ]
    outcome = Outcome(experiment.at("laptop"), records)
    runner = runner_of(read(small).at("laptop"), tmp_path)
    runner.so_far = lambda: outcome
    with ThreadPoolExecutor(4) as pool:  # a file lock separates threads as it does processes
        for done in [pool.submit(runner.written) for _ in range(40)]:
            done.result()
    assert read_results(runner.folder / "results.csv") == records


def test_metrics_of_a_run_are_those_of_its_record(tmp_path):
    rows = [{"step": s, "train/return_mean": v} for s, v in ((1, 0.1), (2, 0.9), (3, 0.4))]
    rows += [{"step": 3, "eval/greedy/return_mean": 0.7}, {"step": 4, "eval/greedy/return_mean": 0.6}]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = RunRecord(tmp_path)
    found = metrics.read(run, ["mmer", "final_train", "final_eval", "best_eval", "last nothing", "least step"])
    expected = {"mmer": 0.9, "final_train": 0.4, "final_eval": 0.6, "best_eval": 0.7, "least step": 1.0}
    assert found == expected
    assert metrics.read(RunRecord(tmp_path / "waiting"), ["normalised final_eval", "mmer"]) == {}
    assert metrics.thinned(run.series("train/return_mean")) == ([1, 2, 3], [0.1, 0.9, 0.4])
    assert metrics.thinned(run.series("train/return_mean"), most=2) == ([2, 3], [0.5, 0.4])


# --- the shipped files


def test_every_shipped_file_is_whole():
    for name in catalog.names():
        experiment = catalog.find(name)
        assert experiment.name == name and experiment.title and "arXiv" in experiment.source
        for budget in BUDGETS:
            planned = experiment.at(budget)
            assert not planned.is_trained or metrics.curve_key(planned.metric)
            cells = planned.cells()
            assert cells and len({cell.name for cell in cells}) == len(cells)
        if experiment.run == "train":
            assert sum(steps_of(cell.overrides) * len(cell.seeds) for cell in experiment.at("smoke").cells()) <= 40_000
        verdict = Outcome(experiment.at("paper"), []).verdict
        if experiment.published:
            assert any(cell.paper is not None for cell in verdict.cells), "no published number has a place in it"


# --- a reproduction


def run(*arguments: object) -> int:
    return main(["reproduce", *map(str, arguments)])


def test_a_reproduction_goes_on_shows_partial_results_and_keeps_them(small, capsys):
    run_it = (small, "--budget", "smoke", "--jobs", "2")
    assert run(*run_it, "--dry-run") == 0
    assert "mine/small at the budget smoke: 2 cells, 2 runs, 512 steps" in capsys.readouterr().out
    assert not Path("reproduce").exists()

    assert run(*run_it, "--cells", "gru") == 0
    said = capsys.readouterr().out
    assert "1 done" in said and "mlp tape" not in said.partition("claim ")[0].partition("easy")[0]
    folder = Path("reproduce/mine/small-smoke")
    first = (folder / "001-gru_tape-easy-seed0" / "metrics.jsonl").read_bytes()

    assert run(*run_it, "--publish", "results") == 0
    said = capsys.readouterr().out
    assert "2 done" in said and "not testable here: this budget only shows that it runs" in said
    assert (folder / "001-gru_tape-easy-seed0" / "metrics.jsonl").read_bytes() == first, "a finished run was repeated"
    kept = read_results(Path("results/mine/small.smoke.csv"))
    assert [(r.row, r.column, r.steps, r.state) for r in kept] == [
        ("gru tape", "easy", 256, "done"),
        ("mlp tape", "easy", 256, "done"),
    ]
    rows = [json.loads(line) for line in first.splitlines()]
    last = [row["eval/greedy/return_mean"] for row in rows if "eval/greedy/return_mean" in row][-1]
    assert kept[0].metrics["final_eval"] == pytest.approx(last, rel=1e-5)
    stored = read_series(Path(f"results/mine/small.smoke{SERIES}"))
    assert {key[0] for key in stored} == {"gru tape", "mlp tape"}
    trained = [(row["step"], row["train/return_mean"]) for row in rows if "train/return_mean" in row]
    assert stored["gru tape", "easy", 0, "train/return_mean"] == [(s, pytest.approx(v, rel=1e-8)) for s, v in trained]
    assert main(["report", "results", "--markdown", "RESULTS.md"]) == main(["verify-results", "results"]) == 0
    assert "1 documents compared; nothing differs" in capsys.readouterr().out
    assert run(*run_it, "--dir", "other", "--cells", "gru", "--publish", "results") == 2
    assert "1 of its runs would be lost, first mlp tape easy seed 0;" in capsys.readouterr().err
    assert read_results(Path("results/mine/small.smoke.csv")) == kept
    assert {"results.csv", "table.md", "table.tex", "table.csv", "verdict.json"} <= {p.name for p in folder.iterdir()}

    assert run(*run_it, "--show") == 0
    assert "gru tape" in capsys.readouterr().out
    assert main(["sweep", "status", str(folder)]) == 0

    for root in ("reproduce", "results"):
        (found,) = find([Path(root)])
        assert isinstance(found, Item)
        assert found.command == "rlmem reproduce mine/small.yaml --budget smoke"
        assert found.outcome.planned == read(small, own=True).at("smoke") and len(found.outcome.records) == 2

    changed(small, "encoder.hidden_size=8", "encoder.hidden_size=16")
    assert run(*run_it, "--show") == 0
    assert "2 of 2 runs have not ended" in capsys.readouterr().out, "runs of the file as it was count"


@pytest.mark.slow
def test_only_the_cells_and_seeds_that_are_asked_for_are_run(small, capsys):
    experiment = catalog.find(str(small))
    runner = runner_of(experiment.at("laptop"))
    runner.begin(runner.planned.cells(), Options())  # as after an interruption: all of them wait
    states = lambda: {job.name: job.state for job in Manifest(runner.runs).jobs()}  # noqa: E731
    assert set(states().values()) == {"waiting"}
    assert run(small, "--cells", "easy", "--seeds", "1", "--dry-run") == 0
    assert "2 cells, 2 runs" in capsys.readouterr().out
    assert run(small, "--cells", "gru/easy", "mlp", "--seeds", "1") == 0
    done = sorted(name.partition("-")[2] for name, state in states().items() if state == "done")
    assert done == ["gru_tape-easy-seed1", "mlp_tape-easy-seed1"]
    assert run(small, "--seeds", "1,7") == 2
    assert "--seeds 7: no such seed; accepted: 0, 1; e.g. " in capsys.readouterr().err
    assert run(small, "--seeds", "0,,1") == 2
    assert "expected an integer >= 0, got ''" in capsys.readouterr().err
    assert run(small, "--show", "--cells", "gru") == 2
    assert "--cells: --show shows all that there is" in capsys.readouterr().err


@pytest.mark.slow
def test_a_job_that_is_not_asked_for_keeps_its_failure_and_does_not_fail_the_others(small, capsys):
    experiment = catalog.find(str(small))
    runner = runner_of(experiment.at("laptop"))
    runner.begin(runner.planned.cells(), Options())
    manifest = Manifest(runner.runs)
    (other,) = [job for job in manifest.jobs() if job.name.endswith("mlp_tape-easy-seed0")]
    manifest._update({"state": "failed", "failures": 1, "exit_code": 1, "error": "boom"}, "number = ?", other.number)
    assert run(small, "--cells", "gru/easy", "--seeds", "0", "--retry-failed") == 0
    assert "boom" not in capsys.readouterr().err
    states = {job.name: (job.state, job.failures) for job in manifest.jobs()}
    assert states[other.name] == ("failed", 1)
    assert [state for state, _ in states.values()].count("done") == 1


def test_numbers_that_are_shipped_come_from_one_commit(tmp_path, monkeypatch, capsys):
    experiment = catalog.find("memoroids/figure4")
    commits = enumerate(["abc", "abc+changes", "def", ""])
    records = [Record("lru tape", "repeat_first", s, "done", {"best_eval": 1.0}, commit=c) for s, c in commits]
    made = lambda *which: Outcome(experiment.at("laptop"), [records[i] for i in which])  # noqa: E731
    publish(made(0, 2), tmp_path)
    assert "runs are of 2 commits (abc, def)" in capsys.readouterr().out
    monkeypatch.setattr("rlmem.evidence.tables.results_dir", lambda: tmp_path)
    for mixed, why in (
        (made(0, 1), r"code that is in no commit \(abc\+changes\)"),
        (made(0, 2), "2 commits"),
        (made(0, 3), "no commit"),
    ):
        with pytest.raises(UserError, match=why):
            publish(mixed, tmp_path)
    (tmp_path / "memoroids/figure4.laptop.csv").unlink()
    publish(made(0), tmp_path)


def test_an_experiment_of_ones_own_is_reported_as_it_was_judged(small, capsys, monkeypatch):
    """`runs:` of another file, links, other working directories, an edited file, a shipped name."""
    (small.parent / "best.yaml").write_text(
        "# Their best\nruns: linked/small\nmetric: best_eval\nexpect: [gru tape > 9 on easy]\n"
    )
    Path("linked").symlink_to(small.parent)
    monkeypatch.chdir(small.parent)
    experiment = catalog.find("best.yaml")
    monkeypatch.chdir(small.parents[1])
    scores = {("gru tape", "easy"): 1.0, ("mlp tape", "easy"): 0.5}
    records = [Record(*cell, 0, "done", {"best_eval": score}) for cell, score in scores.items()]
    outcome = Outcome(experiment.at("laptop"), records)
    write(outcome, Path("reproduce/mine/best-laptop"))
    publish(outcome, Path("results"))
    (small.parent / "best.yaml").write_text("# No experiment any more")
    for folder, report in ((".", "reproduce"), ("reproduce/mine/best-laptop", "../.."), ("results/mine", ".")):
        monkeypatch.chdir(small.parents[1] / folder)
        (found,) = find([Path(report)])
        assert isinstance(found, Item)
        assert found.outcome.planned == experiment.at("laptop")
        assert [f.state for f in found.verdict.findings] == ["not tested"]
    monkeypatch.chdir(small.parents[1])
    write(Outcome(catalog.find("ffm/table4").at("laptop"), []), Path("reproduce/mine/best-laptop"))
    assert not Path("reproduce/mine/best-laptop/experiment.yaml").exists()

    shipped = experiments_dir() / "ffm/table4.yaml"  # type: ignore[operator]
    assert (catalog.find(str(shipped)).name, catalog.find(str(shipped)).text) == ("ffm/table4", None)
    Path("ffm").mkdir()
    Path("ffm/table4.yaml").write_text(shipped.read_text())
    assert run("ffm/table4.yaml", "--dry-run") == 2
    assert "ffm/table4 is the name of a shipped experiment; rename" in capsys.readouterr().err


@pytest.mark.parametrize("about", ['{"item": 5}', '{"item": ["a"]}', '{"item": "x"}', "[]"])
def test_a_strange_verdict_is_no_reproduction(in_tmp, about):
    Path("made").mkdir()
    Path("made/verdict.json").write_text(about)
    Path("made/x.yaml").write_text("")
    with pytest.raises(UserError, match=r"nothing to show|cannot be read"):
        find([Path("made")])


@pytest.mark.slow
def test_an_analysis_counts_with_the_options_that_were_asked_for(in_tmp, capsys):
    path = Path("mine/own.yaml")
    path.parent.mkdir()
    more = "analyses: [{what: extrapolate, options: {episodes: 2, over: env.n=4}}]\nseeds: 1"
    text = SMALL.replace("seeds: 2", more).replace("env=repeat_first", "env=parity, env.n=4")
    text = text.replace("env.level=easy", "env.min_length=2").replace("env.level=hard", "env.min_length=3")
    for wrong, said in (("extrapolat,", "did you mean `extrapolate`?"), ("recall,", "recall: has no option `over`")):
        path.write_text(text.replace("extrapolate,", wrong))
        assert run(path, "--budget", "smoke", "--cells", "gru") == 2
        assert said in capsys.readouterr().err and not Path("reproduce").exists(), "before anything is trained"
    path.write_text(text.replace("metric: final_eval", "metric: analysis/extrapolate/return/4"))
    assert run(path, "--budget", "smoke", "--cells", "gru", "--publish", "published") == 0
    results = Path("reproduce/mine/own-smoke/results.csv")
    (first,) = [r.metrics["analysis/extrapolate/return/4"] for r in read_results(results) if r.row == "gru tape"]
    (made,) = Path("reproduce/mine/own-smoke").glob("*gru*")
    assert main(["analyze", "extrapolate", str(made), "--episodes", "7", "--over", "env.n=4"]) == 0
    assert run(path, "--budget", "smoke", "--show", "--publish", "published") == 2
    assert "1 of its runs would be lost" in capsys.readouterr().err
    assert "analysis/extrapolate/return/4" not in read_results(results)[0].metrics, "one made by hand counts"
    assert run(path, "--budget", "smoke", "--cells", "gru") == 0
    assert read_results(results)[0].metrics["analysis/extrapolate/return/4"] == first


@pytest.mark.slow
def test_a_measurement_with_other_options_is_made_again(in_tmp, capsys):
    path = Path("mine.yaml")
    text = (experiments_dir() / "lprnn/figure2.yaml").read_text()  # type: ignore[operator]
    path.write_text(text.replace("base: 2.0", "base: 1.5"))
    other = run(path, "--budget", "laptop"), capsys.readouterr().out
    path.write_text(text)
    first = run(path, "--budget", "laptop"), capsys.readouterr().out
    again = run(path, "--budget", "laptop"), capsys.readouterr().out
    assert (other[0], first[0], again[0]) == (0, 0, 0)
    # The last column is that of the twelfth pool.
    lag = [re.search(r"^chain .* ([\d.]+)$", said, re.MULTILINE)[1] for _, said in (other, first, again)]  # type: ignore[index]
    # The mean lag of a chain of n pools is the sum of b^k - 1 (docs/analysis.md).
    assert float(lag[0]) == pytest.approx(sum(1.5**k - 1 for k in range(1, 13)), rel=1e-3)
    assert float(lag[1]) == pytest.approx(sum(2.0**k - 1 for k in range(1, 13)), rel=1e-3) == float(lag[2])
    path.write_text(text.replace("base: 2.0", "base: 3.0"))
    assert run(path, "--budget", "laptop", "--show") == 0
    assert "runs have not ended" in capsys.readouterr().out, "what other options measured is shown as of these"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothing"], "nothing: no such experiment"),
        (["mine/small.yaml", "--budget", "smoke", "--register"], "--budget smoke: its runs are never judged"),
        (["mine/small.yaml", "--budget", "labtop"], "--budget labtop: no such budget; did you mean `laptop`?"),
        (["mine/small.yaml", "--show"], "nothing has been run there"),
        (["mine/small.yaml", "--per-gpu", "2"], "--per-gpu 2: needs --gpus"),
        (["mine/none.yaml"], "cannot be read"),
    ],
)
def test_mistakes_are_one_line(small, arguments, said, capsys):
    assert run(*arguments) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1
    assert not Path("reproduce").exists()


@pytest.mark.slow
def test_expectations_that_change_after_a_counted_run_are_marked_with_both_verdicts(small, capsys):
    small.write_text(SMALL.replace("gru tape > mlp tape on easy", "gru tape > 5 on easy"))
    assert run(small) == 2, "the expectations differ from the registered ones"
    refusal = capsys.readouterr().err
    assert "its expectations differ from those registered on" in refusal
    small.write_text(SMALL)
    assert run(small, "--jobs", "2") == 0
    verdict = lambda: json.loads(Path("reproduce/mine/small-laptop/verdict.json").read_text())  # noqa: E731
    assert "changed" not in verdict()
    file, name = small.with_name("registered.json"), "mine/small"
    began = json.loads(Path("reproduce/mine/small-laptop/registered.json").read_text())[name]["laptop"]["first_run"]
    registered = json.loads(file.read_text())
    assert registered[name]["laptop"]["versions"][0]["registered"] <= began

    small.write_text(SMALL.replace("gru tape > mlp tape on easy", "gru tape > 5 on easy"))
    later = (datetime.fromisoformat(began) + timedelta(seconds=5)).isoformat()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registration, "stamp", lambda time: later)
        example = shlex.split(refusal.rpartition("e.g. rlmem reproduce ")[2])
        assert run(*example) == 0, "the example works when it is typed"
    assert run(small, "--show") == 0
    shown = capsys.readouterr().out
    for where in (shown, verdict()["changed"]):
        assert "expectations changed after the first results" in where
        assert "gru tape > mlp tape" in where.partition("verdict by the expectations of")[2], "the first version"
        assert "verdict by the present ones: " in where
    assert run(small, "--show", "--publish", "results") == 0
    for folder in ("reproduce", "results"):
        assert main(["report", folder, "--out", f"{folder}.html"]) == 0
        assert "verdict by the present ones: " in Path(f"{folder}.html").read_text()
    assert main(["report", "results", "--markdown", "RESULTS.md"]) == 0
    assert "*Expectations changed after the first results" in Path("RESULTS.md").read_text()

    small.write_text(SMALL)
    assert run(small, "--show") == 0
    assert "changed" not in verdict(), "these are the expectations of before"
    small.write_text(SMALL.replace("expect: [gru tape > mlp tape on easy]", "expect: []"))
    assert run(small) == 2, "expectations are not taken away without a trace"
    assert run(small, "--show") == 0
    assert "gru tape > mlp tape" in verdict()["changed"]


def test_a_run_that_is_refused_is_no_first_run(small):
    small.write_text(SMALL.replace("memory=gru", "memory=grv"))
    assert run(small) == 2
    assert not Path("reproduce/mine/small-laptop/registered.json").exists()


@pytest.mark.slow
def test_shipped_expectations_are_registered():
    """Every expectation that a shipped item tests, with its date; those of counted runs have the date of the first."""
    every = registration.read(experiments_dir() / registration.FILE)
    for name, budget in product(catalog.names(), registration.COUNTED):
        planned = catalog.find(name).at(budget)
        known = every.get(name, {}).get(budget, registration.Registration())
        assert planned.registration == known
        catalog.require_registered(name, planned)
        if planned.version.expect and shipped_records(name, budget):
            assert known.first_run is not None, f"{name} {budget}"
    parts = (ROOT / "RESULTS.md").read_text(encoding="utf-8").split("\n## ")
    marked = {part.partition(",")[0] for part in parts if "*Expectations changed after the first results" in part}
    for name in catalog.names():
        if records := shipped_records(name, "laptop"):
            verdict = Outcome(catalog.find(name).at("laptop"), records).verdict
            assert bool(verdict.changed) == (name in marked), name


def test_a_damaged_register_is_named(small, capsys):
    file = small.with_name("registered.json")
    whole = file.read_text()
    no_sentence = Version("2026-01-01T00:00:00+00:00", "final_eval", True, ("gru is better",))
    other = json.loads(whole)
    other["mine/small"]["laptop"]["versions"] = [asdict(no_sentence) | {"hash": no_sentence.hash}]
    for damaged in (whole[:-9], whole.replace("gru", "ffm"), "[]", '{"a": 1}', json.dumps(other)):
        file.write_text(damaged)
        assert run(small) == 2
        assert "registered.json: cannot be read" in capsys.readouterr().err


def test_what_nobody_has_run_here_is_shown_as_it_is_shipped(in_tmp, capsys):
    assert run("lprnn/figure4", "--show") == 0
    out = capsys.readouterr().out
    assert "50 done; shipped with rlmem; none in reproduce/lprnn/figure4-laptop" in out
    assert "verdict  undecided: 4 of 10 expectations" in out and "\x1b" not in out
    assert [*Path().iterdir()] == []
    assert [run(item, "--show", "--judge") for item in ("lprnn/figure4", "rlmem/forget_bias")] == [11, 0]
    assert run("lprnn/figure4", "--show", "--publish", "results") == 2
    assert "nothing has been run there" in capsys.readouterr().err


def test_a_directory_of_something_else_is_left_alone(small, capsys):
    folder = Path("reproduce/mine/small-smoke")
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("{}")
    assert run(small, "--budget", "smoke") == 2
    assert "holds a run or a sweep of something else" in capsys.readouterr().err
