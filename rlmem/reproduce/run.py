"""From an item to its table: what it costs, its runs as a sweep that survives anything, and what came of them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from filelock import FileLock

from rlmem.config.messages import sentence, shell
from rlmem.errors import Fault, UserError
from rlmem.record import rundir
from rlmem.record.trust import require_plain
from rlmem.reproduce import measure, populations
from rlmem.reproduce.cells import CELLS, Cell, cells, read_cells
from rlmem.reproduce.collect import analyse, collect
from rlmem.reproduce.cost import cost_line
from rlmem.reproduce.outcome import Outcome
from rlmem.reproduce.spec import Experiment
from rlmem.reproduce.write import write
from rlmem.sweep.jobs import NewJob
from rlmem.sweep.manifest import Manifest, holds_sweep
from rlmem.sweep.multirun import check_jobs
from rlmem.sweep.run import Options, config_hash, sweep
from rlmem.sweep.spec import SweepSpec


@dataclass(frozen=True)
class Place:
    """Where an item lies at a budget. folder: its table;  runs: its runs, which may be those of another item"""

    name: str
    budget: str
    folder: Path
    owner: str
    runs: Path


def place(name: str, experiment: Experiment, budget: str, root: Path) -> Place:
    """`root`/<paper>/<item>-<budget>"""
    folder = lambda item: root / f"{item}-{budget}"  # noqa: E731
    owner = experiment.runs or name
    return Place(name, budget, folder(name), owner, folder(owner))


def dry_run(name: str, experiment: Experiment, budget: str, wanted: Sequence[str]) -> str:
    """Every cell with the overrides of its runs, and the cost. What the cells consist of is composed and checked."""
    planned = cells(experiment, budget, wanted)
    missing = {path: how for path, how in experiment.budget(budget).files.items() if not Path(path).exists()}
    _check(experiment, budget, corners(planned), there=not missing)
    lines = [f"{cell.name}: {' '.join(cell.overrides)}" for cell in planned]
    notes = [f"  because: {reason}" for reason in dict.fromkeys(r for cell in planned for r in cell.reasons)]
    note = experiment.budget(budget).note
    said = [f"  this budget: {note}"] if note else []
    said += [f"  first, {path}: rlmem {how}" for path, how in missing.items()]
    return "\n".join([*lines, *notes, *said, cost_line(name, experiment, budget, planned)])


def _check(experiment: Experiment, budget: str, planned: Sequence[Cell], there: bool) -> None:
    """there: whether the files that the runs read are"""
    if experiment.run == "train":
        check_jobs([cell.lines(cell.seeds[0]) for cell in planned], assembled=there)
    elif experiment.run == "population":
        populations.check(experiment, budget, planned)
    else:
        measure.require(experiment)


def corners(planned: Sequence[Cell]) -> list[Cell]:
    """A cell of every row, of every column, and every one with an exception: they have every override there is."""
    found: dict[tuple[str, str], Cell] = {}
    for side in ("row", "column"):
        for cell in planned:
            found.setdefault((side, getattr(cell, side)), cell)
    found |= {("exception", cell.name): cell for cell in planned if cell.reasons}
    return list(dict.fromkeys(found.values()))


def reproduce(experiment: Experiment, where: Place, wanted: Sequence[str], options: Options) -> tuple[Outcome, int]:
    """Run what has not been run yet, and return what there is then with the exit code of the runs.

    Raises UserError for what is refused before anything is started, and Stopped after a signal.
    """
    planned = cells(experiment, where.budget, wanted)
    _require_own(where)
    print(cost_line(where.name, experiment, where.budget, planned), flush=True)
    _make_files(experiment, where.budget)
    if experiment.run == "population":
        if options != Options():
            what = "a population is trained after the other, in this process; it takes none of --jobs, --gpus, ..."
            raise UserError(
                sentence(where.name, what, example=f"rlmem reproduce {shell(where.name)} --budget {where.budget}")
            )
        return _populations(experiment, where, planned)
    if experiment.run != "train":
        outcome = measure.run(where.name, experiment, where.budget, planned, where.folder)
        write(outcome, where.folder)
        return outcome, 0
    submit(where, planned)
    try:
        code = sweep(None, where.runs, replace(options, places=1) if experiment.alone else options)
        analyse(experiment, where.budget, where.runs, print)
    finally:
        outcome = so_far(experiment, where)
        write(outcome, where.folder)
    return outcome, code


def _make_files(experiment: Experiment, budget: str) -> None:
    """Make what the runs read, where it is not there. Raises Fault if that fails."""
    from rlmem.commands.cli import main

    for path, how in experiment.budget(budget).files.items():
        if not Path(path).exists():
            print(f"{path}: made by    rlmem {how}", flush=True)
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            if main(shlex.split(how)):
                raise Fault(f"{path} could not be made, see above; again by    rlmem {how}")


def so_far(experiment: Experiment, where: Place) -> Outcome:
    """What has been run, without running more. Raises UserError if nothing has."""
    _require_own(where)
    if experiment.run == "population":
        return populations.collect(where.name, experiment, where.budget, where.runs, read_cells(where.runs)["cells"])
    if experiment.run != "train":
        return measure.so_far(where.name, experiment, where.budget, where.folder)
    return collect(where.name, experiment, where.budget, where.runs)


def submit(where: Place, planned: Sequence[Cell]) -> None:
    """Put the runs of the cells into their sweep, where they are not there yet."""
    configs = check_jobs([cell.lines(cell.seeds[0]) for cell in planned])
    jobs, listed = [], []
    for cell, config in zip(planned, configs, strict=True):
        for seed in cell.seeds:
            own = replace(config, values=config.values | {"seed": seed})
            job = NewJob(
                cell.label(seed), cell.lines(seed), config_hash(own), own.values["threads"], own.values["total_steps"]
            )
            jobs.append(job)
            listed.append({"row": cell.row, "column": cell.column, "seed": seed, "config_hash": job.config_hash})
    _note(where, listed)
    Manifest(where.runs).submit(SweepSpec((f"experiment={where.owner}", f"budget={where.budget}")), jobs)


def _populations(experiment: Experiment, where: Place, planned: Sequence[Cell]) -> tuple[Outcome, int]:
    """Train what is not trained yet."""
    populations.check(experiment, where.budget, planned)
    _note(
        where, [{"row": c.row, "column": c.column, "seed": s, "folder": c.label(s)} for c in planned for s in c.seeds]
    )
    try:
        code = populations.run(experiment, where.budget, planned, where.runs)
    finally:
        outcome = so_far(experiment, where)
        write(outcome, where.folder)
    return outcome, code


def _note(where: Place, listed: Sequence[dict]) -> None:
    """Write down which runs are asked for, beside those that were. Raises UserError."""
    try:
        where.runs.mkdir(parents=True, exist_ok=True)
        with FileLock(where.runs / ".cells.lock"):
            before = read_cells(where.runs)["cells"] if (where.runs / CELLS).exists() else []
            merged = {(c["row"], c["column"], c["seed"]): c for c in [*before, *listed]}
            about = {"item": where.owner, "budget": where.budget, "cells": list(merged.values())}
            rundir.write_atomically(where.runs / CELLS, json.dumps(about, indent=1) + "\n")
    except OSError as error:
        raise UserError(f"{where.runs}: cannot be written ({error.strerror}); e.g. --dir /tmp/reproduce") from error


def _require_own(where: Place) -> None:
    """UserError if something else lies where the runs shall lie, or links that lead to other places."""
    folder = where.runs
    for written in {where.folder, folder}:
        require_plain(written)
    if (folder / CELLS).exists():
        there = read_cells(folder)
        if (there["item"], there["budget"]) != (where.owner, where.budget):
            what = f"holds {there['item']} at the budget {there['budget']}"
            raise UserError(sentence(str(folder), what, example="--dir /tmp/reproduce"))
    elif holds_sweep(folder) or (folder / "config.yaml").exists():
        raise UserError(
            sentence(str(folder), "holds a run or a sweep of something else", example="--dir /tmp/reproduce")
        )
