"""What can be reproduced: every item with its runner, its cost and how it stands, and what tests the papers' claims."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from packaging.version import InvalidVersion, Version

from rlmem.config.catalog import default_choices
from rlmem.config.messages import mistake
from rlmem.config.paths import experiments_dir
from rlmem.evidence.catalog import find, names
from rlmem.evidence.expect import NOT_TESTABLE
from rlmem.evidence.experiment import BUDGETS, Experiment, Planned
from rlmem.evidence.folder import CELLS, remembered
from rlmem.evidence.records import Record, shipped_records
from rlmem.evidence.runner import Measured, Runner
from rlmem.evidence.sections import Lines
from rlmem.evidence.training import Populations, TrainingRuns
from rlmem.evidence.verdict import Outcome, Word
from rlmem.record.tables import Cell, Table


def runner_of(
    planned: Planned,
    root: Path = Path("reproduce"),
    folder: Path | None = None,
    rows: Mapping[str, Lines] | None = None,
) -> Runner:
    """The runner of an experiment at a budget, with `root` and `folder` as in `Runner`. Raises UserError.

    rows: rows of the user's own, beside those that the folder of the runs remembers
    """
    kinds: dict[str, type[Runner]] = {"train": TrainingRuns, "population": Populations}
    kind = kinds.get(planned.run, Measured)
    if rows and kind is not TrainingRuns:
        problem = "only training runs can have rows of your own"
        raise mistake(f"--rows {next(iter(rows))}", problem, example="rlmem reproduce rlmem/leaderboard")
    runner = kind(planned, root, folder)
    if kind is TrainingRuns:
        runner.planned = runner.planned.with_rows({**remembered(runner.runs / CELLS)[0], **(rows or {})})
    return runner


@dataclass(frozen=True)
class Standing:
    """The shipped results of an item at a budget.

    word: the verdict; `not run` where there are no results, or too few
    done, planned: how many runs have ended, and how many belong to the item
    commits: the commits of rlmem that made them; `+changes` marks code that is in none
    changes: what has changed since, so that rlmem would no longer reproduce the numbers to the digit
    """

    word: Word
    done: int
    planned: int
    commits: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()

    def __str__(self) -> str:
        runs = f"{self.word}, {self.done} of {self.planned} runs"
        return f"{runs}, commit {', '.join(self.commits)}" if self.commits else runs


def standing(planned: Planned) -> Standing:
    """How an item stands at a budget."""
    asked = sum(len(cell.seeds) for cell in planned.cells())
    records = shipped_records(planned.name, planned.budget)
    if not records:
        return Standing("not run", 0, asked)
    outcome = Outcome(planned, records)
    commits = sorted({record.commit or "unknown" for record in outcome.ours})
    changes = [change["what"] for change in _changes() if any(_concerns(change, record) for record in records)]
    return Standing(outcome.verdict.word, len(outcome.ours), asked, tuple(commits), tuple(changes))


def _concerns(change: dict[str, Any], record: Record) -> bool:
    if not record.config_hash:  # a measurement, which trains nothing
        return False
    try:
        older = Version(record.version) < Version(change["since"])
    except InvalidVersion:  # unknown: of a file from elsewhere
        older = True
    choices = default_choices() | dict(line.partition("=")[::2] for line in record.overrides.split(" "))
    return older and all(choices.get(group) in options for group, options in change["of"].items())


@cache
def _changes() -> list[dict[str, Any]]:
    """What changed numbers since, from experiments/changes.yaml."""
    root = experiments_dir()
    file = root / "changes.yaml" if root else None
    return yaml.safe_load(file.read_text(encoding="utf-8")) if file and file.is_file() else []


def _every(chosen: Sequence[str]) -> Iterator[tuple[Experiment, list[tuple[Planned, Standing]]]]:
    """Every item, or only these papers and items, with its standing at every budget."""
    for experiment in map(find, names(chosen)):
        at_budgets = [experiment.at(budget) for budget in BUDGETS]
        yield experiment, [(planned, standing(planned)) for planned in at_budgets]


def as_table(chosen: Sequence[str] = ()) -> Table:
    """A line for every item at every budget that has results, or at `laptop` if none has.

    chosen: only these papers and items
    """
    lines = []
    for experiment, budgets in _every(chosen):
        for planned, one in budgets:
            if one.done or (planned.budget == "laptop" and not any(other.done for _, other in budgets)):
                runs = f"{one.done} of {one.planned}"
                lines.append([f"`{experiment.name}`", planned.budget, one.word, runs, ", ".join(one.commits)])
    return Table("", ["item", "budget", "verdict", "runs", "commit"], lines)


def as_text(chosen: Sequence[str] = ()) -> str:
    """The title of every item, its cost at each budget, and what has come of the runs that are shipped.

    chosen: only these papers and items
    """
    lines = []
    for experiment, budgets in _every(chosen):
        shared = f" (the runs of {experiment.runs})" if experiment.runs else ""
        lines.append(f"{experiment.name}: {experiment.title}{shared}")
        for planned, one in budgets:
            cost = runner_of(planned).cost_line(planned.cells())
            lines.append(f"    {planned.budget:<7} {cost.partition(': ')[2]}")
            lines += [f"            {one}"] if one.done or planned.budget != "smoke" else []
            lines += [f"            shipped results are stale: {'; '.join(one.changes)}"] if one.changes else []
    if not chosen:
        lines += ["tables and figures without an item:"]
        every = ((paper, *place) for paper, places in papers().items() for place in places.items())
        lines += [f"    {paper}, {place}: {why}" for paper, place, why in every if isinstance(why, str)]
    return "\n".join([*lines, "", "rlmem reproduce ITEM --budget BUDGET runs one; --dry-run shows its cells"])


def as_data(chosen: Sequence[str] = ()) -> list[dict[str, Any]]:
    """The items with their claims, sources, costs, and what has come of the runs that are shipped.

    chosen: only these papers and items
    """
    items = []
    for experiment, at_budgets in _every(chosen):
        budgets: dict[str, dict[str, Any]] = {}
        for planned, one in at_budgets:
            about = budgets[planned.budget] = {"cells": len(planned.cells()), "runs": one.planned}
            if cost := runner_of(planned).cost(planned.cells()):
                about |= {"steps": cost.steps, "core_seconds": cost.seconds or None}
            about |= {"verdict": one.word, "runs_done": one.done, "commits": one.commits, "stale": [*one.changes]}
        texts = {"title": experiment.title, "claim": " ".join(experiment.claim.split()), "source": experiment.source}
        items.append({"name": experiment.name, **texts, "runs_of": experiment.runs, "budgets": budgets})
    return items


Places = Mapping[str, list[str] | str]
"""The name of a table or figure -> the items that reproduce it, or the reason why there is none."""


def papers() -> dict[str, Places]:
    """The tables and figures of every paper, by the name of its folder, from experiments/papers/*.yaml."""
    root = experiments_dir()
    files = sorted(root.glob("papers/*.yaml")) if root else []
    return {file.stem: yaml.safe_load(file.read_text(encoding="utf-8")) for file in files}


def claims(only: Collection[str] = ()) -> Table:
    """A line for every clause of every item, and for every table and figure that has none.

    only: the papers that it is of; empty: all
    """
    lines: list[list[Cell]] = []
    listed: set[str] = set()
    for paper, places in papers().items():
        for place, items in places.items() if not only or paper in only else ():
            if isinstance(items, str):
                lines.append([paper, place, "", items, ""])
                continue
            for item in items:
                clauses = [("see above", "")] if item in listed else _clauses(find(item))
                lines += [[paper, place, f"`{item}`", *clause] for clause in clauses]
                listed.add(item)
    return Table("", ["paper", "table or figure", "item", "what it says", "tested by"], lines)


def _clauses(experiment: Experiment) -> Iterator[tuple[str, str]]:
    """(clause, its expectations or why there are none) of an item, at the budget `paper`, or else at `laptop`."""
    tested: dict[str, str] = {}
    untestable: dict[str, str] = {}
    for budget, where in (("paper", ""), ("laptop", "at the budget laptop: ")):
        planned, texts = experiment.at(budget), defaultdict[str, list[str]](list)
        for expectation in planned.expectations:
            texts[expectation.clause].append(f"`{expectation.text}`")
        tested = {clause: f"{where}{'; '.join(each)}" for clause, each in texts.items()} | tested
        untestable = {e.clause: f"{NOT_TESTABLE}, {e.reason}" for e in planned.untestable} | untestable
    yield from tested.items()
    yield from ((clause, reason) for clause, reason in untestable.items() if clause not in tested)
