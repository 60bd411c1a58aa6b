"""The rounds of a population so far: DIR/population.jsonl, and the table of `rlmem population status`."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict, cast

from rich.console import Console
from rich.text import Text

from rlmem.errors import Fault, UserError, printable, reading
from rlmem.population.spec import name, read
from rlmem.record import rundir
from rlmem.record.recorder import read_jsonl
from rlmem.sweep.status import empty_table, steps_and_return
from rlmem.system.received import inside, json_rows
from rlmem.system.strictjson import dumps


class RoundRow(TypedDict):
    """One agent at the end of a round (from 1): its episodes and environment steps so far, and the agent `other`.

    `mean` and `other_mean` are the mean returns that were compared, `p` is the p-value of their difference, and
    `copied` says whether the agent took over the other's weights.
    """

    round: int
    agent: int
    episodes: int
    step: int
    mean: float | None
    other: int
    other_episodes: int
    other_mean: float | None
    p: float | None
    copied: bool


class History:
    """The complete rounds: those of which all rows are written."""

    def __init__(self, folder: Path, agents: int):
        self.path = folder / "population.jsonl"
        rows = cast(list[RoundRow], rows_of(self.path))
        keys = ("round", "agent", "step", "other", "copied")
        if not all(isinstance(row.get(key), int) for row in rows for key in keys):
            raise UserError(f"{self.path}: is damaged (rows lack their keys); restore it")
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


def rows_of(path: Path) -> list[dict[str, Any]]:
    """The rows of a file, none if it is not there. Raises UserError if it is damaged."""
    try:
        return read_jsonl(path) if path.exists() else []
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: is damaged ({error}); restore it") from error


def _number_of_rows(path: Path) -> int:
    """The number of rows of a file, 0 if it is not there. Raises UserError if it is damaged."""
    try:
        return sum(1 for _ in json_rows(path)) if path.exists() else 0
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: is damaged ({error}); restore it") from error


def print_table(folder: Path) -> None:
    """Print the table of the population in `folder`. Raises UserError if there is none."""
    population = read(folder)
    history = History(folder, population.spec.agents)
    table = empty_table("agent", "steps>", "episodes>", "return>", "copied last", "of its own")
    for agent, own in enumerate(population.own):
        run_dir = inside(folder, name(agent))
        with reading(run_dir / "config.yaml"):
            (steps, score), total = steps_and_return(run_dir), int(rundir.read(run_dir)[0]["total_steps"])
        episodes, returned = _number_of_rows(run_dir / "episodes.jsonl"), "" if score is None else f"{score:.3f}"
        copied = [rows[agent] for rows in history.rounds if rows[agent]["copied"]]
        source = f"{name(copied[-1]['other'])} in round {copied[-1]['round']}" if copied else ""
        line = (run_dir.name, f"{steps:,}/{total:,}", f"{episodes:,}", returned, source, " ".join(own[1:]))
        table.add_row(*(Text(printable(text)) for text in line))
    running = "running" if rundir.is_locked(folder) else "not running"
    Console().print(table, f"{len(history.rounds)} rounds, {history.copies} copies; {running}", highlight=False)


def _lines(rows: Sequence[Mapping[str, Any]]) -> str:
    return "".join(dumps(row) + "\n" for row in rows)
