"""Documents of published results: RESULTS.md with its pictures, LaTeX with figures, and parts of Markdown pages."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from math import ceil, isfinite
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, get_args
from urllib.parse import quote

from rlmem.config.paths import results_dir
from rlmem.errors import UserError, printable, writing
from rlmem.evidence import catalog
from rlmem.evidence.metrics import in_words
from rlmem.evidence.page.curves import panels
from rlmem.evidence.page.draw import ACROSS, TITLE, literal, save, together
from rlmem.evidence.page.facts import INTERVALS, departures, key_in_words
from rlmem.evidence.page.find import Item, published
from rlmem.evidence.page.groups import Section
from rlmem.evidence.tables import provenance_problem
from rlmem.evidence.verdict import Word
from rlmem.record import figures, rundir
from rlmem.record.figures import COLOURS
from rlmem.record.tables import Cell, Markdown, Table, in_markdown
from rlmem.system import received

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
        lines: list[list[Cell]] = [[Markdown(f"`{name}`"), catalog.find(name).title] for name in names]
        yield Table("", ["item", "what the paper says"], lines).markdown()


def _are_shipped(items: Sequence[Item]) -> bool:
    """Whether all of these are the results that rlmem ships."""
    shipped = results_dir()
    return shipped is not None and all(item.file and shipped.resolve() in item.file.resolve().parents for item in items)


def _line(item: Item) -> list[Cell]:
    anchor = re.sub(r"[^\w -]", "", _heading(item).lower()).replace(" ", "-")
    outcome, link = item.outcome, Markdown(f"[{in_markdown(item.name)}](#{anchor})")
    return [link, outcome.planned.experiment.title, Markdown(f"**{item.verdict.word}**"), item.done, outcome.budget]


def _item(item: Item, folder: Path) -> Iterator[str]:
    outcome, experiment, verdict = item.outcome, item.outcome.planned.experiment, item.verdict
    yield f"## {in_markdown(_heading(item))}"
    yield f"**{verdict.word}**: {in_markdown(verdict.why)}."
    if verdict.changed:
        yield f"*{in_markdown(verdict.changed[:1].upper() + verdict.changed[1:])}.*"
    if problem := provenance_problem(outcome.ours):
        yield f"Nobody can make these numbers again to the digit: {in_markdown(problem)}."
    yield f"Claim: {in_markdown(experiment.claim)}"
    yield f"Source: {in_markdown(experiment.source)}."
    if note := outcome.planned.chosen.note:
        yield f"This budget: {in_markdown(note)}"
    if item.explained:
        yield f"What came out: {in_markdown(item.explained)}"
    if reasons := departures(outcome):
        texts = (f"{reason} ({which})" if which else reason for reason, which in reasons)
        yield "\n".join(f"- {in_markdown(text)}" for text in texts)
    if outcome.curves:
        yield _image(f"{key_in_words(item.key)} of {outcome.name}", picture(item), folder)
    for table in item.tables():
        yield table.markdown()
    for caption, path in outcome.pictures.items():
        yield _image(f"{outcome.name}: {caption}", path, folder)
    yield "\n".join(f"- {in_markdown(f'{name}: {text}')}" for name, text in item.facts_of_runs().items() if text)
    yield f"```sh\n{printable(item.command or '')}\n```"


def _image(caption: str, path: Path, folder: Path) -> str:
    return f"![{in_markdown(caption)}]({quote(Path(os.path.relpath(path, folder)).as_posix())})"


def _heading(item: Item) -> str:
    return f"{item.name}, budget {item.outcome.budget}"


def around(file: Path, title: str, name: str) -> tuple[str, str]:
    """What stands before and after the part between `<!-- NAME:begin -->` and `<!-- NAME:end -->`, marks included.

    A file that does not exist is a page with this title and nothing else. Raises UserError for one without the marks.
    """
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    if not file.is_file():
        return f"# {title}\n\n{begin}\n", f"{end}\n"
    text = received.text(file)
    if text.count(begin) != 1 or text.count(end) != 1:
        raise UserError(f"{file}: expected one line {begin} and one {end}; e.g. --page {name}.md")
    return text.partition(begin)[0] + f"{begin}\n", end + text.partition(end)[2]


WIDTH, LINE, REST = 3.4, 0.22, 1.1
"""Sizes of a panel of cells in inches: its width, the height of a row, and that of all that is not rows."""
WIDE = 100
"""The ratio of the greatest number to the least from which on their axis is logarithmic."""


def write_latex(items: Sequence[Item], folder: Path) -> list[Path]:
    """Write `folder`/<paper>/<item>.<budget>.tex and .pdf of every item; returns the files."""
    files = []
    for item in items:
        path = folder / f"{item.name}.{item.outcome.budget}.tex"
        with writing(path, "--latex /tmp/latex"):
            path.parent.mkdir(parents=True, exist_ok=True)
            about = f"% {item.name}, budget {item.outcome.budget}: {item.verdict.word}. Needs the package booktabs.\n"
            rundir.write_atomically(path, about + "\n".join(table.latex() for table in item.tables()))
        save(curves(item) if item.outcome.curves else numbers(item), path.with_suffix(".pdf"))
        files += [path, path.with_suffix(".pdf")]
    return files


def numbers(item: Item) -> Figure:
    """The means of the cells with their intervals, for an item without curves: a panel for each column."""
    cells = [cell for cell in item.verdict.cells if isfinite(cell.mean)]
    rows, columns = (list(dict.fromkeys(getattr(cell, side) for cell in cells)) for side in ("row", "column"))
    across, down = min(ACROSS, max(len(columns), 1)), max(ceil(len(columns) / ACROSS), 1)
    height = down * (REST + LINE * len(rows))
    figure, grid = figures.figure(height, down, across, width=WIDTH * across, sharey=True)
    with figures.style():
        for axes, column in zip(grid.flat, columns, strict=False):
            here = [cell for cell in cells if cell.column == column]
            for cell in here:
                place = rows.index(cell.row)
                colour = COLOURS[place % len(COLOURS)]
                axes.plot([cell.mean], [place], "o", color=colour)
                axes.plot([cell.low, cell.high], [place, place], linewidth=1.8, color=colour)
            means = [cell.mean for cell in here]
            if min(means) > 0 and max(means) / min(means) > WIDE:
                axes.set_xscale("log")
            axes.set_yticks(range(len(rows)), [literal(row) for row in rows])
            axes.set_ylim(len(rows) - 0.5, -0.5)
            what = in_words(item.outcome.planned.metric)
            axes.set(title=fill(literal(column), TITLE), xlabel=fill(literal(what), TITLE))
        for axes in grid.flat[len(columns) :]:
            axes.remove()
    return figure
