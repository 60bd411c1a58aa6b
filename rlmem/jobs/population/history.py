"""The rounds of a population so far: DIR/population.jsonl, and the table of `rlmem population status`."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from rlmem.core.errors import Fault, printable, reading
from rlmem.core.received import inside, json_rows
from rlmem.core.strictjson import dumps
from rlmem.jobs.population.spec import name, read
from rlmem.jobs.status import empty_table, steps_and_return
from rlmem.record import rundir
from rlmem.record.recorder import read_jsonl

RoundRow = dict[str, Any]
"""One agent at the end of a round: `round` (from 1), `agent`, its `episodes` and environment steps (`step`) so far, the
agent `other` and its `other_episodes`, the mean returns `mean` and `other_mean` that were compared, the p-value `p` of
their difference, and `copied`: whether the agent took over the other's weights."""

INTEGERS = ("round", "agent", "step", "other", "copied")
"""Keys of a row of which the values are integers."""


class History:
    """The complete rounds: those of which all rows are written."""

    def __init__(self, folder: Path, agents: int):
        self.path = folder / "population.jsonl"
        with reading(self.path):
            rows = read_jsonl(self.path) if self.path.exists() else []
            if not all(isinstance(row[key], int) for row in rows for key in INTEGERS):
                raise ValueError("not what was written")
        self.rounds = [rows[begin : begin + agents] for begin in range(0, len(rows) - agents + 1, agents)]

    @property
    def copies(self) -> int:
        return sum(row["copied"] for rows in self.rounds for row in rows)

    def cut(self) -> None:
        """Drop the rows of an incomplete round."""
        if self.path.exists():
            rundir.write_atomically(self.path, "".join(map(_lines, self.rounds)))

    def append(self, rows: Sequence[RoundRow]) -> None:
        """Write the rows of a round to disk. Raises Fault if that fails."""
        try:
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(_lines(rows))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise Fault(f"{self.path} cannot be written ({error.strerror})") from error
        self.rounds.append(list(rows))


def print_table(folder: Path) -> None:
    """Print the table of the population in `folder`. Raises UserError if there is none."""
    population = read(folder)
    history = History(folder, population.spec.agents)
    table = empty_table("agent", "steps>", "episodes>", "return>", "copied last", "of its own")
    for agent, own in enumerate(population.own):
        run_dir = inside(folder, name(agent))
        with reading(run_dir / "config.yaml"):
            (steps, score), total = steps_and_return(run_dir), int(rundir.read(run_dir)[0]["total_steps"])
        with reading(path := run_dir / "episodes.jsonl"):
            episodes = sum(1 for _ in json_rows(path)) if path.exists() else 0
        copied = [rows[agent] for rows in history.rounds if rows[agent]["copied"]]
        source = f"{name(copied[-1]['other'])} in round {copied[-1]['round']}" if copied else ""
        score_text = "" if score is None else f"{score:.3f}"
        line = (run_dir.name, f"{steps:,}/{total:,}", f"{episodes:,}", score_text, source, " ".join(own[1:]))
        table.add_row(*(Text(printable(text)) for text in line))
    running = "running" if rundir.is_locked(folder) else "not running"
    Console().print(table, f"{len(history.rounds)} rounds, {history.copies} copies; {running}", highlight=False)


def _lines(rows: Sequence[Mapping[str, Any]]) -> str:
    return "".join(dumps(row) + "\n" for row in rows)
