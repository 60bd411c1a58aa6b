"""Runners: the common interface of all ways to run the cells of an item, their directories, and measurements."""

import json
import pkgutil
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cached_property, partial
from importlib import import_module
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any

from rlmem import __version__
from rlmem.config.messages import mistake, nearest
from rlmem.config.paths import experiment_modules
from rlmem.core.errors import Fault, writing
from rlmem.core.hardware import cores, machine_class
from rlmem.evidence import drawings, registration
from rlmem.evidence.cost import Cost, cost_of, duration
from rlmem.evidence.experiment import Cell, Planned
from rlmem.evidence.folder import CELLS, ELSEWHERE, held, read_about, seals
from rlmem.evidence.published import described, measured
from rlmem.evidence.records import (
    RESULTS,
    Curve,
    Place,
    Record,
    read_results,
    shipped_curves,
    shipped_records,
    write_results,
)
from rlmem.evidence.tables import write
from rlmem.evidence.verdict import Outcome
from rlmem.jobs.manifest import holds_sweep
from rlmem.jobs.pool import Options
from rlmem.record import figures, rundir
from rlmem.record.facts import short_commit
from rlmem.record.provenance import git_commit
from rlmem.record.trust import require_plain

PICTURE = "picture.svg"
"""The file of what an experiment draws, next to its tables."""
Collected = tuple[Sequence[Record], Sequence[Curve], Mapping[str, Path]]
"""A record of every run, learning curves, and pictures by caption."""


class Runner(ABC):
    """One way of running the cells of an item, `<paper>/<item>`, at a budget, below the `root` of all reproductions.

    Its table lies in `folder`, by default `root`/<paper>/<item>-<budget>. Its runs lie in `runs`; they belong to the
    item `owner`, which may be another one.
    """

    def __init__(self, planned: Planned, root: Path, folder: Path | None = None):
        self.name, self.budget = planned.name, planned.budget
        self.owner = planned.experiment.runs or self.name
        self.folder = folder or root / f"{self.name}-{self.budget}"
        self.runs = self.folder if self.owner == self.name else root / f"{self.owner}-{self.budget}"
        first_run = registration.known(self.runs / registration.FILE, self.owner, self.budget).first_run
        own = registration.known(self.folder / registration.FILE, self.name, self.budget)
        self.planned = replace(planned, registration=planned.registration.begun(first_run).with_runs(own))
        self.options = planned.experiment.options | planned.chosen.options
        self.trust = False
        """Whether rows that another user wrote may name code outside rlmem."""

    @abstractmethod
    def check(self, cells: Sequence[Cell], files: bool = True) -> None:
        """Raise UserError for what cannot run, before anything is started; `files`: whether files to read exist."""

    def begin(self, cells: Sequence[Cell], options: Options) -> None:
        """Check the cells, and list their runs among those that are asked for. Raises UserError."""
        self.check(cells)

    @abstractmethod
    def run(self, cells: Sequence[Cell], options: Options) -> int:
        """Run what has not been run yet, and return 1 if a run failed, else 0. Raises Stopped after a signal."""

    @abstractmethod
    def collect(self) -> Collected:
        """What every run that was asked for has come to so far. Raises UserError."""

    def cost(self, cells: Sequence[Cell]) -> Cost | None:
        """The cost of the runs of these cells; None where it is not counted in steps."""
        return cost_of(cells)

    def remarks(self, cells: Sequence[Cell]) -> list[str]:
        """Lines to show above the cost of these cells, which have been checked."""
        return []

    def cost_line(self, cells: Sequence[Cell]) -> str:
        """`memoroids/figure4 at the budget laptop: 12 cells, 36 runs, 720,000 steps, about 25 min on 2 cores`."""
        runs = sum(len(cell.seeds) for cell in cells)
        parts = [f"{self.name} at the budget {self.budget}: {len(cells)} cells, {runs} runs"]
        if cost := self.cost(cells):
            time = f"about {duration(cost.seconds / cores())} on {cores()} cores, estimated from shipped runs"
            parts += [f"{cost.steps:,} steps", time if cost.seconds else "duration unknown: no such runs are shipped"]
        return ", ".join(parts)

    def dry_run(self, cells: Sequence[Cell]) -> str:
        """Every cell with the overrides of its runs, and the cost, once all of them have been checked."""
        missing, note = self._missing(), self.planned.chosen.note
        self.check(corners(cells), files=not missing)
        lines = [f"{cell.name}: {' '.join(cell.overrides)}" for cell in cells]
        lines += [f"  because: {reason}" for reason in dict.fromkeys(r for cell in cells for r in cell.reasons)]
        lines += [f"  this budget: {note}"] if note else []
        peers = described(self.planned, measured(self.planned)[0])
        lines += [f"  beside them, {row}: {about}" for row, about in peers.items()]
        lines += [f"  first, {path}: rlmem {how}" for path, how in missing.items()]
        lines += [] if missing else self.remarks(cells)
        return "\n".join([*lines, self.cost_line(cells)])

    def reproduce(self, cells: Sequence[Cell], options: Options, command: Callable[[str], int]) -> tuple[Outcome, int]:
        """Run what has not been run yet, and return the outcome with the exit code of the runs.

        options: how the runs are spread over this machine
        command: runs a command of rlmem, such as `dataset generate ...`, and returns its exit code

        Raises UserError for what is refused before anything is started, and Stopped after a signal.
        """
        self.require_own()
        measured(self.planned)  # what cannot be read is refused before anything runs
        print(self.cost_line(cells), flush=True)
        for path, how in self._missing().items():
            print(f"{path}: made by    rlmem {how}", flush=True)
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            if command(how):
                raise Fault(f"{path} could not be made, see above; again by    rlmem {how}")
        last_start = self.runs / CELLS
        time = datetime.fromtimestamp(last_start.stat().st_mtime) if last_start.exists() else datetime.now()
        self.begin(cells, options)
        self._note_first_run(time)
        for line in self.remarks(cells):
            print(line, flush=True)
        try:
            code = self.run(cells, options)
        finally:
            outcome = self.written()
        return outcome, code

    def written(self) -> Outcome:
        """`so_far`, with its tables in `folder`.

        Processes that share the runs may end at the same time: each collects and writes alone, so that the last one to
        write knows of all runs.
        """
        self.require_own()
        with held(self.folder / ".tables.lock"):
            outcome = self._looked_at(self.so_far())
            write(outcome, self.folder)
            if outcome.planned.experiment.draw and outcome.scores() and find_spec("matplotlib"):
                drawing = getattr(drawings, outcome.planned.experiment.draw)(outcome.verdict.cells)
                figures.save(drawing, image := BytesIO(), "svg")
                with writing(self.folder / PICTURE, "--dir /tmp/reproduce"):
                    rundir.write_atomically(self.folder / PICTURE, image.getvalue().decode())
                outcome = replace(outcome, pictures={**outcome.pictures, **self._drawing()})
        return outcome

    def _looked_at(self, outcome: Outcome) -> Outcome:
        """The outcome with this look at its verdict, kept next to the table, if all counted runs have ended."""
        if self.budget in registration.COUNTED and outcome.verdict.word != "not run":
            look = registration.Look(registration.stamp(datetime.now()), tuple(sorted(self.planned.seeds)))
            known = self.planned.registration.with_runs(registration.Registration(looks=(look,)))
            if known != self.planned.registration:
                self.planned = replace(self.planned, registration=known)
                registration.write(self.folder / registration.FILE, self.name, self.budget, known)
            outcome = replace(outcome, planned=self.planned)
        return outcome

    def _drawing(self) -> dict[str, Path]:
        """The picture that the experiment's drawing function has made, by its caption."""
        name, file = self.planned.experiment.draw, self.folder / PICTURE
        return {name.replace("_", " "): file} if name and file.is_file() else {}

    def so_far(self) -> Outcome:
        """What has been run, without running more. Raises UserError if nothing has, or if something else lies there."""
        self.require_own()
        records, curves, pictures = self.collect()
        theirs, their_curves = measured(self.planned)
        shipped, curves_of_shipped = self._shipped(records)
        everything = [*records, *shipped, *theirs], [*curves, *curves_of_shipped, *their_curves]
        return Outcome(self.planned, *everything, {**pictures, **self._drawing()})

    def _shipped(self, records: Sequence[Record]) -> tuple[list[Record], list[Curve]]:
        """Shipped runs to stand beside rows of the user's own: those of runs of the file that were not made here.

        Runs of another version of the file, with other overrides, are left out.
        """
        if not self.planned.own_rows:
            return [], []
        places = {record.place for record in records}
        cells = self.planned.cells()
        asked = {(cell.row, cell.column, seed): " ".join(cell.lines(seed)) for cell in cells for seed in cell.seeds}
        shipped = [r for r in shipped_records(self.name, self.budget) if r.overrides == asked.get(r.place, "")]
        missing = {record.place: record for record in shipped if record.place not in places}
        curves = [curve for curve in shipped_curves(self.name, self.budget) if curve.place in missing]
        return list(missing.values()), curves

    def require_own(self) -> None:
        """Raise UserError if the directory of the runs holds something else, or links that lead out of it."""
        for written in {self.folder, self.runs}:
            require_plain(written)
        if (self.runs / CELLS).exists():
            about = self.read_cells()
            if (about["item"], about["budget"]) != (self.owner, self.budget):
                problem = f"holds {about['item']} at the budget {about['budget']}"
                raise mistake(str(self.runs), problem, example=ELSEWHERE)
        elif holds_sweep(self.runs) or (self.runs / "config.yaml").exists():
            raise mistake(str(self.runs), "holds a run or a sweep of something else", example=ELSEWHERE)

    def _note_first_run(self, time: datetime) -> None:
        """Keep the time of the first counted run next to the runs, unless it is known."""
        file = self.runs / registration.FILE
        known = registration.known(file, self.owner, self.budget)
        if self.budget not in registration.COUNTED or known.first_run:
            return
        begun = self.planned.registration.begun(registration.stamp(time))
        self.planned = replace(self.planned, registration=begun)
        with held(self.runs / ".cells.lock"):
            versions = begun.versions if self.owner == self.name else ()
            first = registration.Registration(versions, begun.first_run, known.looks)
            registration.write(file, self.owner, self.budget, first)

    def ask_for(self, kind: str, runs: Iterable[tuple[Cell, int, str]]) -> None:
        """Add runs (a cell, a seed, and the job or folder that `kind` says) to CELLS. Raises UserError."""
        asked = [{"row": cell.row, "column": cell.column, "seed": seed, kind: own} for cell, seed, own in runs]
        with held(self.runs / ".cells.lock"), writing(self.runs, ELSEWHERE):
            before = self.read_cells()["cells"] if (self.runs / CELLS).exists() else []
            merged = {(c["row"], c["column"], c["seed"]): c for c in [*before, *asked]}
            about: dict[str, Any] = {"item": self.owner, "budget": self.budget, "cells": list(merged.values())}
            if rows := self.planned.own_rows:
                about |= {"rows": rows, "seals": seals(self.runs / CELLS, rows)}
            rundir.write_atomically(self.runs / CELLS, json.dumps(about, indent=1) + "\n")

    def read_cells(self) -> dict[str, Any]:
        """The content of CELLS. Raises UserError."""
        return read_about(self.runs / CELLS)

    def _missing(self) -> dict[str, str]:
        """Missing file that the runs read -> the command that makes it.

        What has no suffix is a run, which is needed as long as a file is missing; its command continues it.
        """
        files = self.planned.chosen.files
        missing = {path for path in files if Path(path).suffix and not Path(path).exists()}
        return {path: how for path, how in files.items() if path in missing or (missing and not Path(path).suffix)}


def corners(cells: Sequence[Cell]) -> list[Cell]:
    """Cells that together have every override: one of each row and column, and every cell with an exception."""
    chosen: dict[tuple[str, str], Cell] = {}
    for side in ("row", "column"):
        for cell in cells:
            chosen.setdefault((side, getattr(cell, side)), cell)
    chosen |= {("exception", cell.name): cell for cell in cells if cell.reasons}
    return list(dict.fromkeys(chosen.values()))


# Items that are measured instead of trained: speeds, and what follows from equations alone

Values = Mapping[str, Mapping[str, float]]
"""row -> column -> number"""


def measurement(name: str) -> Callable[..., Values]:
    """The measurement of an experiment's `run`. Raises UserError if there is none of that name.

    It takes the path of its files without suffix, the number of the repetition, the rows, and the options of the
    experiment and its budget; it returns the number of every row and column.

    It is an analysis that needs no run, or else the function `values` of a benchmark in the folder of its experiment.
    """
    from rlmem.analysis import analyses

    without_run = [analysis for analysis, declared in analyses().items() if not declared.needs_run]
    if name in without_run:
        return partial(_analysed, name)
    benchmarks = [module.name for module in pkgutil.iter_modules(experiment_modules()) if module.name not in analyses()]
    if name not in benchmarks:
        accepted = ["train", "population", *benchmarks, *without_run]
        raise mistake(f"run: {name}", "no such measurement", near=nearest(name, accepted), accepted=accepted)
    measure: Callable[..., Values] = import_module(f"rlmem.evidence.bench.{name}").values
    return lambda path, repetition, rows, **options: measure(path, rows, **options)


def _analysed(analysis: str, path: Path, repetition: int, rows: Sequence[str], **options: Any) -> Values:
    from rlmem.analysis import analyze

    values: dict[str, dict[str, float]] = {}
    for name, value in analyze(analysis, None, seed=repetition, out=path.parent, **options).metrics.items():
        row, _, column = name.partition("/")
        values.setdefault(row, {})[column] = value
    return values


class Measured(Runner):
    """All cells of a repetition are one measurement; seeds number the repetitions."""

    def check(self, cells: Sequence[Cell], files: bool = True) -> None:
        measurement(self.planned.run)

    def run(self, cells: Sequence[Cell], options: Options) -> int:
        self.folder.mkdir(parents=True, exist_ok=True)
        name, commit = self.planned.run, short_commit(git_commit())
        about: dict[str, Any] = {"commit": commit, "machine": machine_class(), "overrides": self.asked}
        for seed in cells[0].seeds if cells else ():
            rows = list(dict.fromkeys(c.row for c in cells if (c.row, c.column, seed) not in self.records))
            values = measurement(name)(self.folder / f"{name}-{seed}", seed, rows, **self.options) if rows else {}
            for row, numbers in values.items():
                for column, value in numbers.items():
                    if column in self.planned.experiment.columns:
                        metrics = {self.planned.metric: value}
                        record = Record(row, column, seed, "done", metrics, version=__version__, **about)
                        self.records[row, column, seed] = record
            write_results(list(self.records.values()), self.folder / RESULTS)
        return 0

    def collect(self) -> Collected:
        """What has been measured with the present options of the file, and the pictures of repetition 0."""
        files = sorted([*self.folder.glob("*.png"), *self.folder.glob("*.svg")])
        pictures = {f.stem.removesuffix("-0"): f for f in files if not re.search(r"-[1-9]\d*$", f.stem)}
        return list(self.records.values()), (), pictures

    def cost(self, cells: Sequence[Cell]) -> None:
        """None: a measurement takes no environment steps."""

    @cached_property
    def records(self) -> dict[Place, Record]:
        """Place -> record of what was measured with these options."""
        file = self.folder / RESULTS
        stored = read_results(file) if file.exists() else []
        return {record.place: record for record in stored if record.overrides == self.asked}

    @property
    def asked(self) -> str:
        """The options in the form that records have them in."""
        return json.dumps(self.options, sort_keys=True)
