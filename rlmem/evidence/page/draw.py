"""Learning curves drawn with matplotlib, for reports and `rlmem plot` alike: as files, and as SVG inside of a page."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from importlib.util import find_spec
from math import ceil
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import numpy as np

from rlmem.config.messages import mistake
from rlmem.errors import extra, printable, writing
from rlmem.evidence.page.curves import Panel
from rlmem.record import figures
from rlmem.record.figures import COLOURS, DASHES, GRID, INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANEL = (4.6, 3.0)
"""Width and height of a panel in inches; on a phone its letters are as large as those of the text around it."""
ACROSS, MOST = 3, 4
"""The greatest number of panels side by side, and of names on a line of the legend."""
LINE, ENTRY, LETTER, WIDE = 0.25, 0.7, 0.085, 0.1
"""Sizes in a legend, in inches: the height of a line, the width of an entry without its name, that of a letter, and an
upper bound on the latter, for wrapping long names."""
WRAP, TITLE = 32, 46
"""The greatest number of letters on a line of a panel's side label and of its title."""
FORMATS = ("png", "pdf", "svg")
VARIABLES = {INK: "currentColor", GRID: "var(--grid)"} | {c: f"var(--row-{k})" for k, c in enumerate(COLOURS)}
"""Colours -> variables of the page's style sheet: one drawing is readable on light and on dark background."""
REFERENCE = re.compile(r"#([\w-]+)")


def require_matplotlib() -> None:
    if find_spec("matplotlib") is None:
        raise mistake("curves", "matplotlib is not installed", example=extra("report"))


def together(shown: Sequence[Panel]) -> Figure:
    """A figure of all panels with a legend."""
    across, names = min(ACROSS, len(shown)), {line.name for panel in shown for line in panel.lines}
    width, longest = PANEL[0] * across, max(map(len, names), default=0)
    abreast = max(1, min(MOST, int(width / (ENTRY + LETTER * longest))))
    wrap = max(longest, 1) if ENTRY + LETTER * longest <= width else int((width - ENTRY) / WIDE)
    wrapped = {name: fill(literal(name), wrap) for name in names}
    lines = sum(text.count("\n") for text in wrapped.values()) + ceil(len(names) / abreast)
    down = ceil(len(shown) / across)
    figure, grid = figures.figure(PANEL[1] * down + LINE * lines, down, across, width=width)
    handles: dict[str, Any] = {}
    with figures.style():
        for panel, axes in zip(shown, grid.flat, strict=False):
            handles |= draw(axes, panel)
        for axes in grid.flat[len(shown) :]:
            axes.remove()
        texts = [wrapped[name] for name in handles]
        figure.legend(list(handles.values()), texts, loc="outside lower center", ncols=abreast)
    return figure


def draw(axes: Axes, panel: Panel, seeds: bool = False) -> dict[str, Any]:
    """Draw the means with their bands; returns row -> the handle for the legend.

    A single point is drawn as a dot, also that of a run among longer ones. Runs without a common step have no mean and
    are drawn one by one. The groups of an SVG are named `seed-N`, `band-N`, `mean-N` and `dot-N` by the row's index.
    """
    from matplotlib.ticker import EngFormatter, MaxNLocator

    handles: dict[str, Any] = {}
    for line in panel.lines:
        look: Any = {"color": COLOURS[line.index % len(COLOURS)]}
        dash = DASHES[line.index // len(COLOURS) % len(DASHES)]
        thick: Any = look | {"linestyle": dash, "linewidth": 1.8}
        for curve in line.seeds if seeds else ():
            axes.plot(curve.steps, curve.values, **look, linewidth=0.8, alpha=0.55, gid=f"seed-{line.index}")
        if np.isfinite(line.low).any():
            edge = 1.8 if len(line.steps) == 1 else 0
            axes.fill_between(line.steps, line.low, line.high, **look, lw=edge, alpha=0.18, gid=f"band-{line.index}")
        means = [(line.steps, line.mean)] if len(line.steps) else [(curve.steps, curve.values) for curve in line.seeds]
        for steps, values in means:
            marker = "o" if len(steps) == 1 else None
            (handles[line.name],) = axes.plot(steps, values, **thick, marker=marker, gid=f"mean-{line.index}")
        for curve in line.dots:
            (drawn,) = axes.plot(curve.steps, curve.values, **thick, marker="o", gid=f"dot-{line.index}")
            handles.setdefault(line.name, drawn)
    axes.set(title=fill(literal(panel.title), TITLE), xlabel="environment steps")
    axes.set_ylabel(fill(literal(panel.what), WRAP))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.xaxis.set_major_locator(MaxNLocator(5))
    return handles


def save(figure: Figure, path: Path) -> None:
    """Write a figure in the format of its suffix, reproducibly byte by byte. Raises UserError if it cannot."""
    kind = path.suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise mistake(f"--out {path}", "no such format", accepted=FORMATS, example="--out figure.pdf")
    with writing(path, "--out /tmp/figure.png"):
        path.parent.mkdir(parents=True, exist_ok=True)
        figures.save(figure, path, kind)


def inline(panel: Panel, prefix: str, title: str) -> str:
    """The curves of all seeds as markup that is as wide as the page allows, for a page with a legend of its own.

    The groups `seed-N`, `band-N`, `mean-N` and `dot-N` get the classes `seed row-N`, ... All other names begin with
    `prefix`, which makes them unique in the page. `title` is for readers who cannot see the figure.
    """
    figure, axes = figures.figure(PANEL[1], width=PANEL[0])
    with figures.style():
        draw(axes[0, 0], panel, seeds=True)
    text = io.StringIO()
    figures.save(figure, text, "svg", transparent=True)
    root = ElementTree.fromstring(text.getvalue())
    used = {name for element in root.iter() for value in element.attrib.values() for name in REFERENCE.findall(value)}
    for element in root.iter():
        _rewrite(element, prefix, used)
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    label = ElementTree.Element("title", id=f"{prefix}-title")
    label.text = title
    root.insert(0, label)
    root.attrib |= {"role": "img", "aria-labelledby": f"{prefix}-title"}
    return ElementTree.tostring(root, encoding="unicode")


def _rewrite(element: ElementTree.Element, prefix: str, used: set[str]) -> None:
    """Drop namespaces, which HTML has no use for, make names unique, colours variables, and numbers short."""
    plain = lambda name: name.rpartition("}")[2]  # noqa: E731
    for child in [child for child in element if plain(child.tag) in ("metadata", "style")]:
        element.remove(child)  # matplotlib's style would apply to the whole page
    own = element.attrib = {plain(name): value for name, value in element.attrib.items()}
    element.tag = plain(element.tag)
    name = own.pop("id", None)
    if name and (group := re.fullmatch(r"(seed|band|mean|dot)-(\d+)", name)):
        own["class"] = f"{group[1]} row-{group[2]}"
    elif name in used:
        own["id"] = f"{prefix}-{name}"
    for key in ("href", "clip-path"):
        if key in own:
            own[key] = REFERENCE.sub(rf"#{prefix}-\1", own[key])
    if "style" in own:
        style = re.sub(r"'DejaVu Sans'[^;]*", "system-ui, sans-serif", own["style"])
        for colour, variable in VARIABLES.items():
            style = style.replace(colour, variable)
        own["style"] = style
    if "d" in own:
        own["d"] = re.sub(r"-?\d+\.\d+", lambda number: f"{float(number[0]):.2f}", own["d"])


def literal(text: str) -> str:
    """Escape a text for matplotlib's mathematics, and drop characters that XML forbids."""
    return printable(text).replace("$", r"\$")
