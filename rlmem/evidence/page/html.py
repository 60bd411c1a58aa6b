"""The page of `rlmem report`: one self-contained HTML file without scripts, in which every text is escaped.

Showing and hiding works by check boxes that the style sheet reads. The page's policy forbids everything from outside.
"""

import re
from base64 import b64encode
from collections.abc import Iterator, Sequence
from pathlib import Path

from markupsafe import Markup

from rlmem.core.errors import UserError
from rlmem.core.received import content
from rlmem.evidence.page.curves import inline, panels
from rlmem.evidence.page.documents import rendered
from rlmem.evidence.page.find import Item
from rlmem.evidence.page.groups import INTERVALS, Section, departures, key_in_words
from rlmem.record.figures import COLOURS
from rlmem.record.tables import cell_text

PICTURES = 1 << 26
"""Bytes of the pictures of a page at most, together."""
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Characters that control a terminal or the order of a text."""
STROKES = ("none", "5 2", "1 1.5", "6 2 1 2")
"""`rlmem.record.figures.DASHES` as SVG writes them."""
MEDIA_TYPES = {".svg": "image/svg+xml", ".png": "image/png"}


def page(sections: Sequence[Section], title: str) -> str:
    """The whole page. The same sections give the same text. Raises UserError for pictures that are too large for it."""
    if (size := sum(file.stat().st_size for section in sections for _, file in _files(section))) > PICTURES:
        raise UserError(f"pictures of {size:,} bytes: expected at most {PICTURES:,} in a page; e.g. fewer folders")
    items = sum(isinstance(section, Item) for section in sections)
    text = rendered(
        "page.html.jinja",
        (cell_text, departures, drawings, key_in_words, pictures),
        title=title,
        most_rows=max(len(section.axes[0]) for section in sections),
        items=items,
        total=sum(len(section.records) for section in sections),
        intervals=INTERVALS,
        sections=sections,
        colours=len(COLOURS),
        strokes=STROKES,
    )
    return CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def drawings(section: Section, prefix: str) -> Iterator[Markup]:
    """An SVG for each column. The names of its elements begin with `prefix`, which is unique to the section."""
    what = key_in_words(section.key)
    for k, panel in enumerate(panels(section.curves, *section.axes, what, ranges=section.ranges)):
        where = f" on {panel.title}" if panel.title else ""
        title = f"{what}{where} over environment steps: {', '.join(line.name for line in panel.lines)}"
        yield Markup(inline(panel, f"{prefix}-c{k}", title))


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
