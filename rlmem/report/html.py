"""HTML in which every text is escaped, unless it is markup that was made here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from rlmem.stats.tables import Cell, Table, show

VOID = ("br", "img", "input", "meta")


class Html(str):
    """Markup."""


def tag(name: str, /, *content: object, **attributes: object) -> Html:
    """`<name attribute="...">content</name>`.

    content: texts are escaped, Html is not, None is nothing
    attributes: `_` at the end is dropped, others are hyphens; True is an attribute without a value, None is none
    """
    own = [
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{escape(str(value))}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    ]
    begin = f"<{name}{''.join(own)}>"
    return Html(begin if name in VOID else f"{begin}{join(content)}</{name}>")


def join(parts: Iterable[object]) -> Html:
    return Html("".join(p if isinstance(p, Html) else escape(str(p)) for p in parts if p is not None))


def grid(name: str, columns: Sequence[object], rows: Iterable[Iterable[Cell | Html]], digits: int = 3) -> Html:
    """A table that scrolls by itself where the page is too narrow for it. name: what it shows, for those who listen"""
    lines = [list(row) for row in rows]
    texts = [any(isinstance(line[k], str) for line in lines) for k in range(len(columns))]
    kinds = [None if text else "number" for text in texts]
    named = (tag("th", column, scope="col", class_=kind) for column, kind in zip(columns, kinds, strict=True))
    head = tag("thead", tag("tr", *named))
    body = tag("tbody", *(tag("tr", *(_cell(cell, digits) for cell in line)) for line in lines))
    return tag("div", tag("table", head, body), class_="scroll", role="region", tabindex=0, aria_label=name)


def table(shown: Table) -> Html:
    """A Table with its title above."""
    marked = [[badge(cell) if cell in BADGES else cell for cell in row] for row in shown.rows]
    return join([tag("p", shown.title, class_="caption"), grid(shown.title, shown.columns, marked, shown.digits)])


BADGES = {
    "matches": "good",
    "direction holds": "good",
    "holds": "good",
    "done": "good",
    "differs": "bad",
    "fails": "bad",
    "failed": "bad",
    "not run": "none",
    "waiting": "none",
    "running": "busy",
    "interrupted": "busy",
}
"""How a word looks that says how something came out."""


def badge(word: object) -> Html:
    return tag("span", word, class_=f"badge {BADGES.get(str(word), 'none')}")


def _cell(cell: Cell | Html, digits: int) -> Html:
    if isinstance(cell, Html):
        return tag("td", cell)
    if isinstance(cell, str):
        return tag("td", cell)
    number, bracket, interval = show(cell, digits).partition("[")
    spread = tag("span", bracket, interval, class_="interval") if bracket else None
    return tag("td", number, spread, class_="number")
