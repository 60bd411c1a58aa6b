"""Runners: the common interface of all ways to run the cells of an item, and the directories that they work in."""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from filelock import FileLock

from rlmem.config.messages import sentence, shell
from rlmem.errors import Fault, UserError, writing
from rlmem.evidence import registration
from rlmem.evidence.cells import Cell, cells
from rlmem.evidence.cost import Cost, cost_of, duration
from rlmem.evidence.outcome import Curve, Outcome, Record, shipped_curves, shipped_records
from rlmem.evidence.own_rows import seals
from rlmem.evidence.peers import described, measured
from rlmem.evidence.registration import Registration
from rlmem.evidence.spec import BUDGETS, Experiment
from rlmem.evidence.tables import ELSEWHERE, write
from rlmem.record import rundir
from rlmem.record.trust import require_plain
from rlmem.sweep.manifest import holds_sweep
from rlmem.sweep.run import Options
from rlmem.system import received
from rlmem.system.hardware import cores

CELLS = "cells.json"
"""The file with the item and budget of a reproduction, and the job or folder of every run."""
Collected = tuple[Sequence[Record], Sequence[Curve], Mapping[str, Path]]
"""A record of every run, learning curves, and pictures by caption."""


@contextmanager
def held(lock: Path) -> Iterator[None]:
    """Hold a file that only one of the processes that share a reproduction holds at a time; the others wait.

    Raises UserError if it cannot be written.
    """
    with writing(lock.parent, ELSEWHERE):
        lock.parent.mkdir(parents=True, exist_ok=True)
        acquired = FileLock(lock).acquire()
    with acquired:
        yield


class Runner(ABC):
    """One way of running the cells of an item, `<paper>/<item>`, at a budget, below the `root` of all reproductions.

    Its table lies in `folder`, by default `root`/<paper>/<item>-<budget>. Its runs lie in `runs`; they belong to the
    item `owner`, which may be another one.
    """

    def __init__(self, name: str, experiment: Experiment, budget: str, root: Path, folder: Path | None):
        self.name, self.budget = name, budget
        self.chosen = experiment.budget(budget)
        self.owner = experiment.runs or name
        self.folder = folder or root / f"{name}-{budget}"
        self.runs = self.folder if self.owner == name else root / f"{self.owner}-{budget}"
        registered = experiment.registered.get(budget, Registration())
        first_run = registration.first_run(self.runs / registration.FILE, self.owner, budget)
        self._set_registration(experiment, registered.begun(first_run))
        self.options = self.experiment.options | self.chosen.options
        self.trust = False
        """Whether rows that another user wrote may name code outside rlmem."""

    @abstractmethod
    def check(self, planned: Sequence[Cell], files: bool = True) -> None:
        """Raise UserError for what cannot run, before anything is started; `files`: whether files to read exist."""

    def begin(self, planned: Sequence[Cell], options: Options) -> None:
        """Check the cells, and list their runs among those that are asked for. Raises UserError."""
        self.check(planned)

    @abstractmethod
    def run(self, planned: Sequence[Cell], options: Options) -> int:
        """Run what has not been run yet, and return 1 if a run failed, else 0. Raises Stopped after a signal."""

    @abstractmethod
    def collect(self) -> Collected:
        """What every run that was asked for has come to so far. Raises UserError."""

    def cost(self, planned: Sequence[Cell]) -> Cost | None:
        """The cost of the runs of these cells; None where it is not counted in steps."""
        return cost_of(planned)

    def beside(self, planned: Sequence[Cell]) -> list[str]:
        """Lines to show beside the cost of these cells, which have been checked."""
        return []

    def time(self, planned: Sequence[Cell], say: Callable[[str], None]) -> None:
        """Measure what a run of each cell takes here, which later estimates go by, and `say` it."""
        example = f"rlmem reproduce {shell(self.name)} --budget smoke"
        raise UserError(sentence("--time", "only training runs can be timed", example=example))

    def cells(self, wanted: Sequence[str] = (), seeds: Sequence[int] = ()) -> list[Cell]:
        """The cells at the budget with their seeds, or those that fit the patterns `wanted`, with some `seeds` only.

        Raises UserError for a pattern that fits none, and for a seed that the budget lacks.
        """
        return cells(self.experiment, self.budget, wanted, seeds)

    def cost_line(self, planned: Sequence[Cell]) -> str:
        """`memoroids/figure4 at the budget laptop: 12 cells, 36 runs, 720,000 steps, about 25 min on 2 cores`."""
        runs = sum(len(cell.seeds) for cell in planned)
        parts = [f"{self.name} at the budget {self.budget}: {len(planned)} cells, {runs} runs"]
        if cost := self.cost(planned):
            time = f"about {duration(cost.seconds / cores())} on {cores()} cores"
            time += f" (by other settings for {cost.alike} runs; --time measures)" if cost.alike else ""
            parts += [f"{cost.steps:,} steps", time if cost.seconds else "nobody has timed such runs yet; --time does"]
        return ", ".join(parts)

    def dry_run(self, planned: Sequence[Cell]) -> str:
        """Every cell with the overrides of its runs, and the cost, once all of them have been checked."""
        missing = self._missing()
        self.check(corners(planned), files=not missing)
        lines = [f"{cell.name}: {' '.join(cell.overrides)}" for cell in planned]
        lines += [f"  because: {reason}" for reason in dict.fromkeys(r for cell in planned for r in cell.reasons)]
        lines += [f"  this budget: {self.chosen.note}"] if self.chosen.note else []
        beside = Outcome(self.name, self.experiment, self.budget, measured(self.experiment, self.budget)[0])
        lines += [f"  beside them, {row}: {about}" for row, about in described(beside).items()]
        lines += [f"  first, {path}: rlmem {how}" for path, how in missing.items()]
        lines += [] if missing else self.beside(planned)
        return "\n".join([*lines, self.cost_line(planned)])

    def reproduce(
        self, planned: Sequence[Cell], options: Options, command: Callable[[str], int]
    ) -> tuple[Outcome, int]:
        """Run what has not been run yet, and return the outcome with the exit code of the runs.

        planned: the cells
        options: how the runs are spread over this machine
        command: runs a command of rlmem, such as `dataset generate ...`, and returns its exit code

        Raises UserError for what is refused before anything is started, and Stopped after a signal.
        """
        self.require_own()
        measured(self.experiment, self.budget)  # what cannot be read is refused before anything runs
        print(self.cost_line(planned), flush=True)
        for path, how in self._missing().items():
            print(f"{path}: made by    rlmem {how}", flush=True)
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            if command(how):
                raise Fault(f"{path} could not be made, see above; again by    rlmem {how}")
        last_start = self.runs / CELLS
        time = datetime.fromtimestamp(last_start.stat().st_mtime) if last_start.exists() else datetime.now()
        self.begin(planned, options)
        self._note_first_run(time)
        for line in self.beside(planned):
            print(line, flush=True)
        try:
            code = self.run(planned, options)
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
            outcome = self.so_far()
            write(outcome, self.folder)
        return outcome

    def so_far(self) -> Outcome:
        """What has been run, without running more. Raises UserError if nothing has, or if something else lies there."""
        self.require_own()
        records, curves, pictures = self.collect()
        theirs, their_curves = measured(self.experiment, self.budget)
        shipped, shipped_curves = self._shipped(records)
        everything = [*records, *shipped, *theirs], [*curves, *shipped_curves, *their_curves], pictures
        return Outcome(self.name, self.experiment, self.budget, *everything)

    def _shipped(self, records: Sequence[Record]) -> tuple[list[Record], list[Curve]]:
        """Shipped runs to stand beside rows of the user's own: those of runs of the file that were not made here.

        Runs of another version of the file, with other overrides, are left out.
        """
        if not self.experiment.own_rows:
            return [], []
        here = {(record.row, record.column, record.seed) for record in records}
        asked = {(cell.row, cell.column, seed): cell.lines(seed) for cell in self.cells() for seed in cell.seeds}
        found = {
            place: record
            for record in shipped_records(self.name, self.budget)
            if (place := (record.row, record.column, record.seed)) not in here
            and record.overrides == " ".join(asked.get(place, ()))
        }
        curves = [c for c in shipped_curves(self.name, self.budget) if (c.row, c.column, c.seed) in found]
        return list(found.values()), curves

    def require_own(self) -> None:
        """Raise UserError if the directory of the runs holds something else, or links that lead out of it."""
        for written in {self.folder, self.runs}:
            require_plain(written)
        if (self.runs / CELLS).exists():
            there = self.read_cells()
            if (there["item"], there["budget"]) != (self.owner, self.budget):
                what = f"holds {there['item']} at the budget {there['budget']}"
                raise UserError(sentence(str(self.runs), what, example=ELSEWHERE))
        elif holds_sweep(self.runs) or (self.runs / "config.yaml").exists():
            raise UserError(sentence(str(self.runs), "holds a run or a sweep of something else", example=ELSEWHERE))

    def _set_registration(self, experiment: Experiment, registered: Registration) -> None:
        self.registration = registered
        self.experiment = experiment.with_registered({self.budget: registered}).at(self.budget)

    def _note_first_run(self, time: datetime) -> None:
        """Keep the time of the first counted run next to the runs, unless it is known."""
        file = self.runs / registration.FILE
        if self.budget not in registration.COUNTED or file.exists():
            return
        self._set_registration(self.experiment, self.registration.begun(registration.stamp(time)))
        versions = self.registration.versions if self.owner == self.name else ()
        with held(self.runs / ".cells.lock"):
            known = Registration(versions, self.registration.first_run)
            registration.write(file, self.owner, self.budget, known)

    def ask_for(self, kind: str, runs: Iterable[tuple[Cell, int, str]]) -> None:
        """Add runs (a cell, a seed, and the job or folder that `kind` says) to CELLS. Raises UserError."""
        asked = [{"row": cell.row, "column": cell.column, "seed": seed, kind: own} for cell, seed, own in runs]
        with held(self.runs / ".cells.lock"), writing(self.runs, ELSEWHERE):
            before = self.read_cells()["cells"] if (self.runs / CELLS).exists() else []
            merged = {(c["row"], c["column"], c["seed"]): c for c in [*before, *asked]}
            about: dict[str, Any] = {"item": self.owner, "budget": self.budget, "cells": list(merged.values())}
            if rows := self.experiment.own_rows:
                about |= {"rows": rows, "seals": seals(self.runs / CELLS, rows)}
            rundir.write_atomically(self.runs / CELLS, json.dumps(about, indent=1) + "\n")

    def read_cells(self) -> dict[str, Any]:
        """The content of CELLS. Raises UserError."""
        return read_about(self.runs / CELLS)

    def _missing(self) -> dict[str, str]:
        """Missing file that the runs read -> the command that makes it.

        What has no suffix is a run, which is needed as long as a file is missing; its command continues it.
        """
        files = self.chosen.files
        missing = {path for path in files if Path(path).suffix and not Path(path).exists()}
        return {path: how for path, how in files.items() if path in missing or (missing and not Path(path).suffix)}


def read_about(file: Path) -> dict[str, Any]:
    """The content of a CELLS, or of another file that names an item and a budget. Raises UserError."""
    try:
        about = received.json_of(file)
        sound = isinstance(about, dict) and isinstance(about.get("item"), str) and about.get("budget") in BUDGETS
        if not sound or (file.name == CELLS and not all(map(_is_cell, about["cells"]))):
            raise ValueError("it lacks keys, or has others")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{file}: cannot be read ({error}); expected what `rlmem reproduce` wrote") from error
    return about


def _is_cell(cell: Any) -> bool:
    """True for an entry of CELLS: a run, with its job or its folder, which must lie in the folder of the runs."""
    if not isinstance(cell, dict):
        return False
    texts = all(isinstance(cell.get(name, ""), str) for name in ("config_hash", "folder"))
    named = all(isinstance(cell.get(name), kind) for name, kind in (("row", str), ("column", str), ("seed", int)))
    return texts and named and Path(cell.get("folder", "")).name == cell.get("folder", "")


def corners(planned: Sequence[Cell]) -> list[Cell]:
    """Cells that together have every override: one of each row and column, and every cell with an exception."""
    found: dict[tuple[str, str], Cell] = {}
    for side in ("row", "column"):
        for cell in planned:
            found.setdefault((side, getattr(cell, side)), cell)
    found |= {("exception", cell.name): cell for cell in planned if cell.reasons}
    return list(dict.fromkeys(found.values()))
