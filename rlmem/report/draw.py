"""Learning curves drawn with matplotlib, for reports and `rlmem plot` alike."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from rlmem.config.messages import sentence
from rlmem.errors import UserError, extra, printable, writing
from rlmem.report.bands import Panel
from rlmem.stats import figures
from rlmem.stats.figures import COLOURS, DASHES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANEL = (4.6, 3.0)
"""Width and height of a panel in inches; on a phone its letters are as large as those of the text around it."""
ACROSS = 3
"""The greatest number of panels side by side."""
MOST, LINE, ENTRY, LETTER = 4, 0.25, 0.7, 0.085
"""A legend's greatest number of names on a line, and in inches: the height of a line, the width of an entry without
its name, and the width of a letter."""
WIDE = 0.1
"""An upper bound on the width of a letter in inches, for wrapping long names."""
WRAP, TITLE = 32, 46
"""The greatest number of letters on a line of a panel's side label and of its title."""
FORMATS = ("png", "pdf", "svg")


def require_matplotlib() -> None:
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        raise UserError(sentence("curves", "matplotlib is not installed", example=extra("report")))


def single(panel: Panel) -> Figure:
    """A figure of one panel with the curves of all seeds, for a page that has a legend of its own."""
    figure, axes = figures.figure(PANEL[1], width=PANEL[0])
    with figures.style():
        draw(axes[0, 0], panel, seeds=True)
    return figure


def together(shown: Sequence[Panel]) -> Figure:
    """A figure of all panels with a legend."""
    across, names = min(ACROSS, len(shown)), {line.name for panel in shown for line in panel.lines}
    width, longest = PANEL[0] * across, max(map(len, names), default=0)
    abreast = max(1, min(MOST, int(width / (ENTRY + LETTER * longest))))
    wrap = max(longest, 1) if ENTRY + LETTER * longest <= width else int((width - ENTRY) / WIDE)
    wrapped = {name: fill(_literal(name), wrap) for name in names}
    handles: dict[str, Any] = {}
    lines = sum(text.count("\n") for text in wrapped.values()) + ceil(len(names) / abreast)
    down = ceil(len(shown) / across)
    figure, grid = figures.figure(PANEL[1] * down + LINE * lines, down, across, width=width)
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
            edge: Any = {"lw": 1.8 if len(line.steps) == 1 else 0}
            axes.fill_between(line.steps, line.low, line.high, **look, **edge, alpha=0.18, gid=f"band-{line.index}")
        means = [(line.steps, line.mean)] if len(line.steps) else [(curve.steps, curve.values) for curve in line.seeds]
        for steps, values in means:
            dot: Any = {"marker": "o"} if len(steps) == 1 else {}
            (handles[line.name],) = axes.plot(steps, values, **thick, **dot, gid=f"mean-{line.index}")
        for curve in line.dots:
            (drawn,) = axes.plot(curve.steps, curve.values, **thick, marker="o", gid=f"dot-{line.index}")
            handles.setdefault(line.name, drawn)
    axes.set_title(fill(_literal(panel.title), TITLE))
    axes.set_xlabel("environment steps")
    axes.set_ylabel(fill(_literal(panel.what), WRAP))
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.xaxis.set_major_locator(MaxNLocator(5))
    return handles


def save(figure: Figure, path: Path) -> None:
    """Write a figure in the format of its suffix, reproducibly byte by byte. Raises UserError if it cannot."""
    kind = path.suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise UserError(sentence(f"--out {path}", "no such format", accepted=FORMATS, example="--out figure.pdf"))
    with writing(path, "--out /tmp/figure.png"):
        path.parent.mkdir(parents=True, exist_ok=True)
        figures.save(figure, path, kind)


def _literal(text: str) -> str:
    """Escape a text for matplotlib's mathematics, and drop characters that XML forbids."""
    return printable(text).replace("$", r"\$")
