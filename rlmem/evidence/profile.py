"""Profiles of memories: their cells as the jobs of a sweep, their scores, and the pictures and the page of several.

A panel is a task and two of its dials, three values of each; panels.yaml lists them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

from rlmem.config import plainyaml
from rlmem.config.catalog import default_choices, node_of, options
from rlmem.config.compose import load
from rlmem.config.messages import mistake, shell
from rlmem.config.targets import build
from rlmem.core.errors import UserError, writing
from rlmem.evidence.page.documents import put
from rlmem.jobs.manifest import Manifest, holds_sweep
from rlmem.jobs.spec import SweepSpec
from rlmem.record import figures, rundir
from rlmem.record.tables import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


KEYS = ("env", "env.items", "env.delay", "env.rewrites", "env.evaluation")
"""What tells a cell of a profile from the others, as keys of a run."""

WIDTH = 64
"""The width of every memory, unless the command says otherwise."""
EXAMPLE = "rlmem profile memory=gru,lstm"
ACROSS, SIZE = 4, 2.3
"""The greatest number of panels side by side, and the width of one in inches."""
COLOURS = "YlGnBu"
"""matplotlib's colour map, from pale to dark."""


@dataclass(frozen=True)
class Dial:
    """One axis of a panel.

    key: `items`, `delay` or `rewrites` of the task, or `evaluated`: the delay of the evaluation
    values: in the order in which they are drawn
    label: what it counts, below or beside the axis
    """

    key: str
    values: Sequence[int]
    label: str


@dataclass(frozen=True)
class Dials:
    """A task and two of its dials.

    name: in tables and files
    env: the task
    across, up: the dials along the horizontal and the vertical axis
    says: what the panel measures, in a sentence
    fixed: the dials that it leaves alone; those that are in none of the three are 0
    """

    name: str
    env: str
    across: Dial
    up: Dial
    says: str
    fixed: Mapping[str, int] = field(default_factory=dict)

    def cells(self) -> Iterator[tuple[int, int, tuple[str, ...]]]:
        """(value across, value up, values of KEYS) of every cell."""
        for up in self.up.values:
            for across in self.across.values:
                dials = {"items": 1, "delay": 0, "rewrites": 0, **self.fixed}
                dials |= {self.across.key: across, self.up.key: up}
                evaluated = f"{{delay:{dials['evaluated']}}}" if "evaluated" in dials else "{}"
                yield across, up, (self.env, *(str(dials[key.removeprefix("env.")]) for key in KEYS[1:4]), evaluated)


DATA = plainyaml.read(Path(__file__).with_name("panels.yaml"))
BASE: dict[str, str] = DATA["base"]
"""What all cells have in common, unless the command says otherwise."""
PANELS = tuple(
    Dials(name, panel["env"], Dial(*panel["across"]), Dial(*panel["up"]), panel["says"], panel.get("fixed", {}))
    for name, panel in DATA["panels"].items()
)
"""The panels in the order in which they are drawn."""


def specification(overrides: Sequence[str], panels: Sequence[Dials] = PANELS) -> SweepSpec:
    """The jobs of a profile: those cells for every value of `overrides`. Raises UserError for keys that cells set."""
    lines = _by_key(overrides)
    for key, line in lines.items():
        if key.split(".")[0] == "env" or key == "algo":
            problem = "a profile chooses the tasks, their dials and the algorithm itself"
            raise mistake(line, problem, example=f"{EXAMPLE} algo.lr=0.001")
    fixed = [f"{key}={value}" for key, value in BASE.items() if key not in lines]
    every = [cell for panel in panels for *_, cell in panel.cells()]
    pair = tuple(f"{key}={','.join(values)}" for key, values in zip(KEYS, zip(*every, strict=True), strict=True))
    return SweepSpec((*fixed, *_widths(lines), *overrides), (pair,))


def _by_key(overrides: Sequence[str]) -> dict[str, str]:
    """Key -> its override."""
    return {line.lstrip("+~").partition("=")[0]: line for line in overrides}


def _widths(lines: Mapping[str, str]) -> list[str]:
    """The width of every chosen memory that has one, where the overrides, by their keys, give none."""
    if "memory._target_" in lines or "memory.hidden_size" in lines:
        return []
    widths = []
    for name in dict.fromkeys(_values(lines, "memory")):
        file = options()["memory"].get(name)
        if file and "hidden_size" in node_of(file) and f"memory.{name}.hidden_size" not in lines:
            widths.append(f"memory.{name}.hidden_size={WIDTH}")
    return widths


def _values(lines: Mapping[str, str], key: str) -> list[str]:
    """The values of a key in overrides by their keys, or the default choice of a group."""
    return lines.get(key, f"{key}={default_choices().get(key)}").partition("=")[2].split(",")


def default_folder(overrides: Sequence[str]) -> Path:
    """profiles/<memories>, the same for the same overrides, with a hash if they say more than which memories."""
    lines = _by_key(overrides)
    key = "memory._target_" if "memory._target_" in lines else "memory"
    names = [_file_name(name.rpartition(".")[2]) for name in _values(lines, key)]
    more = [SweepSpec(tuple(overrides)).short_hash] if {*lines} - {"memory"} else []
    return Path("profiles") / "-".join([*names, *more])


def _file_name(text: str) -> str:
    return re.sub(r"[^\w.+-]+", "_", text)


@dataclass(frozen=True)
class MemoryProfile:
    """The scores of one memory: 0 for guessing, 1 for right answers alone.

    label: the memory, and what else tells it from the others
    scores: (panel, value across, value up) -> the mean over seeds; a cell without a finished run is missing
    seeds: runs of every cell, at most
    """

    label: str
    scores: Mapping[tuple[str, int, int], float]
    seeds: int

    def mean(self, panel: Dials) -> float | None:
        """The mean of a panel; None where a cell is missing."""
        return _mean_of_all([self.scores.get((panel.name, across, up)) for across, up, _ in panel.cells()])


def _mean_of_all(values: Sequence[float | None]) -> float | None:
    """The mean; None where a value is missing."""
    known = [value for value in values if value is not None]
    return fmean(known) if len(known) == len(values) else None


def profiles(folder: Path) -> tuple[list[MemoryProfile], list[Dials]]:
    """The profiles in a folder, in the order of their jobs, and the panels that they have.

    Raises UserError if it holds none.
    """
    if not holds_sweep(folder):
        raise UserError(f"{folder}: holds no profile; e.g. {EXAMPLE}")
    places = {cell: (panel, across, up) for panel in PANELS for across, up, cell in panel.cells()}
    by_label: dict[str, dict[tuple[str, int, int], list[float]]] = defaultdict(lambda: defaultdict(list))
    jobs = [(dict(line.partition("=")[::2] for line in job.overrides), job) for job in Manifest(folder).jobs()]
    varying = _varying([values for values, _ in jobs])
    for values, job in jobs:
        place = places.get(tuple(values.get(key, "").replace(" ", "") for key in KEYS))
        if place is None:
            raise UserError(f"{folder}: holds a sweep that is no profile; e.g. {EXAMPLE} --dir profiles/mine")
        panel, across, up = place
        scores = by_label[_label(values, varying)][panel.name, across, up]
        if job.state == "done" and job.result is not None:
            guess = chance(panel.env)
            scores.append((job.result - guess) / (1 - guess))
    of_labels = [
        MemoryProfile(label, {cell: fmean(s) for cell, s in scores.items() if s}, max(map(len, scores.values())))
        for label, scores in by_label.items()
    ]
    names = {name for scores in by_label.values() for name, *_ in scores}
    return of_labels, [panel for panel in PANELS if panel.name in names]


def _varying(jobs: Sequence[Mapping[str, str]]) -> list[str]:
    """The keys that tell one memory from another."""
    keys = dict.fromkeys(key for values in jobs for key in values if key not in (*KEYS, "seed", "memory"))
    memories: dict[str | None, list[Mapping[str, str]]] = defaultdict(list)
    for values in jobs:
        memories[values.get("memory")].append(values)
    return [key for key in keys if any(len({values.get(key) for values in of}) > 1 for of in memories.values())]


def _label(values: Mapping[str, str], varying: Sequence[str]) -> str:
    memory = values.get("memory._target_", values.get("memory", str(default_choices()["memory"]))).rpartition(".")[2]
    return " ".join([memory, *(f"{key.removeprefix('memory.')}={values[key]}" for key in varying if key in values)])


@cache
def chance(env: str) -> float:
    """The share of right answers of the best guess in a task."""
    node = load([f"env={env}"]).values["env"]
    task = build({key: value for key, value in node.items() if key != "evaluation"})
    return float(task.scores().memoryless)


def table(every: Sequence[MemoryProfile], panels: Sequence[Dials]) -> Table:
    """The mean of every panel for every memory, the best mean over all panels first."""
    rows = []
    for profile in every:
        means = [profile.mean(panel) for panel in panels]
        rows.append([profile.label, *means, _mean_of_all(means)])
    rows.sort(key=lambda row: -row[-1] if isinstance(row[-1], float) else 1.0)
    return Table("", ["memory", *(panel.name for panel in panels), "mean"], rows, digits=2)


def cells(every: Sequence[MemoryProfile], panels: Sequence[Dials]) -> Table:
    """Every score, one a row."""
    rows = [
        [profile.label, panel.name, panel.env, across, up, profile.scores.get((panel.name, across, up))]
        for profile in every
        for panel in panels
        for across, up, _ in panel.cells()
    ]
    return Table("", ["memory", "panel", "env", "across", "up", "score"], rows)


def picture(profile: MemoryProfile, panels: Sequence[Dials]) -> Figure:
    """A heat map for each panel, with the scores in its cells."""
    across = min(ACROSS, len(panels))
    down = -(-len(panels) // across)
    figure, grid = figures.figure(SIZE * down + 0.3, down, across, width=SIZE * across)
    with figures.style():
        for axes, panel in zip(grid.flat, panels, strict=False):
            _draw(axes, profile, panel)
        for axes in grid.flat[len(panels) :]:
            axes.remove()
        figure.suptitle(profile.label)
    return figure


def _draw(axes: Axes, profile: MemoryProfile, panel: Dials) -> None:
    scores = [[profile.scores.get((panel.name, x, y), np.nan) for x in panel.across.values] for y in panel.up.values]
    axes.imshow(scores, cmap=COLOURS, vmin=0, vmax=1, origin="lower", aspect="auto")
    figures.as_image(axes)
    axes.set(title=panel.name, xlabel=panel.across.label, ylabel=panel.up.label)
    axes.set_xticks(range(len(panel.across.values)), list(map(str, panel.across.values)))
    axes.set_yticks(range(len(panel.up.values)), list(map(str, panel.up.values)))
    for row, of_row in enumerate(scores):
        for column, score in enumerate(of_row):
            if not np.isnan(score):
                colour = "white" if score > 0.55 else figures.INK
                axes.text(column, row, f"{score:.2f}".replace("-0.00", "0.00"), ha="center", va="center", color=colour)


def write(every: Sequence[MemoryProfile], panels: Sequence[Dials], folder: Path) -> list[Path]:
    """Write the table, the scores and the pictures into `folder`; returns the files."""
    texts = {"table.md": table(every, panels).markdown(), "cells.csv": cells(every, panels).csv()}
    files = [folder / name for name in texts]
    with writing(folder, "--dir /tmp/profile"):
        for file, text in zip(files, texts.values(), strict=True):
            rundir.write_atomically(file, text)
        for profile in every:
            drawing = picture(profile, panels)
            for kind in ("png", "svg"):
                files.append(folder / f"{_file_name(profile.label)}.{kind}")
                figures.save(drawing, files[-1], kind)
    return files


def page(every: Sequence[MemoryProfile], panels: Sequence[Dials], budget: str, file: Path) -> None:
    """Put the profiles between the marks of a page, and their pictures into images/profile next to it.

    A file without the marks is refused; one that does not exist becomes a page of the profiles only.
    """
    drawings = {f"profile/{_file_name(profile.label)}": picture(profile, panels) for profile in every}
    links = (f"![Profile of {profile.label}](images/{name}.svg)" for profile, name in zip(every, drawings, strict=True))
    shown = "\n\n".join(links)
    put(file, "profiles", f"{budget}\n\n{table(every, panels).markdown()}\n{shown}\n", drawings)


def budget(every: Sequence[MemoryProfile], steps: str, command: Sequence[str]) -> str:
    """What the profiles cost, in a sentence; `steps` as they are given on the command line."""
    seeds = max(profile.seeds for profile in every)
    runs = "One run" if seeds == 1 else f"{seeds} runs"
    slots = f"{int(steps):,}" if steps.isdigit() else steps
    return f"{runs} of {slots} slots for each cell: `rlmem profile {shell(*command)}`."
