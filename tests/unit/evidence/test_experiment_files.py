"""What experiment files may leave to another, and what a budget asks of their expectations."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from helpers import ROOT, changed
from made_results import item_text

from rlmem.commands.cli import main
from rlmem.evidence import catalog
from rlmem.evidence.catalog import read
from rlmem.evidence.items import claims, papers
from rlmem.evidence.records import Record, read_results
from rlmem.evidence.tables import tables
from rlmem.evidence.training import TrainingRuns
from rlmem.evidence.verdict import Outcome
from rlmem.record.tables import Table, cell_text
from rlmem.run import forecast

BASE = item_text("figure")
MISTAKES = yaml.safe_load((ROOT / "tests/data/mistakes.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_a_file_is_answered_with_what_to_do(name, in_tmp, capsys):
    for number, mistake in enumerate(MISTAKES[name]):
        folder = Path(shutil.copytree(ROOT / "tests/data/items", f"mine{number}"))
        path = changed(folder / f"{name}.yaml", mistake["old"], mistake["new"])
        assert main(["reproduce", str(path), "--dry-run"]) == 2, mistake
        answer = capsys.readouterr().err
        assert all(line.startswith("rlmem: error: ") for line in answer.splitlines())
        assert [word for word in mistake["words"] if word not in answer] == [], answer
    assert not Path("reproduce").exists()


@pytest.fixture
def figure(tmp_path: Path) -> Path:
    (tmp_path / "mine").mkdir()
    path = tmp_path / "mine" / "figure.yaml"
    path.write_text(BASE)
    return path


def test_a_budget_takes_what_it_does_not_say_from_the_item_whose_runs_it_shares(figure):
    other = figure.with_name("table.yaml")
    other.write_text(item_text("table"))
    table, own = read(other), read(figure)
    assert [cell.name for cell in table.at("laptop").cells()] == ["gru/easy"]
    assert table.at("laptop").cells()[0] == own.at("laptop").cells()[1]
    assert (table.budget("laptop").note, own.budget("laptop").note) == ("one row", None)
    assert table.at("smoke").cells() == own.at("smoke").cells()


def test_what_is_expected_of_cells_that_the_budget_leaves_out_is_not_tested(figure):
    experiment = read(figure)
    values = {("ffm", "easy"): [1.0, 2.0], ("gru", "easy"): [0.0, 0.5]}
    records = [
        Record(row, column, seed, "done", {"final_eval": value})
        for (row, column), runs in values.items()
        for seed, value in enumerate(runs)
    ]
    verdict = Outcome(experiment.at("laptop"), records).verdict
    assert [(finding.text, finding.where) for finding in verdict.findings] == [
        ("ffm > gru", "easy"),
        ("ffm > mlp", "easy"),
        ("ffm > gru", "easy"),
        ("ffm > gru", "hard"),
        ("ffm > 0", "hard"),
        ("gru > 0", "hard"),
    ]
    states = [finding.state for finding in verdict.findings]
    assert states == ["not tested", "not tested", "undecided", "not tested", "not tested", "not tested"]
    assert verdict.word == "undecided"
    missing = Outcome(experiment.at("laptop"), records[:2]).verdict
    assert missing.word == "not run", "a cell of the budget that has not been run is no such cell"
    # At the budget with all cells, everything is expected: 1 + 1 + 2 + three rows.
    assert len(Outcome(experiment.at("paper"), records).verdict.findings) == 7


def test_a_run_is_continued_while_a_file_that_is_made_of_it_is_missing(figure, in_tmp):
    files = "files: {data/run: train run_dir=data/run, data/run.hdf5: dataset generate data/run}"
    figure.write_text(BASE.replace("laptop: {", f"laptop: {{{files}, "))
    runner = TrainingRuns(read(figure).at("laptop"), Path("reproduce"))
    assert list(runner._missing()) == ["data/run", "data/run.hdf5"]
    Path("data/run").mkdir(parents=True)
    assert list(runner._missing()) == ["data/run", "data/run.hdf5"], "it may have been interrupted"
    Path("data/run.hdf5").touch()
    Path("data/run").rmdir()
    assert not runner._missing(), "the file is all that is read"


@pytest.mark.slow
@pytest.mark.parametrize("name", catalog.names())
def test_a_shipped_file_runs_at_the_budget_smoke(in_tmp, name, capsys):
    assert main(["reproduce", name, "--budget", "smoke"]) == 0
    said = capsys.readouterr().out
    assert f"{name} at the budget smoke" in said and "only shows that it runs" in said
    made = read_results(Path("reproduce") / f"{name}-smoke" / "results.csv")
    experiment = catalog.find(name)
    planned = {(cell.row, cell.column, seed) for cell in experiment.at("smoke").cells() for seed in cell.seeds}
    assert planned <= {(record.row, record.column, record.seed) for record in made if record.state == "done"}
    measured = experiment.at("smoke").metric
    assert all(measured in r.metrics for r in made if (r.row, r.column, r.seed) in planned), f"no {measured}"


@pytest.mark.slow
@pytest.mark.parametrize("budget", ["laptop", "paper"])
@pytest.mark.parametrize("name", catalog.names())
def test_a_shipped_file_composes_at_every_budget(in_tmp, name, budget, capsys, monkeypatch):
    monkeypatch.setattr(forecast, "memory_of", lambda device: 1e15)  # of a machine that has enough for all of them
    assert main(["reproduce", name, "--budget", budget, "--dry-run"]) == 0
    assert f"{name} at the budget {budget}: " in capsys.readouterr().out


def test_every_table_and_figure_has_an_item_or_a_reason_and_every_clause_a_test_or_a_reason():
    of = [name for name in catalog.names() if not name.startswith(("familiar/", "rlmem/"))]
    found = papers()
    assert {*found} == {name.partition("/")[0] for name in of}
    places = [items for paper in found.values() for items in paper.values()]
    assert {item for items in places if isinstance(items, list) for item in items} == {*of}
    assert all(len(reason) > 5 for reason in places if isinstance(reason, str))
    for name in of:
        experiment = catalog.find(name)
        expected = [*experiment.expect, *(e for budget in experiment.budgets.values() for e in budget.expect or ())]
        assert expected, name
        assert all(e.clause for e in expected), f"{name}: an expectation without its clause of the claim"
        for budget in experiment.budgets:
            untestable = experiment.at(budget).untestable
            assert len({one.clause for one in untestable}) == len(untestable), "a clause is there twice"
            assert all(len(one.reason) > 5 for one in untestable), name


def test_the_table_of_claims_is_that_of_the_files():
    text = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")
    shown = text.partition("<!-- claims:begin -->\n")[2].partition("<!-- claims:end -->")[0]
    assert shown == claims().markdown(), "put what `rlmem list claim --markdown` says between the two comments"


def test_numbers_that_stand_alone_are_a_grid(figure):
    figure.write_text(BASE.replace("metric: final_eval", "metric: final_eval\nmean: false"))
    cells = [("ffm", "easy"), ("ffm", "hard"), ("gru", "easy"), ("gru", "hard")]
    found = [Record(*cell, 0, "done", {"final_eval": 0.5 + k}) for k, cell in enumerate(cells)]

    def first(records: list[Record], **options: bool) -> Table:
        outcome = Outcome(read(figure).at("paper"), records)
        return tables(outcome, **options)[0]

    grid = first(found)
    assert grid.title.endswith("at the end, runs of each: 1")
    assert list(grid.columns) == ["row", "easy", "hard"]
    shown = [[cell_text(cell) for cell in row] for row in grid.rows]
    assert shown == [["ffm", "0.500", "1.500"], ["gru", "2.500", "3.500"], ["mlp", "–", "–"]]
    lines = ["row", "column", "ours [95 % CI]", "runs"]
    assert list(first(found, to_read=False).columns) == lines
    again = [replace(record, seed=1) for record in found]
    assert first([*found, *again]).title.endswith("at the end [95 % CI], runs of each: 2")
    assert list(first([*found, again[0]]).columns) == lines, "not as many runs everywhere"
    beside = [replace(record, metrics=record.metrics | {"mmer": 1.0}) for record in found]
    assert list(first(beside).columns) == [*lines, "mmer"]
