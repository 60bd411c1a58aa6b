"""The state of a population: the table of `rlmem population status`."""

from pathlib import Path

from rich.console import Console

from rlmem.population.history import History, RoundRow, rows_of
from rlmem.population.spec import name, read
from rlmem.record import rundir
from rlmem.sweep.status import empty_table, steps_and_return


def print_table(folder: Path) -> None:
    """Print the table of the population in `folder`. Raises UserError if there is none."""
    population = read(folder)
    history = History(folder, population.spec.agents)
    drawn = empty_table("agent", "steps>", "episodes>", "return>", "copied last", "of its own")
    for agent, own in enumerate(population.own):
        drawn.add_row(*_row(folder / name(agent), history.rounds, agent), " ".join(own[1:]))
    running = "running" if rundir.is_locked(folder) else "not running"
    Console().print(drawn, f"{len(history.rounds)} rounds, {history.copies} copies; {running}", highlight=False)


def _row(run_dir: Path, rounds: list[list[RoundRow]], agent: int) -> list[str]:
    steps, score = steps_and_return(run_dir)
    episodes = len(rows_of(run_dir / "episodes.jsonl"))
    copied = [row for rows in rounds for row in rows if row["agent"] == agent and row["copied"]]
    source = f"{name(copied[-1]['other'])} in round {copied[-1]['round']}" if copied else ""
    total = rundir.read(run_dir)[0]["total_steps"]
    return [run_dir.name, f"{steps:,}/{total:,}", f"{episodes:,}", "" if score is None else f"{score:.3f}", source]
