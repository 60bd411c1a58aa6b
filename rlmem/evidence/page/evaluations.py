"""Evaluations of many runs: a line for every run, and the means of those that differ by their seed alone."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rlmem.evidence.metrics import expert_normalised, range_of_key, reference_of
from rlmem.evidence.page.groups import mean_of, possible
from rlmem.evidence.page.settings import labels, settings_of
from rlmem.evidence.statistics import Contrast, Range
from rlmem.record import rundir
from rlmem.record.facts import played
from rlmem.record.tables import Cell, Table, Value

Scores = Mapping[str, Value]
"""What was measured -> its value, with the standard error of the mean (`std`) and the bounds where it is a mean."""


class Evaluated(NamedTuple):
    """A run that was evaluated.

    about: its directory, its seed, its memory and environment (options, or the id of a Gymnasium environment), the
        environment steps of its checkpoint, and how many episodes of each kind were played
    more: overrides of the evaluation and the path of an animation, if there are any
    cell: its name among the others, and the environment if that varies; runs that share it differ by their seed only
    scores: what came out
    returns: the least and the greatest return that is possible
    """

    about: Mapping[str, Any]
    more: Mapping[str, str]
    cell: tuple[str, str]
    scores: Scores
    returns: Range

    def flat(self) -> dict[str, Any]:
        """The line of the run in files, with raw numbers."""
        line: dict[str, Any] = {**self.about, **self.more, "cell": _joined(self.cell)}
        for name, value in self.scores.items():
            key, spread = name.replace(" ", "_"), {"sem": value.std, "low": value.low, "high": value.high}
            line[key] = value.mean
            line |= {f"{key}_{part}": number for part, number in spread.items() if number is not None}
        return line


def evaluated(rows: Sequence[Mapping[str, Any]], overrides: str = "") -> list[Evaluated]:
    """The runs of rows of eval.jsonl.

    overrides: what was replaced for the evaluation, as on the command line
    """
    run_dirs = [Path(row["run"]) for row in rows]
    settings = [settings_of(run_dir, rundir.read(run_dir)[1]["overrides"]) for run_dir in run_dirs]
    runs = []
    for row, own, cell in zip(rows, settings, labels(settings), strict=True):
        about = {"run": row["run"], "seed": own.seed, **{name: own.options.get(name, "") for name in ("memory", "env")}}
        about |= {"step": row["step"], "episodes": row["episodes"]}
        more = {"overrides": overrides, "video": row.get("video", "")}
        returns = possible("return_mean", own)
        scores = _scores(row, about["env"], returns)
        runs.append(Evaluated(about, {key: text for key, text in more.items() if text}, cell, scores, returns))
    return runs


def _joined(cell: tuple[str, str]) -> str:
    return " ".join(filter(None, cell))


def _scores(row: Mapping[str, Any], env: str, returns: Range) -> Scores:
    """What an evaluation measured, with the 95 % t interval over episodes; the greedy return also on a known scale."""
    scores = {f"held-out {name}": Value(value) for name, value in row.get("held_out", {}).items()}
    for kind, result in played(row).items():
        mean, std, sem = (result[f"return_{name}"] for name in ("mean", "std", "sem"))
        spread = Contrast(mean, (std**2,), (row["episodes"],))
        low, high = spread.bounds(possible=returns) if row["episodes"] > 1 else (None, None)
        scores[f"{kind} return"] = Value(mean, sem, low, high)
    try:
        scale = reference_of(env)
    except ValueError:
        return scores
    if "greedy return" in scores:
        scores["normalised return"] = Value(float(expert_normalised(row["greedy"]["return_mean"], scale)))
    return scores


def runs_table(runs: Sequence[Evaluated]) -> Table:
    """A line for every run."""
    names, more = _names(runs), list(dict.fromkeys(key for run in runs for key in run.more))
    lines: list[list[Cell]] = []
    for run in runs:
        scores = [Value(run.scores[name].mean, run.scores[name].std) if name in run.scores else None for name in names]
        lines.append([*run.about.values(), *scores, *(run.more.get(key) for key in more)])
    title = "runs; ± is the standard error of the mean over episodes"
    return Table(title, [*(runs[0].about if runs else ()), *names, *more], lines)


class Means(NamedTuple):
    """The means over the runs of a cell, which differ by their seed only, with 95 % t intervals.

    steps: those of the checkpoints, or the least and the most
    """

    cell: tuple[str, str]
    seeds: Sequence[int]
    steps: str
    scores: Scores

    def flat(self) -> dict[str, Any]:
        """The cell in files, with raw numbers."""
        means = {
            name.replace(" ", "_"): {"mean": value.mean, "low": value.low, "high": value.high, "runs": value.n}
            for name, value in self.scores.items()
        }
        return {"cell": _joined(self.cell), "seeds": self.seeds, "steps": self.steps, **means}


def means(runs: Sequence[Evaluated]) -> list[Means]:
    """The cells, in the order of their first runs."""
    of_cells = []
    for cell in dict.fromkeys(run.cell for run in runs):
        members = [run for run in runs if run.cell == cell]
        steps = dict.fromkeys(str(bound(run.about["step"] for run in members)) for bound in (min, max))
        scores = {name: _mean(name, members) for name in _names(members)}
        of_cells.append(Means(cell, [run.about["seed"] for run in members], " to ".join(steps), scores))
    return of_cells


def _mean(name: str, runs: Sequence[Evaluated]) -> Value:
    earned = name in ("greedy return", "sampled return")
    possible = runs[0].returns if earned else range_of_key(name.rpartition(" ")[2], "")
    means = (run.scores[name].mean for run in runs if name in run.scores)
    return mean_of([mean for mean in means if mean is not None], possible)


def means_table(cells: Sequence[Means]) -> Table:
    """A line for every cell."""
    names = list(dict.fromkeys(name for cell in cells for name in cell.scores))
    places = 2 if any(cell.cell[1] for cell in cells) else 1
    lines = [
        [*cell.cell[:places], cell.steps, len(cell.seeds), *(cell.scores.get(name) for name in names)] for cell in cells
    ]
    columns = [*("cell", "env")[:places], "step", "runs", *names]
    return Table("means over seeds, with 95 % t intervals", columns, lines)


def _names(runs: Sequence[Evaluated]) -> list[str]:
    return list(dict.fromkeys(name for run in runs for name in run.scores))
