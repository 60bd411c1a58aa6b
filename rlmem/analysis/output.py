"""The result of an analysis, and how it is written: a table, numbers, pictures."""

import csv
import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlmem.analysis import Summary
from rlmem.core.errors import UserError, writing
from rlmem.record import figures, rundir

ASKED = "asked.json"
"""The file that `rlmem reproduce` puts beside an analysis, with the options that it asked for."""


LOOKS: dict[str, dict[str, Any]] = {
    "trained": {"color": figures.COLOURS[0], "lw": 2.0},
    "untrained": {"color": figures.COLOURS[6], "lw": 1.6, "ls": "--"},
}
"""How the curves of an agent, and of the same agent before it learnt, are drawn."""


def beside_null(scores: Mapping[str, Mapping[str, float]], learnt: Collection[str] = ()) -> dict[str, float]:
    """Metrics by name of an agent, and of the same agent before it learnt (NAME_untrained), if that was measured.

    scores: both as "trained" and "untrained"
    learnt: the metrics whose difference (NAME_learnt) is what learning did
    """
    trained, untrained = scores["trained"], scores.get("untrained", {})
    nulls = {f"{name}_untrained": value for name, value in untrained.items()}
    differences = {f"{name}_learnt": trained[name] - value for name, value in untrained.items() if name in learnt}
    return {**trained, **nulls, **differences}


def if_reached(name: str, scores: Mapping[str, Mapping[str, float]]) -> list[str]:
    """[name] if every agent has reached what NAME_reached tells, else []: a difference of bounds means nothing."""
    return [name] if all(metrics[f"{name}_reached"] for metrics in scores.values()) else []


def curve_rows(
    measurements: Mapping[Any, Any], index: str, curves: Callable[[Any], dict[str, Iterable[float]]], of: str = "of"
) -> list[dict[str, Any]]:
    """Rows of data.csv: one for each place in the curves of each agent.

    measurements: what was measured, by the agent's name
    index: the column of the place, which counts from 0 unless it is one of the curves
    curves: the columns of what was measured, of equal length or as long as the first
    of: the column of the name
    """
    rows = []
    for name, measured in measurements.items():
        columns = curves(measured)
        places = columns.pop(index, count())
        for place, *values in zip(places, *columns.values(), strict=False):
            rows.append({of: name, index: int(place), **dict(zip(columns, map(float, values), strict=True))})
    return rows


@dataclass
class Result:
    """What an analysis found.

    metrics: numbers by name
    rows: the table data.csv, one mapping per row with the same keys
    pictures: figures by file name, the main one as "picture"
    about: settings and names, for summary.json
    arrays: larger numbers by name, for data.npz
    """

    metrics: dict[str, float]
    rows: Sequence[Mapping[str, Any]]
    pictures: dict[str, Any]
    about: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)

    def write(self, folder: Path, analysis: str, run: str | None, step: int | None, seed: int) -> Summary:
        """Write everything into `folder`, summary.json last; the other arguments are for the summary.

        Raises UserError if nothing can be written there, or if a number is not finite.
        """
        if wrong := [name for name, value in self.metrics.items() if not math.isfinite(value)]:
            raise UserError(
                f"{folder}: {', '.join(wrong)} is not a finite number; the agent's parameters may have diverged"
            )
        drawn = {f"{name}.{kind}": (fig, kind) for name, fig in self.pictures.items() for kind in ("png", "svg")}
        files = ("data.csv", *(["data.npz"] if self.arrays else []), *drawn)
        summary = Summary(analysis, run, step, seed, self.metrics, self.about, files, folder)
        with writing(folder, "--out /tmp/analysis"):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / ASKED).unlink(missing_ok=True)  # it describes the analysis that was here before
            with open(folder / "data.csv", "w", encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, list(self.rows[0]), lineterminator="\n")
                writer.writeheader()
                writer.writerows(self.rows)
            if self.arrays:
                np.savez_compressed(folder / "data.npz", **self.arrays)  # type: ignore[arg-type]
            for name, (fig, kind) in drawn.items():
                figures.save(fig, folder / name, kind)
            rundir.write_atomically(folder / "summary.json", json.dumps(summary.row(), indent=2) + "\n")
        return summary


def ragged(curves: Iterable[Iterable[float]]) -> NDArray[np.float64]:
    """Curves of different lengths as the rows of one table, with NaN behind their ends."""
    return np.array(list(zip_longest(*curves, fillvalue=np.nan)), dtype=np.float64).T.copy()
