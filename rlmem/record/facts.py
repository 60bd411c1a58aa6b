"""What a run directory says of its run: version, machine, steps, and metrics."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from rlmem.core.received import VALUES, json_rows, number
from rlmem.record import rundir

OBJECTIVES = ("eval/greedy/return_mean", "eval/score")
"""The result of an evaluation in its row of metrics.jsonl: of agents that act, and of supervised ones."""
Row = dict[str, Any]
"""A line of metrics.jsonl: `step` is an integer, every other value a number or None."""


def played(row: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The kinds of episodes in a row of eval.jsonl with their results: greedy and sampled, drop_0.5, or none."""
    return {kind: value for kind, value in row.items() if isinstance(value, dict) and "return_mean" in value}


@dataclass(frozen=True)
class RunRecord:
    """A run directory, read lazily and once. What is missing or damaged is empty."""

    run_dir: Path

    @cached_property
    def rows(self) -> Sequence[Row]:
        """The rows of metrics.jsonl, with None for what is not a number; empty if the file is missing or damaged."""
        try:
            rows = [
                {key: value if key == "step" else number(value) for key, value in row.items()}
                for row in json_rows(self.run_dir / "metrics.jsonl", values=VALUES)
            ]
        except (OSError, ValueError):
            return []
        steps = [row.get("step", 0) for row in rows]
        if not all(isinstance(step, int) and 0 <= step < 2**63 for step in steps):
            return []
        return rows

    @cached_property
    def about(self) -> dict[str, Any]:
        """run.json; empty if there is no run that can be read."""
        try:
            return rundir.read(self.run_dir)[1]
        except rundir.NoRun:
            return {}

    @property
    def version(self) -> str:
        """The version of rlmem that began the run, or ""."""
        return self.about.get("rlmem") or ""

    @property
    def commit(self) -> str:
        """`short_commit` of the source that began the run."""
        return short_commit(self.about.get("git"))

    @property
    def machine(self) -> str:
        """The class of the machine that began the run, or ""."""
        return self.about.get("machine") or ""

    @property
    def last_step(self) -> int:
        """The largest number of environment steps in any row; 0 without rows."""
        return max((row["step"] for row in self.rows if "step" in row), default=0)

    @property
    def elapsed(self) -> float:
        """Seconds of training, NaN if unknown."""
        return next((row["time/elapsed"] for row in reversed(self.rows) if row.get("time/elapsed")), math.nan)

    def series(self, key: str) -> list[tuple[int, float | None]]:
        """(step, value) of every row that has both a step and the key."""
        return [(row["step"], row[key]) for row in self.rows if key in row and "step" in row]


def finished(config: Mapping[str, Any], rows: Iterable[Mapping[str, Any]]) -> bool:
    """Whether the rows of metrics.jsonl end as the configuration says: at `total_steps` or at `evaluation.stop_at`."""
    stop_at, last = (config.get("evaluation") or {}).get("stop_at"), -math.inf
    for row in rows:
        if row.get("step", 0) >= config.get("total_steps", math.inf):
            return True
        objective = next((row[key] for key in OBJECTIVES if key in row), last)
        last = -math.inf if objective is None else objective  # no number: the run goes on
    return stop_at is not None and last >= stop_at


def short_commit(commit: str | None) -> str:
    """Twelve digits of a commit, with `+changes` if files differed from it; "" for None."""
    return "" if commit is None else commit[:12] + ("+changes" if commit.endswith("+changes") else "")
