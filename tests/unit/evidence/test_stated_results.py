"""Sentences of documents that state results: each links to its item, and the shipped results support it.

A comment behind a sentence repeats it in the grammar of `rlmem.evidence.expect`, `;` between two expectations:

    FFM does better than a GRU ([`ffm/table4`](...)). <!-- result: ffm/table4: ffm > gru -->
    Whether it does better than an LSTM is open ([`ffm/table4`](...)). <!-- result: ffm/table4: ffm > lstm undecided -->

Results are those of the budget `laptop`.
"""

import re
from functools import cache

import pytest
from helpers import ROOT

from rlmem.evidence import catalog
from rlmem.evidence.expect import Finding, check, parse
from rlmem.evidence.records import shipped_records
from rlmem.evidence.verdict import Outcome

PAGES = ("README.md", "docs/index.md", "docs/leaderboard.md", "docs/memory.md", "docs/start.md")
NO_PROSE = re.compile(
    r"^```.*?^```$|^<!-- (\w+):begin -->$.*?^<!-- \1:end -->$|^\|.*?$|^#.*?$|^!\[.*?$", re.MULTILINE | re.DOTALL
)
"""Blocks of code, generated parts, tables, headings and pictures."""
BLOCK = re.compile(r"\n\s*\n|\n(?=\s*- )")
SENTENCE = re.compile(r"(?<=[.?])\s+(?!<!--)|(?<=-->)\s+")
COMMENT = re.compile(r"<!-- result: ([\w/]+): (.+?) -->")


def prose(page: str) -> list[str]:
    """The paragraphs and list items of a page."""
    return [block for block in BLOCK.split(NO_PROSE.sub("\n\n", (ROOT / page).read_text())) if block.strip()]


def sentences(page: str) -> list[str]:
    """The sentences of a page, each with the comments behind it."""
    return [sentence for block in prose(page) for sentence in SENTENCE.split(" ".join(block.split()))]


def items(sentence: str) -> set[str]:
    """The items that a sentence names in backticks."""
    return {*re.findall(r"`(\w+/\w+)`", sentence)} & {*catalog.names()}


def anchor(item: str) -> str:
    """The anchor of the item's heading in RESULTS.md."""
    return f"RESULTS.md#{item.replace('/', '')}-budget-laptop"


STATED = [
    (page, sentence, item, text)
    for page in PAGES
    for sentence in sentences(page)
    for item, expected in COMMENT.findall(sentence)
    for text in expected.split("; ")
]


@cache
def outcome(item: str) -> Outcome:
    experiment = catalog.find(item)
    return Outcome(experiment.at("laptop"), shipped_records(item, "laptop"))


def findings(item: str, text: str) -> list[Finding]:
    """The findings of an expectation about the shipped results of an item."""
    shipped = outcome(item)
    planned, peers = shipped.planned, [*shipped.planned.experiment.peers]
    rows, columns = ([*dict.fromkeys(getattr(cell, side) for cell in planned.cells())] for side in ("row", "column"))
    return check([parse(text)], shipped.numbers(), rows, columns, peers, shipped.numbers)


def meaning(text: str) -> tuple[str, str]:
    """The expectation of a comment, and what it says of it: `supported`, `undecided` or `in every run`."""
    said = next((said for said in ("undecided", "in every run") if text.endswith(f" {said}")), "")
    return text.removesuffix(said).strip(), said or "supported"


def test_the_shipped_results_support_what_a_sentence_states():
    for page, sentence, item, text in STATED:
        expectation, said = meaning(text)
        found = findings(item, expectation)
        if said == "in every run":
            counts = [finding.runs.split(" of ") for finding in found]
            assert all(fits == runs for fits, runs in counts), f"{page}: {sentence}: {counts}"
        else:
            states = {finding.where: finding.state for finding in found}
            assert set(states.values()) == {said}, f"{page}: {sentence}: {states}"


def test_what_was_found_among_many_comparisons_is_said_of_these_runs_only():
    """A sentence about memories in general states an expectation of the item, with the state that its verdict has."""
    for page, sentence, item, text in STATED:
        (expectation, said), verdict = meaning(text), outcome(item).verdict
        foreseen = {(finding.text, finding.where): finding.state for finding in verdict.findings}
        places = {(finding.text, finding.where) for finding in findings(item, expectation)}
        general = said != "in every run" and not re.search(r"\bthese (\w+ )?runs\b", sentence)
        assert not general or {foreseen.get(place) for place in places} == {said}, f"{page}: {sentence}"


def test_an_expectation_in_the_wrong_direction_is_not_supported():
    states = lambda text, item="ffm/table4": [finding.state for finding in findings(item, text)]  # noqa: E731
    assert states("ffm > gru on count_recall easy") == ["supported"]
    assert states("gru > ffm on count_recall easy") == ["undecided"], "three runs contradict nothing"
    assert states("lru L10 > lru tape on repeat_first", "memoroids/figure4") == ["contradicted"]
    assert states("ffm > lstm") == ["undecided"]
    assert states("ffm > nobody") == ["not tested"]


@pytest.mark.parametrize("page", PAGES)
def test_a_sentence_that_names_an_item_links_to_it_and_has_an_expectation(page):
    headings = re.findall(r"^## (\w+/\w+), budget laptop$", (ROOT / "RESULTS.md").read_text(), re.MULTILINE)
    for sentence in sentences(page):
        tested = {item for item, _ in COMMENT.findall(sentence)}
        assert items(sentence) == tested, f"{page}: {sentence}"
        assert all(f"{anchor(item)})" in sentence and item in headings for item in tested), f"{page}: {sentence}"


def test_no_comment_begins_a_line():
    """It would end the paragraph, in Markdown as repositories show it."""
    assert not [page for page in PAGES if re.search(r"^\s*<!-- result", (ROOT / page).read_text(), re.MULTILINE)]
