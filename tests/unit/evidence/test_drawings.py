"""Experiment files with a drawing function, above all `rlmem/profile`."""

from dataclasses import replace

import pytest
from helpers import ROOT

from rlmem.core.errors import UserError
from rlmem.evidence import catalog, drawings
from rlmem.evidence.items import runner_of
from rlmem.evidence.metrics import reference_of
from rlmem.evidence.records import Record
from rlmem.evidence.verdict import Outcome

PROFILE = catalog.find("rlmem/profile").at("laptop")


@pytest.fixture
def outcome():
    """The first panel of one memory, whose last cell is missing, and all panels of another one."""
    cells = [cell for cell in PROFILE.cells(["lstm/hold", "gru"]) if cell.name != "lstm/hold held=64 symbols=16"]
    records = [Record(c.row, c.column, 0, "done", {PROFILE.metric: 50.0 + k % 9}) for k, c in enumerate(cells)]
    return Outcome(PROFILE, records)


def test_a_panel_without_a_cell_has_no_mean(outcome):
    table = drawings.means("title", outcome.verdict.cells)
    assert " ".join(table.columns) == "row hold beyond rewrite associate n-back count combine mean"
    assert table.rows[0] == ["gru", *[54.0] * 8] and "| lstm | – |" in table.markdown()
    assert drawings.means("title", replace(outcome, records=[]).verdict.cells).rows == []


def test_a_reproduction_has_a_picture_and_a_short_table(outcome, tmp_path):
    """The axes have the dials in the order of the file; the table for programs has every cell."""
    runner = runner_of(PROFILE, tmp_path)
    runner.so_far = lambda: outcome
    assert runner.written().pictures == {"heat maps": runner.folder / "picture.svg"}
    assert "gru: n-back" in (runner.folder / "picture.svg").read_text()
    assert "| gru | 54.0 |" in (runner.folder / "table.md").read_text()
    assert len((runner.folder / "table.csv").read_text().splitlines()) == 1 + 12 * 63
    axes = drawings.heat_maps(outcome.verdict.cells).axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["4", "16", "64"]
    assert [text.get_text() for text in axes.texts] == [str(50 + k) for k in range(9)]


def test_guessing_scores_0():
    """At the best guess of every task, as its class declares it."""
    from rlmem.config.compose import load
    from rlmem.config.targets import build

    for cell in PROFILE.cells(["mlp"])[::9]:
        env = load([line for line in cell.overrides if line.startswith("env")]).values["env"]
        task = build({key: value for key, value in env.items() if key != "evaluation"})
        assert task.scores().memoryless == reference_of(PROFILE.experiment.task_of(cell.column)).random


def test_the_page_describes_the_panels():
    text = (ROOT / "docs" / "profile.md").read_text(encoding="utf-8")
    for cell in PROFILE.cells(["mlp"])[::9]:
        task = next(line.removeprefix("env=") for line in cell.overrides if line.startswith("env="))
        assert f"| `{cell.column.split()[0]}` | `{task}` |" in text


def test_mistakes_are_lines(tmp_path):
    file, text = tmp_path / "mine.yaml", (ROOT / "experiments" / "rlmem" / "profile.yaml").read_text(encoding="utf-8")
    file.write_text(text.replace("draw: heat_maps", "draw: pie"))
    with pytest.raises(UserError, match="draw: input should be 'heat_maps'; got 'pie'"):
        catalog.read(file)
    file.write_text(text.replace("hold held=4 symbols=1:", "hold held=4:"))
    with pytest.raises(UserError, match="draw: the column `hold held=4`: expected a panel and two dials"):
        catalog.read(file)
    file.write_text(text.replace("n-back: choice", "n-bak: choice"))
    with pytest.raises(UserError, match="task: `n-bak` is no name here; did you mean `n-back`"):
        catalog.read(file)
