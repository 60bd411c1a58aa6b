"""The notebooks of docs run from an empty folder, with nothing but the wheel, and are stored without outputs."""

import zipfile
from pathlib import Path

import nbformat
import pytest
from helpers import ROOT
from nbclient import NotebookClient

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
WIDGET = "application/vnd.jupyter.widget-view+json"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_valid_and_stored_without_outputs(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert notebook.cells[0].source.startswith("# ")
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert code
    assert not any(cell.outputs or cell.execution_count for cell in code)


@pytest.fixture
def installed(wheel, tmp_path, monkeypatch):
    """An empty folder, from which kernels find what the wheel holds and no other rlmem."""
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def executed(path: Path, folder: Path, **replaced: str) -> nbformat.NotebookNode:
    """The notebook with the outputs of its cells; a cell that fails raises."""
    text = path.read_text(encoding="utf-8")
    for old, new in replaced.items():
        text = text.replace(old, new)
    notebook = nbformat.reads(text, as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell("print(rlmem.__file__)"))
    NotebookClient(notebook, timeout=900, kernel_name="python3", resources={"metadata": {"path": folder}}).execute()
    (said,) = notebook.cells.pop().outputs
    assert said.text.startswith(str(folder.parent / "site"))
    return notebook


def output(notebook: nbformat.NotebookNode, kind: str) -> list:
    """Every output of a MIME type."""
    shown = [each for cell in notebook.cells if cell.cell_type == "code" for each in cell.outputs]
    return [each.data[kind] for each in shown if kind in each.get("data", {})]


@pytest.mark.slow
def test_the_bar_of_a_run_is_shown_in_a_notebook(installed):
    (first,) = [path for path in NOTEBOOKS if path.stem.startswith("1_")]
    notebook = executed(first, installed, **{"60_000": "3_000", "10_000": "1_000", "episodes=200": "episodes=8"})
    assert len(output(notebook, WIDGET)) == 1  # the bar of the run with verbose=True
    assert len(output(notebook, "image/png")) == 1
    assert "done: 3,000 steps" in "".join(output(notebook, "text/html"))


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(installed, path):
    notebook = executed(path, installed)
    errors = [each for cell in notebook.cells if cell.cell_type == "code" for each in cell.outputs]
    assert not [each for each in errors if each.output_type == "error" or each.get("name") == "stderr"]
