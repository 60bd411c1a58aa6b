"""Observability gap, memory bias and memory improvability: their numbers, and where items and sweeps show them."""

import re
from pathlib import Path

import numpy as np
import pytest
from helpers import changed
from made_results import item_text

from rlmem.evidence import catalog
from rlmem.evidence.catalog import read
from rlmem.evidence.experiment import Planned
from rlmem.evidence.records import Record
from rlmem.evidence.tables import tables
from rlmem.evidence.training import size_remarks
from rlmem.evidence.twins import memory_bias, memory_improvability, observability_gap, table
from rlmem.evidence.verdict import Outcome

PARTIAL, FULL = [0.5, 0.7], [0.9, 0.9]
WITHOUT, WITHOUT_FULL = [-0.2, 0.0], [0.8, 1.0]
ITEM = item_text("memory")


@pytest.fixture
def item(tmp_path: Path) -> Path:
    path = tmp_path / "memory.yaml"
    path.write_text(ITEM)
    return path


def test_the_numbers_are_those_of_their_definitions():
    """Means 0.6, 0.9, -0.1 and 0.9; squared standard errors 0.01, 0, 0.01 and 0.01."""
    assert observability_gap(PARTIAL, FULL) == pytest.approx((0.3, 0.1))
    assert memory_bias(FULL, WITHOUT_FULL) == pytest.approx((0.0, 0.1))
    share = 0.7 / 1.0
    error = (0.01 + share**2 * 0.01 + (share - 1) ** 2 * 0.01) ** 0.5 / 1.0
    assert memory_improvability(PARTIAL, WITHOUT, WITHOUT_FULL) == pytest.approx((share, error))


def test_the_error_of_improvability_is_the_spread_of_the_ratio():
    rng = np.random.default_rng(0)
    means, errors = np.array([0.6, -0.1, 0.9]), np.array([0.02, 0.03, 0.01])
    runs = [mean + error * 8**0.5 * rng.normal(size=8) for mean, error in zip(means, errors, strict=True)]
    value, error = memory_improvability(*runs)
    drawn = [r.mean() + r.std(ddof=1) / 8**0.5 * rng.normal(size=100_000) for r in runs]
    ratio = (drawn[0] - drawn[1]) / (drawn[2] - drawn[1])
    assert error == pytest.approx(ratio.std(), rel=0.02) and value == pytest.approx(ratio.mean(), abs=2e-3)


def test_what_cannot_be_told_is_left_open():
    """One run has no spread; where full observation gains nothing beyond noise, no share of it can be recovered."""
    value, error = observability_gap([0.5], FULL)
    assert value == pytest.approx(0.4) and np.isnan(error)
    assert np.isnan(memory_improvability(PARTIAL, WITHOUT, [-0.2, 0.2])).all()
    assert np.isnan(memory_improvability(PARTIAL, WITHOUT, WITHOUT)).all()
    assert memory_improvability([0.5], [0.0], [1.0]).value == pytest.approx(0.5), "single runs have values"
    (line,) = table("x", {("gru", ""): [PARTIAL, FULL]}).rows
    assert line[-2:] == [None, None], "nobody without memory to compare with"


def test_less_may_be_better():
    (line,) = table("x", {("gru", "easy"): [[0.5], [0.2], [0.8], [0.2]]}, higher=False).rows
    gap, bias, improvability = (value.mean for value in line[-3:])
    assert line[2:4] == [0.5, 0.2]
    assert (gap, bias, improvability) == pytest.approx((0.3, 0.0, 0.5))


def test_an_item_is_run_on_twins_as_well(item):
    """An exception and a choice of a row concern its twin, too, and the twin's overrides come last."""
    experiment = read(item)
    assert list(experiment.rows) == ["gru tape", "mlp tape", "gru tape full", "mlp tape full"]
    for budget in ("laptop", "paper"):
        planned = {cell.name: cell for cell in experiment.at(budget).cells()}
        rows = ("gru tape/easy", "mlp tape/easy", "mlp tape/hard")
        assert list(planned) == [*rows, *(name.replace("/", " full/") for name in rows)]
        for name in rows:
            own, twin = planned[name], planned[name.replace("/", " full/")]
            assert twin.overrides == (*own.overrides, "env.observe=full") and twin.reasons == own.reasons
    assert experiment.at("paper").skipped() == {(row, "hard"): "too long" for row in ("gru tape", "gru tape full")}
    changed(item, "twins: mlp tape\n", "")
    assert read(changed(item, "expect: [gru tape full > gru tape on easy]\n", "")).at("paper").twin_of == {}


def test_the_overrides_of_a_twin_may_be_given(item):
    experiment = read(changed(item, "twins: mlp tape", "twins: {memoryless: mlp tape, full: [env=cartpole]}"))
    assert experiment.at("paper").cells(["mlp tape full/easy"])[0].overrides[0] == "env=cartpole"


def test_the_tables_of_an_item_show_what_its_twins_tell(item):
    outcome = filled(read(item).at("paper"))
    *_, shown = tables(outcome)
    assert shown.columns[-3:] == ["observability gap ± SE", "memory bias ± SE", "memory improvability ± SE"]
    by_place = {tuple(line[:2]): line for line in shown.rows}
    assert list(by_place) == [("gru tape", "easy"), ("mlp tape", "easy"), ("mlp tape", "hard")]
    gru, mlp = by_place["gru tape", "easy"], by_place["mlp tape", "easy"]
    assert gru[2:4] == pytest.approx([0.6, 0.9])
    assert [(v.mean, v.std) for v in gru[4:6]] == [pytest.approx((0.3, 0.1)), pytest.approx((0.0, 0.1))]
    assert gru[6].mean == pytest.approx(0.7)
    assert mlp[4].mean == pytest.approx(1.0) and mlp[5:] == [None, None], "it is what the others are compared with"
    assert "0.300 ± 0.100" in shown.markdown()
    alone = filled(outcome.planned, twins=False)
    assert "is it memory?" not in "".join(each.title for each in tables(alone))


def filled(planned: Planned, twins: bool = True) -> Outcome:
    runs = {"gru tape": PARTIAL, "gru tape full": FULL, "mlp tape": WITHOUT, "mlp tape full": WITHOUT_FULL}
    return Outcome(
        planned,
        [
            Record(cell.row, cell.column, seed, "done", {"final_eval": runs[cell.row][seed]})
            for cell in planned.cells()
            for seed in cell.seeds
            if twins or cell.row not in planned.twin_of
        ],
    )


def test_agents_are_of_equal_capacity_or_that_they_are_not_is_said(item):
    planned = catalog.find("rlmem/twins").at("laptop")
    (line,) = size_remarks(planned, planned.cells())
    numbers = [int(word.replace(",", "")) for word in re.findall(r"[\d,]{5,}\d", line)]
    assert line.startswith("parameters of the agents and numbers in the states of their memories: ffm ")
    assert len(numbers) == 3
    assert "apart" not in line and max(numbers) < 1.1 * min(numbers)
    mine = read(item).at("laptop")
    (line,) = size_remarks(mine, mine.cells(["easy"]))
    assert line.endswith("; parameters more than 10% apart: gru tape")
    changed(item, "twins: mlp tape\n", "")
    plain = read(changed(item, "expect: [gru tape full > gru tape on easy]\n", "")).at("laptop")
    assert size_remarks(plain, plain.cells()) == []
