"""The cells of a profile as the jobs of a sweep, and their scores."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean

from rlmem.config.catalog import default_choices, leaves, with_parents
from rlmem.config.compose import load
from rlmem.config.messages import mistake
from rlmem.config.paths import option_dirs
from rlmem.config.targets import build
from rlmem.errors import UserError
from rlmem.report.profile.panels import BASE, KEYS, PANELS, WIDTH, Panel
from rlmem.stats.tables import Table
from rlmem.sweep.manifest import Manifest, holds_sweep
from rlmem.sweep.spec import SweepSpec

EXAMPLE = "rlmem profile memory=gru,lstm"


def specification(overrides: Sequence[str], panels: Sequence[Panel] = PANELS) -> SweepSpec:
    """The jobs of a profile: those cells for every value of `overrides`. Raises UserError for keys that cells set."""
    given = {line.lstrip("+~").partition("=")[0]: line for line in overrides}
    for key, line in given.items():
        if key.split(".")[0] == "env" or key == "algo":
            what = "a profile chooses the tasks, their dials and the algorithm itself"
            raise mistake(line, what, example=f"{EXAMPLE} algo.lr=0.001")
    fixed = {key: value for key, value in BASE.items() if key not in given}
    cells = [cell for panel in panels for *_, cell in panel.cells()]
    pair = tuple(f"{key}={','.join(values)}" for key, values in zip(KEYS, zip(*cells, strict=True), strict=True))
    return SweepSpec((*(f"{key}={value}" for key, value in fixed.items()), *_widths(given), *overrides), (pair,))


def _widths(given: Mapping[str, str]) -> list[str]:
    """The width of every chosen memory that has one, where none is given."""
    if "memory._target_" in given or "memory.hidden_size" in given:
        return []
    found = []
    for name in dict.fromkeys(_values(given, "memory")):
        files = [file for folder in option_dirs("memory") if (file := folder / f"{name}.yaml").is_file()]
        has = any(leaf.path == "hidden_size" for file in files for part in with_parents(file) for leaf in leaves(part))
        if has and f"memory.{name}.hidden_size" not in given:
            found.append(f"memory.{name}.hidden_size={WIDTH}")
    return found


def _values(given: Mapping[str, str], key: str) -> list[str]:
    """The values of a key in overrides `given` by their keys, or the default choice of a group."""
    return given.get(key, f"{key}={default_choices().get(key)}").partition("=")[2].split(",")


def default_folder(overrides: Sequence[str]) -> Path:
    """profiles/<memories>, the same for the same overrides, with a hash if they say more than which memories."""
    given = {line.lstrip("+~").partition("=")[0]: line for line in overrides}
    key = "memory._target_" if "memory._target_" in given else "memory"
    names = [re.sub(r"[^\w.+-]+", "_", name.rpartition(".")[2]) for name in _values(given, key)]
    plain = set(given) <= {"memory"}
    return Path("profiles") / "-".join([*names, *([] if plain else [SweepSpec(tuple(overrides)).short_hash])])


def panels_in(folder: Path) -> list[Panel]:
    """The panels of which a folder has cells; none if it has no profile yet."""
    return profiles(folder)[1] if holds_sweep(folder) else []


@dataclass(frozen=True)
class Profile:
    """The scores of one memory: 0 for guessing, 1 for right answers alone.

    label: the memory, and what else tells it from the others
    scores: (panel, value across, value up) -> the mean over seeds; a cell without a finished run is missing
    seeds: runs of every cell, at most
    """

    label: str
    scores: Mapping[tuple[str, int, int], float]
    seeds: int

    def mean(self, panel: Panel) -> float | None:
        """The mean of a panel; None where a cell is missing."""
        found = [self.scores.get((panel.name, across, up)) for across, up, _ in panel.cells()]
        known = [score for score in found if score is not None]
        return fmean(known) if len(known) == len(found) else None


def profiles(folder: Path) -> tuple[list[Profile], list[Panel]]:
    """The profiles in a folder, in the order of their jobs, and the panels that they have.

    Raises UserError if it holds none.
    """
    if not holds_sweep(folder):
        raise UserError(f"{folder}: holds no profile; e.g. {EXAMPLE}")
    places = {cell: (panel, across, up) for panel in PANELS for across, up, cell in panel.cells()}
    found: dict[str, dict[tuple[str, int, int], list[float]]] = defaultdict(lambda: defaultdict(list))
    jobs = [(dict(line.partition("=")[::2] for line in job.overrides), job) for job in Manifest(folder).jobs()]
    varying = _varying([values for values, _ in jobs])
    for values, job in jobs:
        place = places.get(tuple(values.get(key, "").replace(" ", "") for key in KEYS))
        if place is None:
            raise UserError(f"{folder}: holds a sweep that is no profile; e.g. {EXAMPLE} --dir profiles/mine")
        panel, across, up = place
        scores = found[_label(values, varying)][panel.name, across, up]
        if job.state == "done" and job.result is not None:
            guess = chance(panel.env)
            scores.append((job.result - guess) / (1 - guess))
    made = [
        Profile(label, {cell: fmean(s) for cell, s in cells.items() if s}, max(map(len, cells.values())))
        for label, cells in found.items()
    ]
    there = {name for cells in found.values() for name, *_ in cells}
    return made, [panel for panel in PANELS if panel.name in there]


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
    made = build({key: value for key, value in node.items() if key != "evaluation"})
    return float(made.scores().memoryless)


def table(found: Sequence[Profile], panels: Sequence[Panel]) -> Table:
    """The mean of every panel for every memory, the best mean over all panels first."""
    rows = []
    for profile in found:
        means = [profile.mean(panel) for panel in panels]
        known = [mean for mean in means if mean is not None]
        rows.append([profile.label, *means, fmean(known) if len(known) == len(means) else None])
    rows.sort(key=lambda row: -row[-1] if isinstance(row[-1], float) else 1.0)
    return Table("", ["memory", *(panel.name for panel in panels), "mean"], rows, digits=2)


def cells(found: Sequence[Profile], panels: Sequence[Panel]) -> Table:
    """Every score, one a row."""
    rows = [
        [profile.label, panel.name, panel.env, across, up, profile.scores.get((panel.name, across, up))]
        for profile in found
        for panel in panels
        for across, up, _ in panel.cells()
    ]
    return Table("", ["memory", "panel", "env", "across", "up", "score"], rows)
