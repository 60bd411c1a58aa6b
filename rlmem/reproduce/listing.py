"""`rlmem list experiment`: what can be reproduced, and what it costs."""

from __future__ import annotations

from typing import Any

from rlmem.reproduce.catalog import find, names
from rlmem.reproduce.cells import cells
from rlmem.reproduce.cost import cost_line, steps_and_seconds
from rlmem.reproduce.spec import BUDGETS
from rlmem.system.strictjson import dumps


def as_text() -> str:
    """Of every item its title, and what it costs at each budget."""
    lines = []
    for name in names():
        experiment = find(name)[1]
        shared = f" (the runs of {experiment.runs})" if experiment.runs else ""
        lines.append(f"{name}: {experiment.title}{shared}")
        for budget in BUDGETS:
            cost = cost_line(name, experiment.at(budget), budget, cells(experiment, budget))
            lines.append(f"    {budget:<7} {cost.partition(': ')[2]}")
    return "\n".join([*lines, "", "rlmem reproduce ITEM --budget BUDGET runs one; --dry-run shows its cells"])


def as_json() -> str:
    return dumps([_described(name) for name in names()], indent=2)


def _described(name: str) -> dict[str, Any]:
    experiment = find(name)[1]
    budgets: dict[str, dict[str, Any]] = {}
    for budget in BUDGETS:
        own, planned = experiment.at(budget), cells(experiment, budget)
        budgets[budget] = {"cells": len(planned), "runs": sum(len(cell.seeds) for cell in planned)}
        if own.run in ("train", "population"):
            steps, seconds = steps_and_seconds(own, budget, planned)
            budgets[budget] |= {"steps": steps, "core_seconds": seconds or None}
    about = {"name": name, "title": experiment.title, "claim": " ".join(experiment.claim.split())}
    return about | {"source": experiment.source, "runs_of": experiment.runs, "budgets": budgets}
