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
from rlmem.evidence.records import SERIES, compressed, read_series, write_series
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


def found(folder: Path, pictures: bool = False) -> list[str]:
    return verify(folder / "results", folder / "RESULTS.md", pictures).differs


def copied(item: str, folder: Path) -> Path:
    """The shipped results of an item in a folder of their own, without its pictures."""
    target = folder / "copied" / item
    target.parent.mkdir(parents=True)
    for file in (ROOT / "results").glob(f"{item}.laptop*.csv*"):
        shutil.copy(file, target.parent)
    return target.with_name(f"{target.name}.laptop.csv")


def change(file: Path, pattern: str, new: str) -> None:
    text, count = re.subn(pattern, new, file.read_text(), count=1, flags=re.MULTILINE)
    assert count == 1 and text != file.read_text()
    file.write_text(text)


def test_what_was_just_published_follows_from_its_data(published, capsys):
    assert main(["verify-results", str(published / "results"), "--no-pictures"]) == 0
    said = capsys.readouterr().out
    assert "nothing differs" in said and "differs  " not in said
    assert int(re.search(r"([\d,]+) numbers recomputed", said)[1].replace(",", "")) > 100  # type: ignore[index]


CHANGES = {
    "digit": (f"results/{ITEM}.csv", r"^lru tape,repeat_first,0,.*,0\.\d\d(\d)"),
    "run": (f"results/{ITEM}.csv", r"^(lru tape,repeat_first,1,.*\n)"),
    "point": (f"results/{ITEM}.curves.csv", r"^lru tape,repeat_first,0,10000,0\.\d(\d)"),
    "cell": ("RESULTS.md", r"^\| lru tape \| repeat_first \| 0\.\d\d(\d)"),
    "verdict": ("RESULTS.md", r"^\*\*(supported|undecided|contradicted)\*\*"),
}
"""What is changed in which file: a digit to another one, a line to none, a word to another."""


@pytest.mark.parametrize("what", CHANGES)
def test_one_changed_digit_or_verdict_and_a_missing_run_are_found(published, what, capsys):
    """By checksums, and by recomputing."""
    file, pattern = published / CHANGES[what][0], CHANGES[what][1]
    old = re.search(pattern, file.read_text(), re.MULTILINE)
    assert old
    new = "" if "\n" in old[1] else str((int(old[1]) + 1) % 10) if old[1].isdigit() else "matches"
    file.write_text(old.string[: old.start(1)] + new + old.string[old.end(1) :])
    assert main(["verify-results", str(published / "results"), "--no-pictures"]) == 1
    differs = [line for line in capsys.readouterr().out.splitlines() if line.startswith("differs  ")]
    assert any("checksum" in line and file.name in line for line in differs) == (file.suffix == ".csv")
    differs = [line for line in differs if "checksum" not in line]
    assert any(("matches" if what == "verdict" else "lru tape") in line for line in differs)


def test_a_file_that_is_lost_or_put_there_is_found(published):
    (published / f"results/{ITEM}.curves.csv").unlink()
    (published / "results/memoroids/more.csv").touch()
    differs = found(published)
    assert f"{published}/results/{ITEM}.curves.csv: is missing; SHA256SUMS lists it" in differs
    assert f"{published}/results/memoroids/more.csv: is not listed in SHA256SUMS" in differs


def test_a_picture_is_held_to_its_curves_and_not_to_a_version_of_matplotlib(published):
    for other in (published / "results").iterdir():
        if other.name not in ("memoroids", "SHA256SUMS"):
            shutil.rmtree(other)
    (published / "results/SHA256SUMS").unlink()
    (published / "RESULTS.md").unlink()
    svg = published / f"results/{ITEM}.svg"
    change(svg, r"<svg ", "<!-- drawn elsewhere --><svg ")
    again = verify(published / "results")
    assert again.differs == [] and again.pictures == 1
    assert f"{svg}: was drawn by another version of matplotlib; it shows the same" in again.notes
    elsewhere = svg.read_text()
    for pattern, new in ((r'(id="mean-0">\s*<path d="M \d+)', r"\g<1>1"), (">lru tape<", ">gru tape<")):
        svg.write_text(elsewhere)
        change(svg, pattern, new)
        assert verify(published / "results").differs == [f"{svg}: its curves or words are not those of the data"]


def test_what_is_shipped_or_named_may_not_be_lacking(published, monkeypatch, capsys):
    folder = published / "results"
    assert main(["verify-results", str(folder), "--no-pictures", "--markdown", str(published / "no.md")]) == 1
    assert f"differs  {published}/no.md: there is none to compare" in capsys.readouterr().out
    (folder / "SHA256SUMS").unlink()
    (published / "RESULTS.md").unlink()
    assert verify(folder, pictures=False).differs == []
    monkeypatch.setattr("rlmem.evidence.page.verify.results_dir", lambda: folder)
    one, other = verify(folder, pictures=False).differs
    assert one.startswith(f"{folder}/SHA256SUMS: there is none") and other.startswith(f"{published}/RESULTS.md: there")


def test_results_of_which_nothing_can_be_recomputed_are_not_confirmed(tmp_path):
    copied("lprnn/figure2", tmp_path)
    assert verify(tmp_path / "copied").differs == [f"{tmp_path}/copied: nothing of it could be recomputed"]


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
    assert (again.differs, again.pictures, again.documents) == ([], 1, 1)
    change(page, r"^(\| 1 .*\| gru \| )1.00", r"\g<1>0.99")
    change(picture, r'(id="line2d_\d+">\s*<path d="M \d+)', r"\g<1>1")
    differs = verify(tmp_path / "results").differs
    assert any(f"{page}: -| 1 [1, 1] | gru | 0.99" in line for line in differs)
    assert differs[-1] == f"{picture}: its curves or words are not those of the data"


def test_the_leaderboard_of_rlmem_has_its_page():
    """What is found by these names is written and verified as soon as there are results."""
    assert MARK in (ROOT / "docs/leaderboard.md").read_text(encoding="utf-8")
    assert catalog.find("rlmem/leaderboard").leaderboard is not None


def test_code_in_no_commit_and_what_cannot_be_recomputed_are_named(tmp_path):
    one = outcome()
    records = [replace(r, commit="abc+changes") for r in one.records]
    records[0] = replace(records[0], metrics={**records[0].metrics, "mmer": 1.0})
    publish(replace(one, records=records), tmp_path / "results")
    notes = " ".join(verify(tmp_path / "results", pictures=False).notes)
    assert "memoroids/figure4 laptop: some runs are of code that is in no commit (abc+changes)" in notes
    assert "not recomputed, read from series that are not stored: mmer of memoroids/figure4 laptop" in notes
    assert f"{tmp_path / 'RESULTS.md'}: there is none to compare" in notes


def test_a_metric_that_its_series_does_not_give_is_found(tmp_path):
    made = outcome()
    publish(made, tmp_path / "results")
    file = tmp_path / f"results/{ITEM}{SERIES}"
    points = {
        (c.row, c.column, c.seed, "eval/greedy/return_mean"): list(zip(c.steps, c.values, strict=True))
        for c in made.curves
    }
    write_series(points, file)
    first = file.read_bytes()
    assert read_series(file).keys() == points.keys()
    assert verify(tmp_path / "results", pictures=False).differs == []
    points["lru tape", "repeat_first", 0, "eval/greedy/return_mean"][-1] = (10_000, 0.5)
    write_series(points, file)
    assert file.read_bytes() != first
    said = verify(tmp_path / "results", pictures=False).differs
    assert any("final_eval of lru tape on repeat_first, seed 0, is" in line and "give 0.5" in line for line in said)
    assert any("lru tape on repeat_first, seed 0, is not its series" in line for line in said)
    file.write_bytes(b"nothing")
    assert main(["verify-results", str(tmp_path / "results")]) == 2


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
