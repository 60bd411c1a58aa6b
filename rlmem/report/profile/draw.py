"""The picture of a profile, and the page of several."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rlmem.config.messages import shell
from rlmem.errors import writing
from rlmem.evidence.page.documents import around
from rlmem.record import rundir
from rlmem.report.profile.panels import Panel
from rlmem.report.profile.run import Profile, cells, table
from rlmem.stats import figures

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ACROSS, SIZE = 4, 2.3
"""Panels side by side, and the width of one in inches."""
COLOURS = "YlGnBu"
"""matplotlib's colour map, from pale to dark."""


def picture(profile: Profile, panels: Sequence[Panel]) -> Figure:
    """A heat map for each panel, with the scores in its cells."""
    across = min(ACROSS, len(panels))
    down = -(-len(panels) // across)
    made, grid = figures.figure(SIZE * down + 0.3, down, across, width=SIZE * across)
    with figures.style():
        for axes, panel in zip(grid.flat, panels, strict=False):
            _draw(axes, profile, panel)
        for axes in grid.flat[len(panels) :]:
            axes.remove()
        made.suptitle(profile.label)
    return made


def _draw(axes: Axes, profile: Profile, panel: Panel) -> None:
    scores = [[profile.scores.get((panel.name, x, y), np.nan) for x in panel.across.values] for y in panel.up.values]
    axes.imshow(scores, cmap=COLOURS, vmin=0, vmax=1, origin="lower", aspect="auto")
    figures.as_image(axes)
    axes.set_title(panel.name)
    axes.set_xlabel(panel.across.label)
    axes.set_ylabel(panel.up.label)
    axes.set_xticks(range(len(panel.across.values)), list(map(str, panel.across.values)))
    axes.set_yticks(range(len(panel.up.values)), list(map(str, panel.up.values)))
    for row, of_row in enumerate(scores):
        for column, score in enumerate(of_row):
            if not np.isnan(score):
                colour = "white" if score > 0.55 else figures.INK
                axes.text(column, row, f"{score:.2f}".replace("-0.00", "0.00"), ha="center", va="center", color=colour)


def file_name(profile: Profile) -> str:
    """The name of a profile's files."""
    return re.sub(r"[^\w.+-]+", "_", profile.label)


def write(found: Sequence[Profile], panels: Sequence[Panel], folder: Path) -> list[Path]:
    """Write the table, the scores and the pictures into `folder`; returns the files."""
    texts = {"table.md": table(found, panels).markdown(), "cells.csv": cells(found, panels).csv()}
    with writing(folder, "--dir /tmp/profile"):
        for name, text in texts.items():
            rundir.write_atomically(folder / name, text)
        drawn = [folder / f"{file_name(profile)}.{kind}" for profile in found for kind in ("png", "svg")]
        for profile in found:
            made = picture(profile, panels)
            for kind in ("png", "svg"):
                figures.save(made, folder / f"{file_name(profile)}.{kind}", kind)
    return [*(folder / name for name in texts), *drawn]


def page(found: Sequence[Profile], panels: Sequence[Panel], budget: str, file: Path) -> None:
    """Put the profiles between the marks of a page, and their pictures into images/profile beside it.

    A file without the marks is refused; one that does not exist becomes a page of the profiles alone.
    """
    before, after = around(file, "Profiles", "profiles")
    images = file.parent / "images" / "profile"
    with writing(file, "--page /tmp/profiles.md"):
        images.mkdir(parents=True, exist_ok=True)
        for profile in found:
            figures.save(picture(profile, panels), images / f"{file_name(profile)}.svg", "svg")
        shown = "\n\n".join(
            f"![Profile of {profile.label}](images/profile/{file_name(profile)}.svg)" for profile in found
        )
        rundir.write_atomically(file, f"{before}{budget}\n\n{table(found, panels).markdown()}\n{shown}\n{after}")


def budget(found: Sequence[Profile], steps: str, command: Sequence[str]) -> str:
    """What the profiles cost, in a sentence; `steps` as they are given on the command line."""
    seeds = max(profile.seeds for profile in found)
    runs = "One run" if seeds == 1 else f"{seeds} runs"
    slots = f"{int(steps):,}" if steps.isdigit() else steps
    return f"{runs} of {slots} slots for each cell: `rlmem profile {shell(*command)}`."
