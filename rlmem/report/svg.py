"""A figure as inline SVG: as wide as the page allows, in the page's colours, and with unique names.

Colours become variables of the page's style sheet, so that one drawing is readable on light and on dark background.
"""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from markupsafe import Markup

from rlmem.stats import figures
from rlmem.stats.figures import COLOURS, GRID, INK

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VARIABLES = {INK: "currentColor", GRID: "var(--grid)"} | {c: f"var(--row-{k})" for k, c in enumerate(COLOURS)}
GROUP = re.compile(r"(seed|band|mean|dot)-(\d+)")
FAMILY = re.compile(r"'DejaVu Sans'[^;]*")
REFERENCE = re.compile(r"#([\w-]+)")
NUMBER = re.compile(r"-?\d+\.\d+")
DROPPED = ("metadata", "style")
"""Elements of matplotlib that are left out; its style would apply to the whole page."""


def inline(figure: Figure, prefix: str, title: str) -> Markup:
    """The markup of a figure. Its groups `seed-N`, `band-N`, `mean-N` and `dot-N` get the classes `seed row-N`, ...

    figure: what `rlmem.report.draw` drew
    prefix: prefix of all names inside, which makes them unique in the page
    title: the description for readers who cannot see the figure
    """
    text = io.StringIO()
    figures.save(figure, text, "svg", transparent=True)
    root = _plain(ElementTree.fromstring(text.getvalue()))
    used = {name for element in root.iter() for value in element.attrib.values() for name in REFERENCE.findall(value)}
    for element in root.iter():
        _rewrite(element, prefix, used)
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    label = ElementTree.Element("title", id=f"{prefix}-title")
    label.text = title
    root.insert(0, label)
    root.attrib |= {"role": "img", "aria-labelledby": f"{prefix}-title"}
    return Markup(ElementTree.tostring(root, encoding="unicode"))


def _plain(element: ElementTree.Element) -> ElementTree.Element:
    """The tree without namespaces, which HTML has no use for, and without the elements in DROPPED."""
    made = ElementTree.Element(_local(element.tag), {_local(name): value for name, value in element.attrib.items()})
    made.text, made.tail = element.text, element.tail
    made.extend(_plain(child) for child in element if _local(child.tag) not in DROPPED)
    return made


def _local(name: str) -> str:
    return name.rpartition("}")[2]


def _rewrite(element: ElementTree.Element, prefix: str, used: set[str]) -> None:
    own = element.attrib
    name = own.pop("id", None)
    if name and (group := GROUP.fullmatch(name)):
        own["class"] = f"{group[1]} row-{group[2]}"
    elif name in used:
        own["id"] = f"{prefix}-{name}"
    for key in ("href", "clip-path"):
        if key in own:
            own[key] = REFERENCE.sub(rf"#{prefix}-\1", own[key])
    if "style" in own:
        style = FAMILY.sub("system-ui, sans-serif", own["style"])
        for colour, variable in VARIABLES.items():
            style = style.replace(colour, variable)
        own["style"] = style
    if "d" in own:
        own["d"] = NUMBER.sub(lambda number: f"{float(number[0]):.2f}", own["d"])
