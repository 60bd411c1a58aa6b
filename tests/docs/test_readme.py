"""README.md, CONTRIBUTING.md and docs run: commands on small budgets, example files, make targets."""

import html
import json
import os
import re
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from helpers import ROOT, fast_only, options
from pages import blocks, commands, small, with_examples

from rlmem.commands.cli import main
from rlmem.commands.toolkit import Parser
from rlmem.config.compose import load
from rlmem.evidence import catalog
from rlmem.evidence.records import shipped_records
from rlmem.evidence.verdict import Outcome
from rlmem.record.tables import cell_text

PAGES = (
    "README.md", "CONTRIBUTING.md", "docs/algorithms.md", "docs/analysis.md", "docs/any-observation.md",
    "docs/batching.md", "docs/claim-to-verdict.md", "docs/command-line.md", "docs/environments.md",
    "docs/experiments.md", "docs/horizon.md", "docs/index.md", "docs/logging.md", "docs/memory.md",
    "docs/own-memory.md", "docs/profile.md", "docs/reliability.md", "docs/start.md",
)  # fmt: skip
"""Those whose commands are run here, one after another in one folder, as later ones use the runs of earlier ones."""

COMPOSED = ("README.md", "docs/command-line.md", "docs/start.md")
AFTERWARDS = ("docs/any-observation.md", "docs/own-memory.md", "docs/start.md")
"""Pages whose Python goes on from what their commands and example files left in the folder."""


@pytest.mark.parametrize("document", fast_only(["docs/own-memory.md"], PAGES))
def test_the_commands_of_a_page_run_one_after_another(tmp_path, document, monkeypatch):
    """On small budgets, in this process and in copies of one that has torch at hand."""
    with_examples(document, tmp_path)
    monkeypatch.chdir(tmp_path)
    for command in map(small, commands(document)):
        monkeypatch.setattr(sys, "path", [*sys.path])  # the command line adds the current folder
        assert main(shlex.split(command)[1:]) == 0, command
    if document in AFTERWARDS:
        session: dict = {}
        for block in blocks(document):
            if block.language == "python" and not block.file:
                exec(compile(block.text, document, "exec"), session)


def test_the_commands_of_every_page_are_accepted(tmp_path, monkeypatch):
    """The arguments of every verb are parsed, and the overrides of a few pages are composed."""
    for document in (*PAGES, "docs/clusters.md", "docs/reports.md", "docs/sweeps.md"):
        (tmp_path / document).mkdir(parents=True)
        monkeypatch.chdir(with_examples(document, tmp_path / document))
        lines = [shlex.split(line, comments=True)[1:] for line in commands(document)]
        assert lines, document
        for verb, *words in lines:
            if verb == "train" and document in COMPOSED and "-m" not in words:
                load([word for word in words if not word.startswith("--")])
            elif not {"-h", "--help"} & {*words}:
                Parser(verb, words).parse_intermixed_args(words)


def transcripts() -> list[tuple[str, str]]:
    """(command, output) of the text blocks that begin with a `$` line."""
    documents = ("README.md", "docs/command-line.md")
    shown = {b.text for name in documents for b in blocks(name) if b.language == "text" and b.text.startswith("$ ")}
    return [(text.partition("\n")[0][2:], text.partition("\n")[2]) for text in sorted(shown)]


@pytest.mark.parametrize(("command", "output"), transcripts())
def test_the_mistakes_shown_are_answered_as_shown(tmp_path, command, output):
    """In a shell of its own: the installed command, its exit code and its whole answer."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path}
    done = subprocess.run(["bash", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (2, output)


def test_every_make_target_named_exists():
    workflows = [str(path.relative_to(ROOT)) for path in (ROOT / ".github" / "workflows").glob("*.yml")]
    documents = ("README.md", "CONTRIBUTING.md", "AGENTS.md", ".ci/run", *workflows)
    named = set()
    for document in documents:
        for match in re.finditer(r"(?:^|`|run: )make ((?:[a-z-]+ ?)+)", (ROOT / document).read_text(), re.MULTILINE):
            named |= set(match[1].split())
    assert {"demo", "test"} <= named
    for target in sorted(named):
        done = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def test_every_linked_file_exists():
    documents = [path.name for path in ROOT.glob("*.md")] + [f"docs/{path.name}" for path in ROOT.glob("docs/*.md")]
    for document in documents:
        text = (ROOT / document).read_text()
        for target in re.findall(r"\]\(([^)#:]+)\)", text):
            assert (ROOT / document).parent.joinpath(target).exists(), f"{document} links to {target}"


REPOSITORY, SITE = "https://github.com/rlmem/rlmem/blob/main/", "https://rlmem.github.io/rlmem/"
RAW = "https://raw.githubusercontent.com/rlmem/rlmem/main/"


def test_the_links_of_the_readme_work_on_a_package_index_and_lead_to_what_there_is():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    targets = re.findall(r"\]\(([^)]+)\)", text)
    assert targets
    for target in targets:
        assert target.startswith("https://"), f"{target}: a package index shows README.md without the repository"
        if target.startswith((REPOSITORY, RAW)):
            assert (ROOT / target.partition("#")[0].removeprefix(REPOSITORY).removeprefix(RAW)).is_file(), target
        elif target.startswith(SITE) and target != SITE:
            page = target.partition("#")[0].removeprefix(SITE).strip("/")
            assert (ROOT / "docs" / f"{page}.md").is_file(), target


def test_the_readme_and_the_site_count_what_has_been_reproduced(monkeypatch):
    """The counts are those of RESULTS.md, which `make verify` checks against the results."""
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "site"))
    counted = import_module("counted")
    results = (ROOT / "RESULTS.md").read_text(encoding="utf-8")
    assert re.fullmatch(r"\|  \|( [a-z ]+ \|)+\n\| --- \|( ---: \|)+\n\| all \|( \d+ \|)+\n", counted.summary(results))
    for document in counted.DOCUMENTS:
        text = (ROOT / document).read_text(encoding="utf-8")
        assert counted.counted(text, results) == text, "run `make results`"


def test_documents_compare_speeds_as_measured():
    """One LSTM with one LSTM, both on padded segments; and what a second thread gains."""
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    files = (ROOT / "benchmarks").glob("train-*.json")
    speeds = {file.stem: json.loads(file.read_text())["steps_per_second"] for file in files}
    two, one = (speeds[f"train-zen-4-{threads}"] for threads in ("2-threads", "1-thread"))
    ffm, lstm, gru = (two[f"rlmem {name} tape"] / one[f"rlmem {name} tape"] for name in ("ffm", "lstm", "gru"))
    design = " ".join((ROOT / "docs/design.md").read_text(encoding="utf-8").split())
    assert f"it gains {ffm:.2f} times with FFM, {lstm:.2f} with an LSTM and {gru:.2f} with a GRU on a Zen 4" in design
    ratios = [rates["rlmem lstm segment"] / rates["sb3 shared lstm"] for rates in speeds.values()]
    assert f"rlmem trains {min(ratios):.1f} to {max(ratios):.1f} times as many steps per second" in text
    assert f"[{len(options('memory'))} options]" in text and f"| {len(options('memory'))} options |" in text


def test_the_pictures_of_the_readme_show_its_commands():
    images = ROOT / "docs" / "images"
    named = re.findall(r'Picture\("(.+?)"', (images / "record.py").read_text())
    drawn = {name: html.unescape((images / f"{name}.svg").read_text()) for name in ("run", "verdict")}
    assert len(named) == 2 == len(set(named) & set(map(plain, commands("README.md"))))
    assert all(any(f"$ {command}<" in picture for picture in drawn.values()) for command in named)
    experiment = catalog.find("lprnn/figure4")
    verdict = Outcome(experiment.at("laptop"), shipped_records(experiment.name, "laptop")).verdict
    assert f"{verdict.word}<" in drawn["verdict"] and verdict.why.partition(":")[0] in drawn["verdict"]


def plain(command: str) -> str:
    return re.sub(r"\s+#\s.*", "", command)


def test_the_reproduced_table_is_that_of_the_shipped_results():
    """The table of Memoroids' figure 4 in docs/experiments.md, cell by cell."""
    experiment = catalog.find("memoroids/figure4")
    made = Outcome(experiment.at("laptop"), shipped_records(experiment.name, "laptop"))
    ours = {(c.row, c.column): cell_text(c.ours) for c in made.verdict.cells}
    lines = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8").splitlines()
    at = lines.index("| | tape | segments of 50 | segments of 20 | segments of 10 |")
    shown = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[at + 2 : at + 6]]
    games = {"`repeat_first`": "repeat_first", "`repeat_previous`, 10 back": "repeat_previous_10"}
    for label, *numbers in shown:
        memory, _, game = label.partition(", ")
        expected = [ours[f"{memory.lower()} {scheme}", games[game]] for scheme in ("tape", "L50", "L20", "L10")]
        assert numbers == expected, label
    assert (ROOT / "results/memoroids/figure4.laptop.svg").exists()
