"""The papers' numbers: printed once, cited, and consistent but for two misprints."""

import csv
import re

import pytest
from rlmem_envs.occlusion.robots import PUBLISHED as ROBOTS

from rlmem.config.paths import conf_dir
from rlmem.core.errors import Fault, UserError
from rlmem.evidence.metrics import REFERENCES, expert_normalised, reference_of
from rlmem.evidence.published import PAPERS, load, misprints

FOLDER = conf_dir().parent / "experiments" / "published"


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


def test_two_numbers_are_misprints_and_every_other_average_agrees_with_its_cells():
    """Averages are recomputed from the printed cells, those of normalised scores from the printed returns."""
    gaps = {}
    for printed in [row for row in load() if row.task == "average"]:
        cells = [row for row in load(printed.paper, printed.item) if row.model == printed.model]
        cells = [row for row in cells if row.metric == printed.metric and row.task != "average"]
        values = [row.mean for row in cells]
        if printed.metric == "normalised_score":
            item = {"table2": "table6"}.get(printed.item, printed.item)
            returns = (only(item=item, task=row.task, model=row.model, metric="return").mean for row in cells)
            values = [expert_normalised(r, reference_of(row.task)) for r, row in zip(returns, cells, strict=True)]
        gaps[printed.paper, printed.item, printed.model] = printed.mean - sum(values) / len(values), len(values)
    assert sorted(number for _, number in gaps.values()) == [4] * 3 + [8] * 3 + [12] * 3
    wrong = {key: gap for key, (gap, _) in gaps.items() if abs(gap) > 0.1}
    assert set(wrong) == {("shm", "table1", "FFM"), ("rethinking_transformers", "table2", "LRU")}
    cell, average = misprints()
    easy = only(paper="shm", item="table1", task="AutoencodeEasy", model="FFM")
    assert (cell.published.task, cell.published.model) == ("AutoencodeMedium", "FFM")
    assert (cell.published.mean, cell.published.std) == (easy.mean, easy.std) == (-32.7, 0.6)
    assert cell.restored == pytest.approx(cell.published.mean + 12 * wrong["shm", "table1", "FFM"], abs=0.05)
    assert (average.published.task, average.published.model, average.published.mean) == ("average", "LRU", 88.2)
    assert average.restored == pytest.approx(88.2 - wrong["rethinking_transformers", "table2", "LRU"], abs=0.005)
    assert f"{easy.task}" in cell.reason and "87.58" in average.reason
