"""How a population stands: the table of `rlmem population status`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from rlmem.population.spec import History, name, read, rows_of
from rlmem.record import rundir
from rlmem.sweep.status import RETURNS, newest_rows


def show(folder: Path) -> None:
    """Print the table of the population in `folder`. Raises UserError if there is none."""
    population = read(folder)
    rounds = History(folder, population.spec.agents).rounds
    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("agent", "steps", "episodes", "return", "copied last", "of its own"):
        drawn.add_column(column, justify="left" if column in ("agent", "copied last", "of its own") else "right")
    for agent, own in enumerate(population.own):
        drawn.add_row(*_row(folder / name(agent), rounds, agent), " ".join(own[1:]))
    copies = sum(row["copied"] for rows in rounds for row in rows)
    running = "running" if rundir.is_locked(folder) else "not running"
    Console().print(drawn, f"{len(rounds)} rounds, {copies} copies; {running}", highlight=False)


def _row(run_dir: Path, rounds: list[list[dict[str, Any]]], agent: int) -> list[str]:
    newest = list(newest_rows(run_dir))
    steps = next((row["step"] for row in newest if "step" in row), 0)
    score = next((row[key] for key in RETURNS for row in newest if key in row), None)
    episodes = len(rows_of(run_dir / "episodes.jsonl"))
    copied = [row for rows in rounds for row in rows if row["agent"] == agent and row["copied"]]
    told = f"{name(copied[-1]['other'])} in round {copied[-1]['round']}" if copied else ""
    total = rundir.read(run_dir)[0]["total_steps"]
    return [run_dir.name, f"{steps:,}/{total:,}", f"{episodes:,}", "" if score is None else f"{score:.3f}", told]
