"""Runners: the common interface of all ways to run the cells of an item."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rlmem.errors import Fault
from rlmem.reproduce.cells import Cell, cells
from rlmem.reproduce.cost import duration, estimate, steps_of
from rlmem.reproduce.outcome import Outcome
from rlmem.reproduce.place import Place
from rlmem.reproduce.spec import Experiment
from rlmem.reproduce.write import write
from rlmem.sweep.run import Options
from rlmem.system.hardware import cores


class Cost(NamedTuple):
    """The cost of runs together: environment steps, and seconds of one core, 0 where no such run was timed."""

    steps: int
    seconds: float


class Runner(ABC):
    """One way of running the cells of an experiment at a budget.

    experiment: the experiment as the budget has it
    where: its directories, its name and its budget
    """

    def __init__(self, experiment: Experiment, where: Place):
        self.experiment = experiment.at(where.budget)
        self.where = where
        self.budget = experiment.budget(where.budget)

    @abstractmethod
    def check(self, planned: Sequence[Cell], files: bool = True) -> None:
        """Refuse what cannot run, before anything is started.

        planned: the cells
        files: whether the files that the runs read exist

        Raises UserError.
        """

    @abstractmethod
    def begin(self, planned: Sequence[Cell], options: Options) -> None:
        """Check the cells, and list their runs among those that are asked for. Raises UserError."""

    @abstractmethod
    def run(self, planned: Sequence[Cell], options: Options) -> int:
        """Run what has not been run yet, and return 1 if a run failed, else 0. Raises Stopped after a signal."""

    @abstractmethod
    def collect(self) -> Outcome:
        """A record of every run that was asked for, as far as it has come. Raises UserError."""

    def so_far(self) -> Outcome:
        """What has been run, without running more. Raises UserError if nothing has, or if something else lies there."""
        self.where.require_own()
        return self.collect()

    def cost(self, planned: Sequence[Cell]) -> Cost | None:
        """The cost of the runs of these cells; None where it is not counted in steps."""
        return Cost(sum(len(c.seeds) * steps_of(c.overrides) for c in planned), estimate(planned))

    def cells(self, wanted: Sequence[str] = ()) -> list[Cell]:
        """The cells at the budget, or those that fit the patterns `wanted`. Raises UserError for one that fits none."""
        return cells(self.experiment, self.where.budget, wanted)

    def cost_line(self, planned: Sequence[Cell]) -> str:
        """`memoroids/figure4 at the budget laptop: 12 cells, 36 runs, 720,000 steps, about 25 min on 2 cores`."""
        runs = sum(len(cell.seeds) for cell in planned)
        parts = [f"{self.where.name} at the budget {self.where.budget}: {len(planned)} cells, {runs} runs"]
        if cost := self.cost(planned):
            time = f"about {duration(cost.seconds / cores())} on {cores()} cores"
            parts += [f"{cost.steps:,} steps", time if cost.seconds else "nobody has timed such runs yet"]
        return ", ".join(parts)

    def dry_run(self, wanted: Sequence[str]) -> str:
        """Every cell with the overrides of its runs, and the cost, once all of them have been checked."""
        planned = self.cells(wanted)
        missing = self._missing()
        self.check(corners(planned), files=not missing)
        lines = [f"{cell.name}: {' '.join(cell.overrides)}" for cell in planned]
        lines += [f"  because: {reason}" for reason in dict.fromkeys(r for cell in planned for r in cell.reasons)]
        lines += [f"  this budget: {self.budget.note}"] if self.budget.note else []
        lines += [f"  first, {path}: rlmem {how}" for path, how in missing.items()]
        return "\n".join([*lines, self.cost_line(planned)])

    def reproduce(self, wanted: Sequence[str], options: Options, command: Callable[[str], int]) -> tuple[Outcome, int]:
        """Run what has not been run yet, and return the outcome with the exit code of the runs.

        wanted: patterns of the cells, () for all
        options: how the runs are spread over this machine
        command: runs a command of rlmem, such as `dataset generate ...`, and returns its exit code

        Raises UserError for what is refused before anything is started, and Stopped after a signal.
        """
        planned = self.cells(wanted)
        self.where.require_own()
        print(self.cost_line(planned), flush=True)
        for path, how in self._missing().items():
            print(f"{path}: made by    rlmem {how}", flush=True)
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            if command(how):
                raise Fault(f"{path} could not be made, see above; again by    rlmem {how}")
        self.begin(planned, options)
        try:
            code = self.run(planned, options)
        finally:
            outcome = self.so_far()
            write(outcome, self.where.folder)
        return outcome, code

    def _missing(self) -> dict[str, str]:
        """Missing file that the runs read -> the command that makes it."""
        return {path: how for path, how in self.budget.files.items() if not Path(path).exists()}

    @property
    def options(self) -> dict[str, Any]:
        """The options of the experiment with those of the budget."""
        return {**self.experiment.options, **self.budget.options}


def corners(planned: Sequence[Cell]) -> list[Cell]:
    """Cells that together have every override: one of each row and column, and every cell with an exception."""
    found: dict[tuple[str, str], Cell] = {}
    for side in ("row", "column"):
        for cell in planned:
            found.setdefault((side, getattr(cell, side)), cell)
    found |= {("exception", cell.name): cell for cell in planned if cell.reasons}
    return list(dict.fromkeys(found.values()))
