"""Evaluations of many runs: a line for every run, and the means of those that differ by their seed alone."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlmem.evidence.metrics import range_of_key
from rlmem.evidence.page.groups import mean_of, possible
from rlmem.evidence.page.settings import labels, settings_of
from rlmem.evidence.references import expert_normalised, reference_of
from rlmem.evidence.statistics import ANY, Contrast, Range
from rlmem.record import rundir
from rlmem.record.facts import played
from rlmem.record.tables import Cell, Table, Value

Scores = Mapping[str, Value]
"""What was measured -> its value, with the standard error of the mean (`std`) and the bounds where it is a mean."""


@dataclass(frozen=True)
class Evaluated:
    """A run that was evaluated.

    run: its directory
    cell: its name among the others, and the environment if that varies; runs that share it differ by their seed alone
    seed: of its training
    memory, env: the options, or the id of a Gymnasium environment
    step: environment steps of the checkpoint
    episodes: how many were played, of each kind
    scores: what came out
    overrides: what was replaced for the evaluation, as on the command line
    video: the path of the animation, if there is one
    returns: the least and the greatest return that is possible
    """

    run: str
    cell: tuple[str, str]
    seed: int
    memory: str
    env: str
    step: int
    episodes: int
    scores: Scores
    overrides: str = ""
    video: str = ""
    returns: Range = ANY

    @property
    def more(self) -> dict[str, str]:
        """What only some evaluations have: overrides and the path of an animation."""
        return {key: value for key in ("overrides", "video") if (value := getattr(self, key))}

    def flat(self) -> dict[str, Any]:
        """The line of the run in files, with raw numbers."""
        apart = ("cell", "scores", "overrides", "video", "returns")
        found: dict[str, Any] = {key: value for key, value in vars(self).items() if key not in apart} | self.more
        found["cell"] = " ".join(filter(None, self.cell))
        for name, value in self.scores.items():
            found[name.replace(" ", "_")] = value.mean
            more = {"sem": value.std, "low": value.low, "high": value.high}
            found |= {f"{name.replace(' ', '_')}_{part}": x for part, x in more.items() if x is not None}
        return found


def evaluated(rows: Sequence[Mapping[str, Any]], overrides: str = "") -> list[Evaluated]:
    """The runs of rows of eval.jsonl; for `overrides` see `Evaluated`."""
    run_dirs = [Path(row["run"]) for row in rows]
    settings = [settings_of(run_dir, rundir.read(run_dir)[1]["overrides"]) for run_dir in run_dirs]
    runs = []
    for row, own, cell in zip(rows, settings, labels(settings)[0], strict=True):
        memory, env = (own.options.get(group, "") for group in ("memory", "env"))
        returns = possible("return_mean", own)
        counts = row["step"], row["episodes"], _scores(row, env, returns)
        more = overrides, row.get("video", ""), returns
        runs.append(Evaluated(row["run"], cell, own.seed, memory, env, *counts, *more))
    return runs


def _scores(row: Mapping[str, Any], env: str, returns: Range) -> Scores:
    """What an evaluation measured, with the 95 % t interval over episodes; the greedy return also on a known scale."""
    found = {f"held-out {name}": Value(value) for name, value in row.get("held_out", {}).items()}
    for kind, result in played(row).items():
        mean, std, sem = (result[f"return_{name}"] for name in ("mean", "std", "sem"))
        spread = Contrast(mean, (std**2,), (row["episodes"],))
        low, high = spread.bounds(possible=returns) if row["episodes"] > 1 else (None, None)
        found[f"{kind} return"] = Value(mean, sem, low, high)
    try:
        scale = reference_of(env)
    except ValueError:
        return found
    if "greedy return" in found:
        found["normalised return"] = Value(float(expert_normalised(row["greedy"]["return_mean"], scale)))
    return found


def runs_table(runs: Sequence[Evaluated]) -> Table:
    """A line for every run."""
    names = _names(runs)
    shown = lambda value: None if value is None else Value(value.mean, value.std)  # noqa: E731
    more = list(dict.fromkeys(key for run in runs for key in run.more))
    lines: list[list[Cell]] = [
        [
            *(run.run, run.seed, run.memory, run.env, run.step, run.episodes),
            *(shown(run.scores.get(name)) for name in names),
            *(run.more.get(key) for key in more),
        ]
        for run in runs
    ]
    columns = ["run", "seed", "memory", "env", "step", "episodes", *names, *more]
    return Table("runs; ± is the standard error of the mean over episodes", columns, lines)


@dataclass(frozen=True)
class Means:
    """The means over the runs of a cell, which differ by their seed alone, with 95 % t intervals."""

    cell: tuple[str, str]
    runs: Sequence[Evaluated]
    scores: Scores

    @property
    def steps(self) -> str:
        """The steps of the checkpoints, or the least and the most."""
        least, most = (bound(run.step for run in self.runs) for bound in (min, max))
        return str(least) if least == most else f"{least} to {most}"

    def flat(self) -> dict[str, Any]:
        """The cell in files, with raw numbers."""
        found: dict[str, Any] = {"cell": " ".join(filter(None, self.cell)), "seeds": [run.seed for run in self.runs]}
        means = {name: {"mean": v.mean, "low": v.low, "high": v.high, "runs": v.n} for name, v in self.scores.items()}
        return found | {"steps": self.steps} | {name.replace(" ", "_"): mean for name, mean in means.items()}


def means(runs: Sequence[Evaluated]) -> list[Means]:
    """The cells, in the order of their first runs."""
    cells: dict[tuple[str, str], list[Evaluated]] = defaultdict(list)
    for run in runs:
        cells[run.cell].append(run)
    of_cells = []
    for cell, members in cells.items():
        scores = {}
        for name in _names(members):
            values = [run.scores[name].mean for run in members if name in run.scores]
            earned = name in ("greedy return", "sampled return")
            possible = members[0].returns if earned else range_of_key(name.rpartition(" ")[2], "")
            scores[name] = mean_of([value for value in values if value is not None], possible)
        of_cells.append(Means(cell, members, scores))
    return of_cells


def means_table(cells: Sequence[Means]) -> Table:
    """A line for every cell."""
    names = list(dict.fromkeys(name for cell in cells for name in cell.scores))
    several = any(cell.cell[1] for cell in cells)
    lines: list[list[Cell]] = [
        [
            cell.cell[0],
            *([cell.cell[1]] if several else []),
            cell.steps,
            len(cell.runs),
            *(cell.scores.get(n) for n in names),
        ]
        for cell in cells
    ]
    columns = ["cell", *(["env"] if several else []), "step", "runs", *names]
    return Table("means over seeds, with 95 % t intervals", columns, lines)


def _names(runs: Sequence[Evaluated]) -> list[str]:
    return list(dict.fromkeys(name for run in runs for name in run.scores))
