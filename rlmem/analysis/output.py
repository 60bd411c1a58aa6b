"""The result of an analysis, and how it is written: a table, numbers, pictures."""

import csv
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rlmem.analysis import Summary
from rlmem.errors import UserError, writing
from rlmem.record import rundir
from rlmem.stats import figures

ASKED = "asked.json"
"""The file that `rlmem reproduce` puts beside an analysis, with the options that it asked for."""


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


def write(result: Result, folder: Path, analysis: str, run: str | None, step: int | None, seed: int) -> Summary:
    """Write the result, summary.json last.

    result: what the analysis found
    folder: where to write; it is created
    analysis: the name of the analysis
    run: the run directory; None where no run was read
    step: the step of the checkpoint; None where no run was read
    seed: the root of the random streams

    Raises UserError if nothing can be written there, or if a number is not finite.
    """
    wrong = [name for name, value in result.metrics.items() if not math.isfinite(value)]
    if wrong:
        what = f"{', '.join(wrong)} is not a finite number; the agent's parameters may have diverged"
        raise UserError(f"{folder}: {what}")
    drawn = {f"{name}.{kind}": (made, kind) for name, made in result.pictures.items() for kind in ("png", "svg")}
    files = ("data.csv", *(["data.npz"] if result.arrays else []), *drawn)
    summary = Summary(analysis, run, step, seed, result.metrics, result.about, files, folder)
    with writing(folder, "--out /tmp/analysis"):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ASKED).unlink(missing_ok=True)  # it describes the analysis that was here before
        with open(folder / "data.csv", "w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(result.rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(result.rows)
        if result.arrays:
            np.savez_compressed(folder / "data.npz", **result.arrays)  # type: ignore[arg-type]
        for name, (made, kind) in drawn.items():
            figures.save(made, folder / name, kind)
        rundir.write_atomically(folder / "summary.json", json.dumps(summary.row(), indent=2) + "\n")
    return summary
