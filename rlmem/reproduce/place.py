"""The directories of a reproduction, and the file that lists the runs it asked for."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from rlmem.config.messages import sentence
from rlmem.errors import UserError, writing
from rlmem.record import rundir
from rlmem.record.trust import require_plain
from rlmem.reproduce.spec import Experiment
from rlmem.sweep.manifest import holds_sweep

CELLS = "cells.json"
"""The file with the item and budget of a reproduction, and the job or folder of every run."""
ELSEWHERE = "--dir /tmp/reproduce"


@dataclass(frozen=True)
class Place:
    """The directories of an item at a budget.

    name: the item, `<paper>/<item>`
    budget: the name of the budget
    folder: the directory of its table
    owner: the item that the runs belong to, which may be another one
    runs: the directory of the runs
    """

    name: str
    budget: str
    folder: Path
    owner: str
    runs: Path

    @classmethod
    def below(cls, root: Path, name: str, experiment: Experiment, budget: str) -> Place:
        """The place `root`/<paper>/<item>-<budget>."""
        owner = experiment.runs or name
        return cls(name, budget, root / f"{name}-{budget}", owner, root / f"{owner}-{budget}")

    def require_own(self) -> None:
        """Raise UserError if the directory of the runs holds something else, or links that lead out of it."""
        for written in {self.folder, self.runs}:
            require_plain(written)
        if (self.runs / CELLS).exists():
            there = read_cells(self.runs)
            if (there["item"], there["budget"]) != (self.owner, self.budget):
                what = f"holds {there['item']} at the budget {there['budget']}"
                raise UserError(sentence(str(self.runs), what, example=ELSEWHERE))
        elif holds_sweep(self.runs) or (self.runs / "config.yaml").exists():
            raise UserError(sentence(str(self.runs), "holds a run or a sweep of something else", example=ELSEWHERE))

    def ask_for(self, runs: Iterable[dict[str, Any]]) -> None:
        """Add runs to the list of runs that were asked for.

        runs: each has `row`, `column` and `seed`, and its job or folder

        Raises UserError.
        """
        with writing(self.runs, ELSEWHERE):
            self.runs.mkdir(parents=True, exist_ok=True)
            with FileLock(self.runs / ".cells.lock"):
                before = read_cells(self.runs)["cells"] if (self.runs / CELLS).exists() else []
                merged = {(c["row"], c["column"], c["seed"]): c for c in [*before, *runs]}
                about = {"item": self.owner, "budget": self.budget, "cells": list(merged.values())}
                rundir.write_atomically(self.runs / CELLS, json.dumps(about, indent=1) + "\n")


def read_cells(folder: Path) -> dict[str, Any]:
    """The content of CELLS in a directory of runs. Raises UserError."""
    try:
        return json.loads((folder / CELLS).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{folder / CELLS}: cannot be read ({error}); expected what `rlmem reproduce` wrote") from error
