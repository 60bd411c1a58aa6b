"""RESULTS.md: the published results with their verdicts, and their curves as pictures."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, get_args
from urllib.parse import quote

from rlmem.config.paths import results_dir
from rlmem.errors import printable
from rlmem.evidence import catalog
from rlmem.evidence.page.bands import panels
from rlmem.evidence.page.draw import save, together
from rlmem.evidence.page.facts import INTERVALS, departures, facts_of, key_in_words
from rlmem.evidence.page.find import Item, published
from rlmem.evidence.page.groups import DIFFERS, Section
from rlmem.evidence.peers import described
from rlmem.evidence.tables import provenance_problem
from rlmem.evidence.verdict import Word
from rlmem.stats.tables import Cell, Markdown, Table, in_markdown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NOT_RUN: Word = "not run"


def markdown(sections: Sequence[Section], path: Path) -> str:
    """The document that belongs at `path`; draws <item>.<budget>.svg beside the numbers of every item with curves.

    Raises UserError for sections that are not published results.
    """
    items = published(sections, "rlmem report results --markdown RESULTS.md")
    for item in items:
        if item.outcome.curves:
            save(curves(item), picture(item))
    return document(items, path.parent)


def curves(item: Item) -> Figure:
    """The learning curves of an item, with all columns side by side."""
    return together(panels(item.curves, *item.axes, key_in_words(item.key), ranges=item.ranges))


def picture(item: Item) -> Path:
    assert item.file is not None
    return item.file.with_suffix(".svg")


def document(items: Sequence[Item], folder: Path) -> str:
    """The text of the document in `folder`, which depends on the results only."""
    lines = [
        "# Results",
        "Numbers of this repository beside those of the papers. This file is written by "
        "`rlmem report results --markdown RESULTS.md` from the files in `results`, and is not edited.",
        INTERVALS,
        _summary(items).markdown(),
        Table("", ["item", "what the paper says", "verdict", "runs", "budget"], list(map(_line, items))).markdown(),
        *(part for item in items for part in _item(item, folder)),
        *_waiting(items),
    ]
    return "\n\n".join(line.strip() for line in lines) + "\n"


def _summary(items: Sequence[Item]) -> Table:
    """How many items of every paper came out how; of an item with several budgets, the largest that has been run."""
    by_budget = sorted(items, key=lambda item: item.verdict.word != NOT_RUN)  # and by budget before
    found = {item.name: item.verdict.word for item in by_budget}
    names = sorted({*found, *(catalog.names() if _are_shipped(items) else ())})
    words = [word for word in get_args(Word) if word in found.values() and word != NOT_RUN] + [NOT_RUN]
    counts = {
        paper: Counter(found.get(name, NOT_RUN) for name in names if name.startswith(f"{paper}/"))
        for paper in dict.fromkeys(name.partition("/")[0] for name in names)
    }
    counts["all"] = sum(counts.values(), Counter())
    return Table("", ["", *words], [[paper, *(of[word] for word in words)] for paper, of in counts.items()])


def _waiting(items: Sequence[Item]) -> Iterator[str]:
    """The items without results, in a document about those that rlmem ships."""
    names = [name for name in catalog.names() if name not in {item.name for item in items}]
    if names and _are_shipped(items):
        yield "## Not run yet"
        yield "`rlmem list experiment` says what they cost."
        lines: list[list[Cell]] = [[Markdown(f"`{name}`"), catalog.find(name)[1].title] for name in names]
        yield Table("", ["item", "what the paper says"], lines).markdown()


def _are_shipped(items: Sequence[Item]) -> bool:
    """Whether all of these are the results that rlmem ships."""
    shipped = results_dir()
    return shipped is not None and all(item.file and shipped.resolve() in item.file.resolve().parents for item in items)


def _line(item: Item) -> list[Cell]:
    anchor = re.sub(r"[^\w -]", "", _heading(item).lower()).replace(" ", "-")
    outcome, link = item.outcome, Markdown(f"[{in_markdown(item.name)}](#{anchor})")
    return [link, outcome.experiment.title, Markdown(f"**{item.verdict.word}**"), item.done, outcome.budget]


def _item(item: Item, folder: Path) -> Iterator[str]:
    outcome, experiment, verdict = item.outcome, item.outcome.experiment, item.verdict
    yield f"## {in_markdown(_heading(item))}"
    yield f"**{verdict.word}**: {in_markdown(verdict.why)}."
    if verdict.changed:
        yield f"*{in_markdown(verdict.changed[:1].upper() + verdict.changed[1:])}.*"
    if problem := provenance_problem(outcome.ours):
        yield f"Nobody can make these numbers again to the digit: {in_markdown(problem)}."
    yield f"Claim: {in_markdown(experiment.claim)}"
    yield f"Source: {in_markdown(experiment.source)}."
    if note := experiment.budget(outcome.budget).note:
        yield f"This budget: {in_markdown(note)}"
    if item.explained:
        yield f"What came out: {in_markdown(item.explained)}"
    if found := departures(outcome):
        shown = (f"{reason} ({which})" if which else reason for reason, which in found)
        yield "\n".join(f"- {in_markdown(text)}" for text in shown)
    if outcome.curves:
        yield _shown(f"{key_in_words(item.key)} of {outcome.name}", picture(item), folder)
    for table in item.tables():
        yield table.markdown()
    for caption, path in outcome.pictures.items():
        yield _shown(f"{outcome.name}: {caption}", path, folder)
    known = facts_of(item.records) | {DIFFERS: item.differs, "runs": f"{item.done} done"}
    known |= {f"beside, {row}": about for row, about in described(outcome).items()}
    yield "\n".join(f"- {in_markdown(f'{name}: {text}')}" for name, text in known.items() if text)
    yield f"```sh\n{printable(item.command or '')}\n```"


def _shown(caption: str, path: Path, folder: Path) -> str:
    return f"![{in_markdown(caption)}]({quote(Path(os.path.relpath(path, folder)).as_posix())})"


def _heading(item: Item) -> str:
    return f"{item.name}, budget {item.outcome.budget}"
