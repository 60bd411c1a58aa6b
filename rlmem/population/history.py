"""The rounds of a population so far: DIR/population.jsonl, a row for every agent in every round."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict, cast

from rlmem.errors import Fault, UserError
from rlmem.record import rundir
from rlmem.record.recorder import read_jsonl
from rlmem.system.strictjson import dumps


class RoundRow(TypedDict):
    """One agent in one round.

    round: number of the round, from 1
    agent: number of the agent
    episodes: episodes of the agent so far
    step: environment steps of the agent so far
    mean: mean return of its newest episodes
    other: the agent that it was compared with
    other_episodes: episodes of that agent so far
    other_mean: mean return of that agent's newest episodes
    p: p-value of the difference of the means
    copied: whether the agent copied the other's weights
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
        if not all(row.keys() >= {"round", "agent", "step", "other", "copied"} for row in rows):
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


def _lines(rows: Sequence[Mapping[str, Any]]) -> str:
    return "".join(dumps(row) + "\n" for row in rows)
