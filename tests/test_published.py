"""The papers' numbers: printed once, cited, and consistent but for two misprints."""

import csv
import re

import pytest
from rlmem_envs.occlusion.robots import PUBLISHED as ROBOTS

from rlmem.config.paths import conf_dir
from rlmem.errors import Fault, UserError
from rlmem.evidence.published import PAPERS, averages, load, misprints
from rlmem.stats import REFERENCES, expert_normalised, reference_of

FOLDER = conf_dir().parent / "experiments" / "published"
TABLES = {
    ("ffm", "table3"): 8,
    ("ffm", "table4"): 14,
    ("shm", "table1"): 39,
    ("memoroids", "figure5"): 5,
    ("rethinking_transformers", "table2"): 27,
    ("rethinking_transformers", "table5"): 8,
    ("rethinking_transformers", "table6"): 24,
    ("rethinking_transformers", "table7"): 27,
    ("rethinking_transformers", "table8"): 9,
}


def only(**wanted):
    (row,) = [row for row in load() if all(getattr(row, name) == value for name, value in wanted.items())]
    return row


def test_every_file_is_of_a_paper_and_every_row_of_its_file():
    assert {path.stem for path in FOLDER.glob("*.csv")} == set(PAPERS)
    for paper in PAPERS:
        assert {row.paper for row in load(paper)} == {paper}
    assert sum(len(list(csv.DictReader(path.open()))) for path in FOLDER.glob("*.csv")) == len(load()) == 284


def test_no_number_is_there_twice():
    keys = [(row.paper, row.item, row.task, row.model, row.metric) for row in load()]
    assert len(set(keys)) == len(keys)


def test_every_number_is_cited():
    for row in load():
        author, _, rest = PAPERS[row.paper].partition(", ")
        arxiv = rest.rpartition(", ")[2]
        assert re.fullmatch(r"arXiv:\d{4}\.\d{5}", arxiv)
        assert row.source.startswith(f"{author}, {arxiv}, "), row
        place = re.fullmatch(r"(table|figure|section|appendix)([\w.]+)", row.item)
        assert place is None or place[2] in row.source, row


@pytest.mark.parametrize(("paper", "item"), TABLES)
def test_tables_are_whole(paper, item):
    assert len(load(paper, item)) == TABLES[paper, item]


def test_what_a_paper_prints_is_read():
    row = only(paper="rethinking_transformers", item="table6", task="Hopper-P", model="LSTM")
    assert (row.mean, row.std, row.n, row.metric) == (2637.0, 190.7, 5, "return")
    row = only(paper="ffm", item="table4", model="S4D")
    assert (row.mean, row.std, row.n) == (-0.18, None, None)


def test_a_mistyped_paper_or_table_is_named_with_what_there_is():
    with pytest.raises(UserError, match=r"published paper shn: no such one; did you mean `shm`\? accepted: ffm, "):
        load("shn")
    with pytest.raises(UserError, match=r"published item table9: no such one; did you mean `table8`\?"):
        load("rethinking_transformers", "table9")


def test_missing_data_are_a_fault_of_the_installation(monkeypatch, tmp_path):
    monkeypatch.setattr("rlmem.evidence.published.experiments_dir", lambda: tmp_path)
    with pytest.raises(Fault, match="missing from this installation"):
        load("ffm")


def test_the_random_and_expert_returns_are_those_of_table_5():
    for row in load("rethinking_transformers", "table5"):
        reference = reference_of(row.task)
        assert row.mean == {"random": reference.random, "expert": reference.expert}[row.model]
    assert {name: (r.random, r.expert) for name, r in REFERENCES.items()} == ROBOTS


@pytest.mark.parametrize(("scores", "returns"), [("table2", "table6"), ("table7", "table7")])
def test_every_normalised_score_is_equation_3_of_its_return(scores, returns):
    cells = [row for row in load("rethinking_transformers", scores) if row.metric == "normalised_score"]
    cells = [row for row in cells if row.task != "average"]
    assert len(cells) == {"table2": 24, "table7": 12}[scores]
    for cell in cells:
        of = only(item=returns, task=cell.task, model=cell.model, metric="return")
        reference = reference_of(cell.task)
        assert cell.mean == pytest.approx(float(expert_normalised(of.mean, reference)), abs=0.1), cell
        assert cell.std == pytest.approx(of.std * reference.scale, abs=0.1), cell


def test_every_printed_average_is_recomputed():
    found = {(a.printed.paper, a.printed.item, a.printed.model): a for a in averages()}
    papers = [("shm", "table1", m) for m in ("GRU", "FFM", "SHM")]
    papers += [("rethinking_transformers", t, m) for t in ("table2", "table7") for m in ("LRU", "GPT", "LSTM")]
    assert set(found) == set(papers)
    assert [len(found[key].cells) for key in papers] == [12] * 3 + [8] * 3 + [4] * 3
    wrong = {key for key, average in found.items() if not average.agrees}
    assert wrong == {("shm", "table1", "FFM"), ("rethinking_transformers", "table2", "LRU")}
    assert found["shm", "table1", "FFM"].recomputed == pytest.approx(-23.69, abs=0.005)
    assert found["rethinking_transformers", "table2", "LRU"].recomputed == pytest.approx(87.6, abs=0.05)


def test_there_are_two_misprints():
    cell, average = sorted(misprints(), key=lambda misprint: misprint.published.mean)
    assert (cell.published.paper, cell.published.task, cell.published.model) == ("shm", "AutoencodeMedium", "FFM")
    easy = only(paper="shm", item="table1", task="AutoencodeEasy", model="FFM")
    assert (cell.published.mean, cell.published.std) == (easy.mean, easy.std) == (-32.7, 0.6)
    others = [row.mean for row in load("shm", "table1") if row.model == "FFM" and row.task != "average"]
    assert round((sum(others) - cell.published.mean + cell.restored) / 12, 1) == -24.2
    assert cell.restored == pytest.approx(-38.7, abs=0.6)  # an average to 0.1 tells a cell of 12 to 0.6
    assert "repeats AutoencodeEasy" in cell.reason
    assert (average.published.task, average.published.model, average.published.mean) == ("average", "LRU", 88.2)
    assert average.restored == pytest.approx(87.6, abs=0.05)
    assert "88.2" in average.reason
