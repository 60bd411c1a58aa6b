"""The style of every figure: one palette, one set of settings, and files that are reproducible byte by byte.

matplotlib is imported when a figure is made, and no display is needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

INK, GRID = "#1f2328", "#d0d7de"
"""The colours of text and axes, and of grid lines."""
COLOURS = ("#0072b2", "#d55e00", "#008563", "#b0508a", "#a87400", "#3a9ad9", "#5c6370")
"""Okabe and Ito's palette for colour-blind readers, its light colours darkened to a contrast of 3:1 with white."""
DASHES: tuple[Any, ...] = ("solid", (0, (5, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)))
"""Line styles that tell lines of the same colour apart."""
STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "rlmem",
    "font.size": 10.0,
    "axes.titlesize": 10.5,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    **dict.fromkeys(("axes.spines.top", "axes.spines.right", "legend.frameon"), False),
    **dict.fromkeys(("axes.edgecolor", "axes.labelcolor", "text.color", "xtick.color", "ytick.color"), INK),
}
"""Settings of matplotlib. The text of an SVG stays text, and its identifiers do not change from run to run."""
UNDATED: dict[str, dict[str, None]] = {"svg": {"Creator": None, "Date": None}, "pdf": {"CreationDate": None}}
"""Format -> metadata to leave out of its files."""
DPI = 160
WIDTH = 5.0
"""The width of a single figure in inches; on a phone its letters are as large as those of the text around it."""


@contextmanager
def style() -> Iterator[None]:
    """A context in which matplotlib draws with STYLE and its own defaults, whatever the user's matplotlibrc says."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        yield


def figure(
    height: float, rows: int = 1, columns: int = 1, *, width: float = WIDTH, **options: Any
) -> tuple[Figure, np.ndarray]:
    """A figure of height x width inches with axes [rows, columns]; `options` go to `Figure.subplots`."""
    from matplotlib.figure import Figure

    with style():
        drawing = Figure(figsize=(width, height), layout="constrained")
        return drawing, drawing.subplots(rows, columns, squeeze=False, **options)


def save(figure: Figure, target: Path | IO[bytes], kind: str) -> None:
    """Write a figure as "png", "svg", "pdf" or another kind of file. Equal figures give equal bytes."""
    with style():
        figure.savefig(target, format=kind, dpi=DPI, metadata=UNDATED.get(kind))


def as_image(axes: Axes) -> None:
    """Give axes that show a matrix a frame all around, and no grid."""
    axes.grid(False)
    axes.spines[:].set_visible(True)


def whole_numbers(axis: Axis) -> None:
    """Put ticks of an axis at whole numbers only."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(integer=True))
