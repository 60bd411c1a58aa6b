"""The page of `rlmem report`: one self-contained HTML file without scripts, in which every text is escaped.

Showing and hiding works by check boxes that the style sheet reads. The page's policy forbids everything from outside.
"""

import re
from base64 import b64encode
from collections.abc import Iterator, Sequence
from pathlib import Path

from jinja2 import Environment, PackageLoader
from markupsafe import Markup

from rlmem.errors import UserError
from rlmem.evidence.page.curves import panels
from rlmem.evidence.page.draw import inline
from rlmem.evidence.page.facts import INTERVALS, departures, key_in_words
from rlmem.evidence.page.find import Item
from rlmem.evidence.page.groups import Group, Section
from rlmem.record.figures import COLOURS
from rlmem.record.tables import Cell, cell_text
from rlmem.system.received import content

PICTURES = 1 << 26
"""Bytes of the pictures of a page at most, together."""
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Characters that control a terminal or the order of a text."""
STROKES = ("none", "5 2", "1 1.5", "6 2 1 2")
"""`rlmem.record.figures.DASHES` as SVG writes them."""
MEDIA_TYPES = {".svg": "image/svg+xml", ".png": "image/png"}
BADGES = (
    dict.fromkeys(("matches", "supported", "done"), "good")
    | dict.fromkeys(("contradicted", "differs", "failed"), "bad")
    | dict.fromkeys(("not tested here", "not tested", "not run", "waiting"), "none")
    | dict.fromkeys(("running", "interrupted", "undecided"), "busy")
)
"""Word of a verdict or state -> the class that colours it."""


def page(sections: Sequence[Section], title: str) -> str:
    """The whole page. The same sections give the same text. Raises UserError for pictures that are too large for it."""
    if (size := sum(file.stat().st_size for section in sections for _, file in _files(section))) > PICTURES:
        raise UserError(f"pictures of {size:,} bytes: expected at most {PICTURES:,} in a page; e.g. fewer folders")
    items = sum(isinstance(section, Item) for section in sections)
    loader = PackageLoader("rlmem.evidence.page", "")
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, loader=loader)
    used = (badge, badged, cell_text, departures, drawings, key_in_words, legend, pictures, runs)
    environment.globals |= {function.__name__: function for function in used}
    text = environment.get_template("page.html.jinja").render(
        title=title,
        most_rows=max(len(section.axes[0]) for section in sections),
        items=items,
        total=sum(len(section.records) for section in sections),
        intervals=INTERVALS,
        summary=[_summary(section, f"#s{k}", bool(items)) for k, section in enumerate(sections, 1)],
        sections=sections,
        colours=len(COLOURS),
        strokes=STROKES,
    )
    return CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def _summary(section: Section, link: str, judged: bool) -> list[Cell]:
    """A row of the summary, which has columns for verdicts if any section is `judged`."""
    name = Markup('<a href="{}">{}</a>').format(link, section.name)
    if not isinstance(section, Item):
        return [name, "", section.done, "", ""] if judged else [name, section.done]
    outcome = section.outcome
    claim = Markup('<span class="claim">{}</span>').format(outcome.planned.experiment.claim)
    return [name, badge(section.verdict.word), section.done, outcome.budget, claim]


def legend(section: Section) -> list[tuple[int, str]]:
    """The rows that have curves, each with its place among all rows."""
    rows, columns = section.axes
    there = {curve.row for curve in section.curves if curve.column in columns}
    return [(index, row) for index, row in enumerate(rows) if row in there]


def drawings(section: Section, prefix: str) -> Iterator[Markup]:
    """An SVG for each column. The names of its elements begin with `prefix`, which is unique to the section."""
    what = key_in_words(section.key)
    for k, panel in enumerate(panels(section.curves, *section.axes, what, ranges=section.ranges)):
        where = f" on {panel.title}" if panel.title else ""
        title = f"{what}{where} over environment steps: {', '.join(line.name for line in panel.lines)}"
        yield Markup(inline(panel, f"{prefix}-c{k}", title))


def runs(section: Section) -> list[list[Cell]]:
    """A table of the runs: the names of the columns, and a row for each run."""
    metrics = [section.metric] if isinstance(section, Group) else []
    names = ["steps", "seconds", "config hash", "version", "commit", "machine", "overrides"]
    lines: list[list[Cell]] = [["row", "column", "seed", "state", *metrics, *names]]
    for run in section.records:
        shown = [cell_text(run.metrics.get(name)) for name in metrics]
        about = [run.config_hash, run.version, run.commit, run.machine, Markup("<code>{}</code>").format(run.overrides)]
        lines.append([run.row, run.column, run.seed, badge(run.state), *shown, run.steps, run.seconds, *about])
    return lines


def pictures(section: Section) -> Iterator[tuple[str, str]]:
    """Captions and pictures of analyses as data URLs: the smaller of SVG and PNG where both exist.

    As an image, an SVG shares no names with the page, and can neither run nor load anything.
    """
    for caption, file in _files(section):
        yield caption, f"data:{MEDIA_TYPES[file.suffix]};base64,{b64encode(content(file)).decode()}"


def _files(section: Section) -> Iterator[tuple[str, Path]]:
    for caption, path in section.outcome.pictures.items() if isinstance(section, Item) else ():
        there = [form for suffix in MEDIA_TYPES if (form := path.with_suffix(suffix)).is_file()]
        if file := min(there, key=lambda file: file.stat().st_size, default=None):
            yield caption, file


def badge(word: str) -> Markup:
    return Markup('<span class="badge {}">{}</span>').format(BADGES.get(word, "none"), word)


def badged(rows: Sequence[Sequence[Cell]]) -> list[list[Cell]]:
    """The rows of a table with the words in BADGES as badges."""
    return [[badge(cell) if isinstance(cell, str) and cell in BADGES else cell for cell in row] for row in rows]
