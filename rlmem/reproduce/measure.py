"""Items that are measured and not trained: speeds, and what follows from equations alone.

A measurement is one of MEASUREMENTS. It takes the options of the experiment and its budget, and gives one dictionary of
numbers per row and repetition, whose keys are the columns.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlmem import __version__
from rlmem.config.messages import nearest, sentence
from rlmem.errors import UserError
from rlmem.record import rundir
from rlmem.reproduce.cells import Cell
from rlmem.reproduce.outcome import RESULTS, Outcome, Record, read_results, short, write_results
from rlmem.reproduce.spec import Experiment
from rlmem.system.hardware import machine_class

Values = Mapping[str, Mapping[str, float]]
"""row -> column -> number"""
Measurement = Callable[..., Values]


def figure3(folder: Path, repetition: int, rows: Sequence[str], **options: Any) -> Values:
    """FFM's figure 3: `rlmem bench memory --figure3`. Rows are options of conf/memory, and torch's GRUs beside them."""
    from rlmem.bench.figure3 import Figure3Bench, by_model
    from rlmem.bench.memory import PEERS

    json_path, plot_path = _files(folder, "figure3", repetition)
    models = [row for row in rows if row not in PEERS]
    return by_model(Figure3Bench.run(json_path, plot_path, models=models, **options))


def returns(folder: Path, repetition: int, rows: Sequence[str], **options: Any) -> Values:
    """Memoroids' figure 5, left: `rlmem bench returns`."""
    from rlmem.bench.returns import ReturnsBench, sums_by_method

    json_path, plot_path = _files(folder, "returns", repetition)
    return sums_by_method(ReturnsBench.run(json_path, plot_path, **options))


def impulse(folder: Path, repetition: int, rows: Sequence[str], **options: Any) -> Values:
    """LP-RNN's figure 2 and appendix A: what an impulse leaves in chained and in parallel pools."""
    from rlmem.analysis import analyze

    found: dict[str, dict[str, float]] = {}
    for name, value in analyze("impulse", None, seed=repetition, out=folder, **options).metrics.items():
        row, _, column = name.partition("/")
        found.setdefault(row, {})[column] = value
    return found


def _files(folder: Path, what: str, repetition: int) -> tuple[Path, Path]:
    return folder / f"{what}-{repetition}.json", folder / f"{what}-{repetition}.png"


MEASUREMENTS: dict[str, Measurement] = {"figure3": figure3, "returns": returns, "impulse": impulse}


def require(experiment: Experiment) -> Measurement:
    """The measurement that an experiment names. Raises UserError if there is none."""
    if experiment.run not in MEASUREMENTS:
        accepted = ["train", "population", *MEASUREMENTS]
        near = nearest(experiment.run, accepted)
        raise UserError(sentence(f"run: {experiment.run}", "no such measurement", near=near, accepted=accepted))
    return MEASUREMENTS[experiment.run]


def run(name: str, experiment: Experiment, budget: str, planned: Sequence[Cell], folder: Path) -> Outcome:
    """Measure once per seed, the repetitions, what `folder` does not hold yet."""
    measured = require(experiment)
    options, asked = _options(experiment, budget)
    folder.mkdir(parents=True, exist_ok=True)
    there = so_far(name, experiment, budget, folder).records
    records = {(record.row, record.column, record.seed): record for record in there}
    for seed in planned[0].seeds if planned else ():
        rows = list(dict.fromkeys(cell.row for cell in planned if (cell.row, cell.column, seed) not in records))
        for row, numbers in (measured(folder, seed, rows, **options) if rows else {}).items():
            for column, value in numbers.items():
                if column in experiment.columns:
                    records[row, column, seed] = _record(experiment, row, column, seed, value, asked)
        write_results(records.values(), folder / RESULTS)
    return Outcome(name, experiment, budget, list(records.values()), (), _pictures(folder))


def so_far(name: str, experiment: Experiment, budget: str, folder: Path) -> Outcome:
    """What has been measured in `folder` with the options that the file has now."""
    file, (_, asked) = folder / RESULTS, _options(experiment, budget)
    records = [r for r in (read_results(file) if file.exists() else []) if r.overrides == asked]
    return Outcome(name, experiment, budget, records, (), _pictures(folder))


def _options(experiment: Experiment, budget: str) -> tuple[dict[str, Any], str]:
    """Of a measurement, and as its records have them."""
    options = {**experiment.options, **experiment.budget(budget).options}
    return options, json.dumps(options, sort_keys=True)


def _pictures(folder: Path) -> dict[str, Path]:
    """Of several repetitions, those of the first, which are named like `returns-0`."""
    found = sorted([*folder.glob("*.png"), *folder.glob("*.svg")])
    return {path.stem.removesuffix("-0"): path for path in found if not re.search(r"-[1-9]\d*$", path.stem)}


def _record(experiment: Experiment, row: str, column: str, seed: int, value: float, asked: str) -> Record:
    commit = short(rundir.git_commit())
    return Record(
        row, column, seed, "done", {experiment.metric: value},
        version=__version__, commit=commit, machine=machine_class(), overrides=asked,
    )  # fmt: skip
