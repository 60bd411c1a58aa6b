"""Tables and figures of papers."""

import shlex
import subprocess
import sys
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from rlmem.api.make import absolute, tabular
from rlmem.evidence import catalog
from rlmem.evidence.items import runner_of
from rlmem.evidence.tables import tables
from rlmem.evidence.verdict import Outcome
from rlmem.jobs.pool import Options


@dataclass(frozen=True)
class Reproduction:
    """What has been run of an item.

    verdict: a word of `rlmem.evidence.verdict.Word`, such as `supported` or `undecided`
    why: the reason, in a sentence
    folder: where its table, its numbers and its runs lie
    outcome: all numbers, also those of peers
    """

    verdict: str
    why: str
    folder: Path
    outcome: Outcome

    def runs(self) -> Any:
        """A row for every run: a pandas.DataFrame if pandas is installed, else a list of dicts."""
        facts = ("row", "column", "seed", "state", "steps", "seconds")
        return tabular({name: getattr(run, name) for name in facts} | dict(run.metrics) for run in self.outcome.records)

    def table(self) -> str:
        """Ours beside the published numbers, in Markdown."""
        return "\n\n".join(table.markdown() for table in tables(self.outcome))


def reproduce(
    item: str,
    budget: str = "laptop",
    cells: Sequence[str] = (),
    seeds: Sequence[int] = (),
    jobs: int | None = None,
    folder: str | Path = "reproduce",
    verbose: bool = False,
) -> Reproduction:
    """Run a table or figure of a paper, as `rlmem reproduce` does; the same call again continues.

        rlmem.reproduce("memoroids/figure4", budget="smoke").table()

    item: PAPER/ITEM, see `rlmem list experiment`, or an experiment file of one's own
    budget: smoke, laptop or paper
    cells: only these rows, columns or ROW/COLUMN; [] means all
    seeds: only these of the budget's seeds; [] means all
    jobs: runs at once; None: as many as there are cores for
    folder: where reproductions lie
    verbose: show progress

    Raises UserError for mistakes, KeyboardInterrupt after Ctrl-C, which saves the runs first.
    """
    runner = runner_of(catalog.find(item).at(budget), absolute(folder))
    chosen = runner.planned.cells(cells, seeds)
    catalog.require_registered(item, runner.planned)
    with nullcontext() if verbose else redirect_stdout(StringIO()):
        outcome, _ = runner.reproduce(chosen, Options(jobs), _command)
    return Reproduction(outcome.verdict.word, outcome.verdict.why, runner.folder, outcome)


def _command(line: str) -> int:
    """Run a command of rlmem, and return its exit code."""
    return subprocess.run([sys.executable, "-m", "rlmem", *shlex.split(line)], stdout=sys.stderr).returncode
