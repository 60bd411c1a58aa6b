"""`rlmem verify-results`: what is published follows from its data, and every change of either is found."""

import csv
import gzip
import io
import re
import shutil
from collections import defaultdict
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
from helpers import ROOT
from made_results import BOARD, outcome, ranked, results

from rlmem.commands.cli import main
from rlmem.evidence import catalog
from rlmem.evidence.items import standing
from rlmem.evidence.page.documents import FIELDS
from rlmem.evidence.page.leaderboard import MARK
from rlmem.evidence.page.verify import verify
from rlmem.evidence.records import compressed
from rlmem.evidence.tables import publish

ITEM = "memoroids/figure4.laptop"


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A folder with results, RESULTS.md, pictures and checksums."""
    folder = tmp_path_factory.mktemp("made")
    assert main(["report", str(results(folder / "results")), "--markdown", str(folder / "RESULTS.md")]) == 0
    return folder


@pytest.fixture
def published(made, tmp_path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "published"))


def change(file: Path, pattern: str, new: str) -> None:
    text, count = re.subn(pattern, new, file.read_text(), count=1, flags=re.MULTILINE)
    assert count == 1 and text != file.read_text()
    file.write_text(text)


def test_what_was_just_published_follows_from_its_data(published, capsys):
    assert main(["verify-results", str(published / "results")]) == 0
    said = capsys.readouterr().out
    assert "and 1 documents compared; nothing differs" in said and "differs  " not in said


CHANGES = {
    "digit": (f"results/{ITEM}.csv", r"^lru tape,repeat_first,0,.*,0\.\d\d(\d)"),
    "run": (f"results/{ITEM}.csv", r"^(lru tape,repeat_first,1,.*\n)"),
    "point": (f"results/{ITEM}.curves.csv", r"^lru tape,repeat_first,0,10000,0\.\d(\d)"),
    "picture": (f"results/{ITEM}.svg", r">lru (tape)<"),
    "cell": ("RESULTS.md", r"^\| lru tape \| repeat_first \| 0\.\d\d(\d)"),
    "verdict": ("RESULTS.md", r"^\*\*(supported|undecided|contradicted)\*\*"),
}
"""What is changed in which file: a digit to another one, a line to none, a word to another."""


@pytest.mark.parametrize("what", CHANGES)
def test_one_changed_digit_or_verdict_and_a_missing_run_are_found(published, what, capsys):
    """By checksums, and in the document."""
    file, pattern = published / CHANGES[what][0], CHANGES[what][1]
    old = re.search(pattern, file.read_text(), re.MULTILINE)
    assert old
    new = "" if "\n" in old[1] else str((int(old[1]) + 1) % 10) if old[1].isdigit() else "matches"
    file.write_text(old.string[: old.start(1)] + new + old.string[old.end(1) :])
    assert main(["verify-results", str(published / "results")]) == 1
    differs = [line for line in capsys.readouterr().out.splitlines() if line.startswith("differs  ")]
    assert any("checksum" in line and file.name in line for line in differs) == (file.suffix != ".md")
    named = {"digit": "lru tape", "cell": "lru tape", "verdict": "matches", "run": "written"}
    assert what not in named or any("RESULTS.md: " in line and named[what] in line for line in differs)


def test_a_file_that_is_lost_or_put_there_is_found(published):
    (published / f"results/{ITEM}.curves.csv").unlink()
    (published / "results/memoroids/more.csv").touch()
    differs = verify(published / "results").differs
    assert f"{published}/results/{ITEM}.curves.csv: is missing; SHA256SUMS lists it" in differs
    assert f"{published}/results/memoroids/more.csv: is not listed in SHA256SUMS" in differs


def test_what_is_shipped_or_named_may_not_be_lacking(published, monkeypatch, capsys):
    folder = published / "results"
    assert main(["verify-results", str(folder), "--markdown", str(published / "no.md")]) == 1
    assert f"differs  {published}/no.md: there is none to compare" in capsys.readouterr().out
    (folder / "SHA256SUMS").unlink()
    (published / "RESULTS.md").unlink()
    assert verify(folder).differs == [f"{folder}: there is nothing to compare it with"]
    monkeypatch.setattr("rlmem.evidence.page.verify.results_dir", lambda: folder)
    one, other, _ = verify(folder).differs
    assert one.startswith(f"{folder}/SHA256SUMS: there is none") and other.startswith(f"{published}/RESULTS.md: there")


def test_the_ranking_of_a_page_is_written_and_held_to_its_results(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "site"))
    write = import_module("counted").ranked
    file = tmp_path / "mine/board.yaml"
    file.parent.mkdir()
    file.write_text(BOARD)
    publish(ranked(file, {"gru": [[1.0, 1.0]] * 2, "mlp": [[0.1, 0.5]] * 2}), tmp_path / "results")
    file.rename(tmp_path / "results/mine/board.laptop.yaml")
    assert [*write(tmp_path)] == [], "there is no page"
    page, picture = tmp_path / "docs/board.md", tmp_path / "docs/images/board.svg"
    page.parent.mkdir()
    page.write_text("# Mine\n\n<!-- leaderboard:begin -->\n<!-- leaderboard:end -->\n\nAfter.\n")
    assert [*write(tmp_path)] == [page, picture]
    again = verify(tmp_path / "results")
    assert (again.differs, again.documents) == ([], 1)
    change(page, r"^(\| 1 .*\| gru \| )1.00", r"\g<1>0.99")
    assert any(f"{page}: -| 1 [1, 1] | gru | 0.99" in line for line in verify(tmp_path / "results").differs)


def test_the_leaderboard_of_rlmem_has_its_page():
    """What is found by these names is written and verified as soon as there are results."""
    assert MARK in (ROOT / "docs/leaderboard.md").read_text(encoding="utf-8")
    assert catalog.find("rlmem/leaderboard").leaderboard is not None


def test_code_in_no_commit_and_what_cannot_be_compared_are_named(tmp_path):
    one = outcome()
    publish(replace(one, records=[replace(r, commit="abc+changes") for r in one.records]), tmp_path / "results")
    notes = " ".join(verify(tmp_path / "results").notes)
    assert "memoroids/figure4 laptop: some runs are of code that is in no commit (abc+changes)" in notes
    assert f"{tmp_path / 'RESULTS.md'}: there is none to compare" in notes


def test_equal_texts_are_compressed_to_equal_bytes():
    assert compressed("a\n") == compressed("a\n") and gzip.decompress(compressed("é\n")).decode() == "é\n"
    assert compressed("a\n")[4:8] == bytes(4), "no time"


# The numbers as one file, as LaTeX, and as a list


def test_one_file_has_all_numbers_and_a_card_its_columns(made, tmp_path):
    file = tmp_path / "results.csv.gz"
    command = ["report", str(made / "results"), "--data", str(file)]
    assert main(command) == 0
    first = file.read_bytes()
    assert main(command) == 0 and file.read_bytes() == first
    lines = list(csv.DictReader(io.StringIO(gzip.decompress(first).decode())))
    assert tuple(lines[0]) == FIELDS
    card = (ROOT / "results/README.md").read_text(encoding="utf-8")
    described = re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (`[^|]*`) \|", card, re.MULTILINE)))
    assert set(FIELDS) <= set(described)
    runs, means = defaultdict(list), {}
    for line in (line for line in lines if line["item"] == "memoroids/figure4"):
        if line["kind"] == "metric" and line["name"] == "best_eval":
            runs[line["row"], line["column"]].append(float(line["value"]))
        if line["kind"] == "cell" and line["name"] == "mean":
            means[line["row"], line["column"]] = float(line["value"])
    for place, values in runs.items():
        assert means[place] == pytest.approx(sum(values) / len(values), rel=1e-6)
    assert {line["kind"] for line in lines} == {"cell", "metric", "curve"}
    assert {line["commit"] for line in lines if line["kind"] == "metric"} == {"0123456789ab"}


def test_every_item_has_its_tables_as_latex_and_its_curves_as_pdf(tmp_path):
    for name in ("lprnn/figure2", "rlmem/state_tracking"):  # measured, and trained
        for file in (ROOT / "results").glob(f"{name}.laptop*.csv"):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            shutil.copy(file, (tmp_path / name).parent)
    command = ["report", str(tmp_path / "lprnn"), str(tmp_path / "rlmem"), "--latex", str(tmp_path / "latex")]
    assert main(command) == 0
    files = {path.relative_to(tmp_path / "latex").as_posix(): path.read_bytes() for path in tmp_path.glob("latex/*/*")}
    trained = "rlmem/state_tracking.laptop"
    assert {*files} == {"lprnn/figure2.laptop.tex", f"{trained}.tex", f"{trained}.pdf"}
    for name, content in files.items():
        assert content.startswith(b"%PDF" if name.endswith("pdf") else b"% ")
    assert rb"\caption{What the claim expects of lprnn/figure2: supported}" in files["lprnn/figure2.laptop.tex"]
    assert not (tmp_path / "report.html").exists()


@pytest.mark.slow
def test_how_every_item_stands_is_listed(capsys):
    assert main(["list", "experiment", "--markdown"]) == 0
    lines = [[cell.strip(" `") for cell in line.split("|")[1:-1]] for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == ["item", "budget", "verdict", "runs", "commit"]
    assert {line[0] for line in lines[2:]} >= set(catalog.names())
    assert ["lprnn/figure2", "laptop", "supported", "12 of 12", "ff9080900c7d"] in lines
    open_ = [line for line in lines[2:] if line[3].startswith("0 of")]
    assert all(line[2] == "not run" and line[4] == "" for line in open_)
    experiment = catalog.find("lprnn/figure2")
    assert str(standing(experiment.at("laptop"))) == "supported, 12 of 12 runs, commit ff9080900c7d"
    assert str(standing(experiment.at("smoke"))) == "not run, 0 of 12 runs"


@pytest.mark.slow
def test_all_that_is_shipped_follows_from_its_data():
    assert main(["verify-results", str(ROOT / "results")]) == 0
