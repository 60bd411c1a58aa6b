"""The runner of every item, and `rlmem list experiment`: what can be reproduced, and what it costs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlmem.config.messages import sentence
from rlmem.errors import UserError
from rlmem.evidence.catalog import find, names
from rlmem.evidence.claims import without_item
from rlmem.evidence.measure import Measured
from rlmem.evidence.own_rows import remembered
from rlmem.evidence.parts import Lines
from rlmem.evidence.populations import Populations
from rlmem.evidence.runner import CELLS, Runner
from rlmem.evidence.spec import BUDGETS, Experiment
from rlmem.evidence.stale import stale
from rlmem.evidence.standing import standing
from rlmem.evidence.training import Training


def runner_of(
    name: str,
    experiment: Experiment,
    budget: str,
    root: Path = Path("reproduce"),
    folder: Path | None = None,
    rows: Mapping[str, Lines] | None = None,
) -> Runner:
    """The runner of an experiment, with `root` and `folder` as in `Runner`. Raises UserError if it lacks the budget.

    rows: rows of the user's own, beside those that the folder of the runs remembers
    """
    kinds: dict[str, type[Runner]] = {"train": Training, "population": Populations}
    kind = kinds.get(experiment.at(budget).run, Measured)
    if rows and kind is not Training:
        what = "only training runs can have rows of your own"
        raise UserError(sentence(f"--rows {next(iter(rows))}", what, example="rlmem reproduce rlmem/leaderboard"))
    if kind is Training:
        runs = (folder or root / f"{name}-{budget}") if not experiment.runs else root / f"{experiment.runs}-{budget}"
        experiment = experiment.with_rows({**remembered(runs / CELLS), **(rows or {})})
    return kind(name, experiment, budget, root, folder)


def as_text(chosen: Sequence[str] = ()) -> str:
    """The title of every item, its cost at each budget, and what has come of the runs that are shipped.

    chosen: these papers and items alone
    """
    lines = []
    for name in names(chosen):
        experiment, runners = _runners(name)
        shared = f" (the runs of {experiment.runs})" if experiment.runs else ""
        lines.append(f"{name}: {experiment.title}{shared}")
        for runner in runners:
            lines.append(f"    {runner.budget:<7} {runner.cost_line(runner.cells()).partition(': ')[2]}")
            found = standing(name, experiment, runner.budget)
            if found.done or runner.budget != "smoke":
                lines.append(f"            {found}")
            if changes := stale(name, runner.budget):
                lines.append(f"            shipped results are stale: {'; '.join(changes)}")
    if not chosen:
        lines += ["tables and figures without an item:"]
        lines += [f"    {paper}, {place}: {why}" for paper, place, why in without_item()]
    return "\n".join([*lines, "", "rlmem reproduce ITEM --budget BUDGET runs one; --dry-run shows its cells"])


def as_data(chosen: Sequence[str] = ()) -> list[dict[str, Any]]:
    """The items with their claims, sources, costs, and what has come of the runs that are shipped.

    chosen: these papers and items alone
    """
    items = []
    for name in names(chosen):
        experiment, runners = _runners(name)
        budgets: dict[str, dict[str, Any]] = {}
        for runner in runners:
            planned = runner.cells()
            budgets[runner.budget] = {"cells": len(planned), "runs": sum(len(cell.seeds) for cell in planned)}
            if cost := runner.cost(planned):
                budgets[runner.budget] |= {"steps": cost.steps, "core_seconds": cost.seconds or None}
            found = standing(name, experiment, runner.budget)
            came = {"verdict": found.word, "runs_done": found.done, "commits": found.commits}
            budgets[runner.budget] |= {**came, "stale": stale(name, runner.budget)}
        about = {"name": name, "title": experiment.title, "claim": " ".join(experiment.claim.split())}
        items.append({**about, "source": experiment.source, "runs_of": experiment.runs, "budgets": budgets})
    return items


def _runners(name: str) -> tuple[Experiment, list[Runner]]:
    experiment = find(name)[1]
    return experiment, [runner_of(name, experiment, budget) for budget in BUDGETS]
