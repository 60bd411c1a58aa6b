"""Documents: RESULTS.md with its pictures, LaTeX with figures, and the page of reports.

It also writes all published numbers as one file, and the checksums of all published files (results/README.md).
"""

from __future__ import annotations

import os
import re
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import sha256
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args
from urllib.parse import quote

from rlmem.config.paths import results_dir
from rlmem.core import received
from rlmem.core.errors import UserError, printable, writing
from rlmem.evidence import catalog
from rlmem.evidence.page.curves import panels, save, together
from rlmem.evidence.page.find import Item, published
from rlmem.evidence.page.groups import INTERVALS, Section, departures, key_in_words
from rlmem.evidence.records import PLACE, SERIES, read_series
from rlmem.evidence.tables import provenance_problem
from rlmem.evidence.verdict import Word
from rlmem.record import figures, rundir
from rlmem.record.tables import Cell, Table, cell_text, csv_text, in_markdown, inert

if TYPE_CHECKING:
    from matplotlib.figure import Figure


NOT_RUN: Word = "not run"
SUMS = "SHA256SUMS"
"""The file of checksums in a folder of published results."""
ABOUT = ("steps", "seconds", "config_hash", "version", "commit", "machine", "overrides")
"""The columns about a run, which stand beside its metrics."""
FIELDS = ("item", "budget", "verdict", "row", "column", "seed", "kind", "name", "step", "value", *ABOUT)
Line = dict[str, str | int | float]
PICTURES = 1 << 26
"""Bytes of the pictures of a page at most, together."""
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Characters that control a terminal or the order of a text."""
MEDIA_TYPES = {".svg": "image/svg+xml", ".png": "image/png"}


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

    def image(caption: str, path: Path) -> str:
        return f"![{in_markdown(caption)}]({quote(Path(os.path.relpath(path, folder)).as_posix())})"

    root = results_dir()
    shipped = root and all(item.file and root.resolve() in item.file.resolve().parents for item in items)
    names = [name for name in catalog.names() if catalog.find(name).expect] if shipped else []
    text = rendered(
        "results.md.jinja",
        (anchor, departures, heading, image, in_markdown, key_in_words, picture, printable, provenance_problem),
        intervals=INTERVALS,
        summary=_summary(items, names).markdown(),
        items=items,
        waiting=[catalog.find(name) for name in names if name not in {item.name for item in items}],
    )
    return re.sub(r"\n{3,}", "\n\n", text.strip()) + "\n"


def rendered(template: str, functions: Iterable[Callable[..., Any]], **values: Any) -> str:
    """A template of this package with its values; in HTML, every text is escaped."""
    from jinja2 import Environment, PackageLoader

    loader = PackageLoader("rlmem.evidence.page", "")
    environment = Environment(autoescape=".html." in template, trim_blocks=True, lstrip_blocks=True, loader=loader)
    environment.globals |= {function.__name__: function for function in functions}
    return environment.get_template(template).render(**values)


def _summary(items: Sequence[Item], shipped: Sequence[str]) -> Table:
    """The number of items of every paper with each verdict, and that of their sets of runs, which items may share.

    Of an item with several budgets, the largest one that has been run counts.

    shipped: items that count even if they have no results
    """
    by_budget = sorted(items, key=lambda item: item.verdict.word != NOT_RUN)  # and by budget before
    verdicts = {item.name: item.verdict.word for item in by_budget}
    names = sorted({*verdicts, *shipped})
    words = [word for word in get_args(Word) if word in verdicts.values() and word != NOT_RUN] + [NOT_RUN]
    counts = {
        paper: Counter(verdicts.get(name, NOT_RUN) for name in names if name.startswith(f"{paper}/"))
        for paper in dict.fromkeys(name.partition("/")[0] for name in names)
    }
    counts["all"] = sum(counts.values(), Counter())
    own = {item.name: item.outcome.planned.experiment for item in items}
    owners = {name: (own.get(name) or catalog.find(name)).runs or name for name in names}
    marks = dict.fromkeys(names, "") | {item.name: item.verdict.changed for item in items}
    lines: list[list[Cell]] = []
    for paper, of in counts.items():
        sets = {owner for name, owner in owners.items() if paper in ("all", name.partition("/")[0])}
        lines.append([paper, sum(of.values()), len(sets), *(of[word] for word in words)])
        lines[-1].append(sum(bool(marks[name]) for name in names if paper in ("all", name.partition("/")[0])))
    return Table("", ["", "items", "sets of runs", *words, "changed or looked at before"], lines)


def heading(item: Item) -> str:
    """The heading of an item's part of the document."""
    return f"{item.name}, budget {item.outcome.budget}"


def anchor(item: Item) -> str:
    """The anchor that GitHub gives to that heading."""
    return re.sub(r"[^\w -]", "", heading(item).lower()).replace(" ", "-")


def with_part(file: Path, name: str, text: str) -> str:
    """The page with a text between the marks `<!-- NAME:begin -->` and `<!-- NAME:end -->`.

    A file that does not exist becomes a page of the text only. Raises UserError for one without the marks.
    """
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    page = received.text(file, errors="replace") if file.is_file() else f"# {name.capitalize()}\n\n{begin}\n{end}\n"
    if page.count(begin) != 1 or page.count(end) != 1:
        raise UserError(f"{file}: expected one line {begin} and one {end}; e.g. --page {name}.md")
    return f"{page.partition(begin)[0]}{begin}\n{text}{end}{page.partition(end)[2]}"


def write_latex(items: Sequence[Item], folder: Path) -> list[Path]:
    """Write `folder`/<paper>/<item>.<budget>.tex of every item, and .pdf of its curves; returns the files."""
    files = []
    for item in items:
        path = folder / f"{item.name}.{item.outcome.budget}.tex"
        with writing(path, "--latex /tmp/latex"):
            path.parent.mkdir(parents=True, exist_ok=True)
            about = f"% {item.name}, budget {item.outcome.budget}: {item.verdict.word}. Needs the package booktabs.\n"
            rundir.write_atomically(path, about + "\n".join(table.latex() for table in item.tables()))
        files.append(path)
        if item.outcome.curves:
            files.append(path.with_suffix(".pdf"))
            save(curves(item), files[-1])
    return files


def data_text(items: Sequence[Item]) -> str:
    """All numbers of the items, one a line."""
    lines = (line for item in items for line in _lines(item))
    rows = ([inert(v) if isinstance(v := line.get(name, ""), str) else v for name in FIELDS] for line in lines)
    return csv_text(chain([FIELDS], rows))


def checksums(folder: Path) -> str:
    """The SHA-256 of every published file in a folder, in the format of `sha256sum`; documents are none of them."""
    lines = []
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        if path.name != SUMS and path.suffix not in (".md", ".partial"):
            name = path.relative_to(folder).as_posix()
            content = received.content(received.inside(folder, name), received.ROWS)
            lines.append(f"{sha256(content).hexdigest()}  {name}\n")
    return "".join(lines)


def _lines(item: Item) -> Iterator[Line]:
    """The means of the cells, the metrics of every run, and what they are read from."""
    assert item.file is not None
    series = read_series(item.file.with_suffix(SERIES))
    shared: Line = {"item": item.name, "budget": item.outcome.budget, "verdict": item.verdict.word}

    def line(kind: str, place: Sequence[Any], name: str, value: float, **more: str | int) -> Line:
        own: Line = {"kind": kind, "name": name, "value": f"{value:.9g}", **more}
        return shared | dict(zip(PLACE, place, strict=False)) | own

    for cell in item.verdict.cells:
        for name in ("mean", "low", "high"):
            yield line("cell", (cell.row, cell.column), name, getattr(cell.ours, name))
    for run in item.outcome.records:
        about = {name: getattr(run, name) for name in ABOUT} | {"seconds": f"{run.seconds:.6g}"}
        for name, value in run.metrics.items():
            yield line("metric", run.place, name, value, **about)
    for (*place, key), points in series.items():
        for step, number in points:
            yield line("series", place, key, number, step=step)
    for curve in item.curves:
        if (*curve.place, item.key) not in series:
            for step, number in zip(curve.steps, curve.values, strict=True):
                yield line("curve", curve.place, item.key, number, step=step)


# The page of `rlmem report`: one self-contained HTML file without scripts, in which every text is escaped. The page's
# policy forbids everything from outside.


def page(sections: Sequence[Section], title: str) -> str:
    """The whole page. The same sections give the same text. Raises UserError for pictures that are too large for it."""
    if (size := sum(file.stat().st_size for section in sections for _, file in _files(section))) > PICTURES:
        raise UserError(f"pictures of {size:,} bytes: expected at most {PICTURES:,} in a page; e.g. fewer folders")
    items = sum(isinstance(section, Item) for section in sections)
    text = rendered(
        "page.html.jinja",
        (cell_text, departures, drawings, key_in_words, pictures),
        title=title,
        items=items,
        total=sum(len(section.records) for section in sections),
        intervals=INTERVALS,
        sections=sections,
    )
    return CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def drawings(section: Section) -> Iterator[tuple[str, str]]:
    """A caption and a drawing of learning curves for each column."""
    ylabel = key_in_words(section.key)
    for panel in panels(section.curves, *section.axes, ylabel, ranges=section.ranges):
        where = f" on {panel.title}" if panel.title else ""
        svg = BytesIO()
        figures.save(together([panel]), svg, "svg")
        yield f"{ylabel}{where}", _data_url(".svg", svg.getvalue())


def pictures(section: Section) -> Iterator[tuple[str, str]]:
    """Captions and pictures of analyses: the smaller of SVG and PNG where both exist."""
    for caption, file in _files(section):
        yield caption, _data_url(file.suffix, received.content(file))


def _data_url(suffix: str, image: bytes) -> str:
    """An image in the page. An SVG that is one shares no names with the page, and can neither run nor load anything."""
    return f"data:{MEDIA_TYPES[suffix]};base64,{b64encode(image).decode()}"


def _files(section: Section) -> Iterator[tuple[str, Path]]:
    for caption, path in section.outcome.pictures.items() if isinstance(section, Item) else ():
        there = [form for suffix in MEDIA_TYPES if (form := path.with_suffix(suffix)).is_file()]
        if file := min(there, key=lambda file: file.stat().st_size, default=None):
            yield caption, file
