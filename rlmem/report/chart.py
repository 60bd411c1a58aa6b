"""The learning curves of a section: a legend that hides rows, a switch for single seeds, one drawing per column."""

from __future__ import annotations

from collections.abc import Sequence

from rlmem.report.bands import panels
from rlmem.report.draw import COLOURS, DASHES, single
from rlmem.report.html import Html, tag
from rlmem.report.svg import inline
from rlmem.reproduce.outcome import Curve

STROKES = ("none", "5 2", "1 1.5", "6 2 1 2")
"""DASHES as SVG writes them."""


def chart(curves: Sequence[Curve], rows: Sequence[str], columns: Sequence[str], what: str, prefix: str) -> Html:
    """what: the quantity;  prefix: of the names of its elements, alone in the page"""
    shown = panels(curves, rows, columns, what)
    there = {line.index for panel in shown for line in panel.lines}
    legend = [_entry(row, index, f"{prefix}-row{index}") for index, row in enumerate(rows) if index in there]
    seeds = tag("input", type="checkbox", id=f"{prefix}-seeds", class_="pick-seeds")
    switch = tag("p", tag("label", seeds, " single seeds", for_=f"{prefix}-seeds"), class_="switch")
    drawn = []
    for number, panel in enumerate(shown):
        where = f" on {panel.title}" if panel.title else ""
        title = f"{what}{where} over environment steps: {', '.join(line.name for line in panel.lines)}"
        drawn.append(tag("div", inline(single(panel), f"{prefix}-c{number}", title), class_="chart"))
    caption = tag("figcaption", f"{what[:1].upper()}{what[1:]}: mean over seeds with its pointwise 95 % interval.")
    names = tag("div", *legend, class_="legend", role="group", aria_label="rows that are shown")
    return tag("figure", caption, names, switch, tag("div", *drawn, class_="panels"), class_="curves")


def row_rules(rows: int) -> str:
    """CSS that hides the curves of every row whose box is not checked."""
    hidden = "figure.curves:has(.pick-{0}:not(:checked)) .row-{0}{{display:none}}\n"
    return "".join(hidden.format(index) for index in range(rows))


def _entry(row: str, index: int, name: str) -> Html:
    stroke, dash = f"var(--row-{index % len(COLOURS)})", STROKES[index // len(COLOURS) % len(DASHES)]
    line = tag("line", x1=0, y1=5, x2=26, y2=5, style=f"stroke:{stroke};stroke-width:2.5;stroke-dasharray:{dash}")
    swatch = tag("svg", line, viewBox="0 0 26 10", class_="swatch", aria_hidden="true")
    box = tag("input", type="checkbox", id=name, class_=f"pick-{index}", checked=True)
    return tag("label", box, swatch, f" {row}", for_=name)
