"""`rlmem list experiment`: what can be reproduced, and what it costs."""

from typing import Any

from rlmem.reproduce.catalog import find, names
from rlmem.reproduce.run import runner_of
from rlmem.reproduce.spec import BUDGETS
from rlmem.system.strictjson import dumps


def as_text() -> str:
    """The title of every item, and its cost at each budget."""
    lines = []
    for name in names():
        experiment = find(name)[1]
        shared = f" (the runs of {experiment.runs})" if experiment.runs else ""
        lines.append(f"{name}: {experiment.title}{shared}")
        for budget in BUDGETS:
            runner = runner_of(name, experiment, budget)
            lines.append(f"    {budget:<7} {runner.cost_line(runner.cells()).partition(': ')[2]}")
    return "\n".join([*lines, "", "rlmem reproduce ITEM --budget BUDGET runs one; --dry-run shows its cells"])


def as_json() -> str:
    return dumps([_described(name) for name in names()], indent=2)


def _described(name: str) -> dict[str, Any]:
    experiment = find(name)[1]
    budgets: dict[str, dict[str, Any]] = {}
    for budget in BUDGETS:
        runner = runner_of(name, experiment, budget)
        planned = runner.cells()
        budgets[budget] = {"cells": len(planned), "runs": sum(len(cell.seeds) for cell in planned)}
        if cost := runner.cost(planned):
            budgets[budget] |= {"steps": cost.steps, "core_seconds": cost.seconds or None}
    about = {"name": name, "title": experiment.title, "claim": " ".join(experiment.claim.split())}
    return about | {"source": experiment.source, "runs_of": experiment.runs, "budgets": budgets}
