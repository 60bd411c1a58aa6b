"""Learning curves that were measured of other libraries, as rows beside ours.

A file has a line for each greedy evaluation of each run, with the columns of FIELDS: `game` and `algorithm` name what
was run, `return` is the mean return of the evaluation's episodes, and `cpu_seconds` the time of training until then.
`benchmarks/peers` makes such files.
"""

from collections import defaultdict
from itertools import product
from math import isfinite
from pathlib import Path

from rlmem.config.messages import nearest, sentence
from rlmem.errors import UserError
from rlmem.evidence.cells import cells
from rlmem.evidence.cost import steps_of
from rlmem.evidence.metrics import BESIDE, GREEDY, NORMALISED, made_of, reduced
from rlmem.evidence.outcome import Curve, Outcome, Record, integer, real
from rlmem.evidence.spec import Experiment
from rlmem.stats import GAMES, Reference, reference_of
from rlmem.system.received import csv_rows

FIELDS = ("game", "algorithm", "seed", "step", "return", "cpu_seconds", "versions", "machine")


def measured(experiment: Experiment, budget: str) -> tuple[list[Record], list[Curve]]:
    """The record and the learning curve of every measured run that belongs into a column of the budget.

    A record's version holds the packages that made it. Raises UserError for a file that cannot be read or lacks what
    `columns` names, for a metric that its curves do not give, and for runs of another length than those that an
    expectation compares them with.
    """
    experiment, records, curves = experiment.at(budget), [], []
    metrics = dict.fromkeys([experiment.metric, *experiment.also, *BESIDE])
    if experiment.peers and not _is_greedy(experiment.metric):
        what = "of peers, greedy evaluations are known alone"
        raise UserError(sentence(f"metric: {experiment.metric}", what, example="metric: area_eval"))
    planned = {cell.column: cell for cell in cells(experiment, budget)} if experiment.peers else {}
    for (row, peer), column in product(experiment.peers.items(), planned):
        runs, theirs = _read(peer.file), peer.columns.get(column, column)
        if column in peer.columns and theirs not in {name for name, _ in runs}:
            where, known = f"peers.{row}.columns.{column}: {theirs}", list(dict.fromkeys(name for name, _ in runs))
            near = nearest(theirs, known)
            raise UserError(sentence(where, f"no such runs in {peer.file}", near=near, accepted=known))
        scales = {name: _scale(experiment, name, column) for name in metrics if _is_greedy(name)}
        for seed, run in ((seed, run) for (name, seed), run in runs.items() if name == theirs):
            points = [(integer(line["step"]), real(line["return"])) for line in run]
            found = {name: reduced(name, points, scale) for name, scale in scales.items()}
            records.append(_record((row, column, seed), found, run[-1]))
            if budget != "smoke":
                _require_as_long(experiment, records[-1], steps_of(planned[column].overrides))
            finite = [(step, value) for step, value in points if isfinite(value)]
            curves.append(Curve(row, column, seed, [step for step, _ in finite], [value for _, value in finite]))
    return records, curves


def _require_as_long(experiment: Experiment, run: Record, steps: int) -> None:
    """Raise UserError for a run of a peer that a `>=` compares with runs of another length, by a tenth and more."""
    named = [e for e in experiment.expectations if e.sign == ">=" and run.row in e.rows]
    asked = [e for e in named if not e.on or run.column in e.columns]
    if asked and abs(run.steps - steps) > 0.1 * steps:
        what = f"{run.row}'s run of seed {run.seed} ends after {run.steps:,} steps, ours after {steps:,}"
        where = f" ({run.column})" if run.column else ""
        raise UserError(f"{asked[0].text}{where}: {what}; compare runs of one length")


def described(outcome: Outcome) -> dict[str, str]:
    """Row -> how many runs were measured, with which packages and on which machine."""
    found = {}
    for row in outcome.experiment.peers:
        runs = [record for record in outcome.records if record.row == row]
        about = (dict.fromkeys(text for run in runs if (text := getattr(run, name))) for name in ("version", "machine"))
        number = f"{len(runs)} measured run{'' if len(runs) == 1 else 's'}"
        found[row] = "; ".join([number, *(", ".join(texts) for texts in about if texts)])
    return found


def _is_greedy(metric: str) -> bool:
    """Whether a metric is read from greedy evaluations, which are all that is known of a peer."""
    return not metric.startswith("analysis/") and made_of(metric.removeprefix(NORMALISED))[0] == GREEDY


def _scale(experiment: Experiment, metric: str, column: str) -> Reference | None:
    """What normalises a metric in a column; None for a metric that is not normalised. Raises UserError."""
    if not metric.startswith(NORMALISED):
        return None
    if (task := experiment.task_of(column)) is None:
        where = f"metric: {metric}{f' on {column}' if column else ''}"
        raise UserError(
            sentence(where, "of peers, the task must be named", accepted=GAMES, example="task: CartPole-v1")
        )
    try:
        return reference_of(task)
    except ValueError as error:
        raise UserError(f"task: {error}") from error


def _record(place: tuple[str, str, int], metrics: dict[str, float], last: dict[str, str]) -> Record:
    """The record of a run; `last` is the line of its last evaluation."""
    steps, seconds = integer(last["step"]), real(last["cpu_seconds"])
    return Record(*place, "done", metrics, steps, seconds, version=last["versions"], machine=last["machine"])


def _read(file: Path) -> dict[tuple[str, int], list[dict[str, str]]]:
    """(game_algorithm, seed) -> the lines of the run in the order of their steps. Raises UserError."""
    runs: dict[tuple[str, int], list[dict[str, str]]] = defaultdict(list)
    number = 2  # of the line that is read, below the header
    try:
        for line in csv_rows(file):
            if lacking := [name for name in FIELDS if name not in line]:
                what = "not the curves of a peer"
                raise UserError(sentence(f"{file}: no column {lacking[0]}", what, accepted=FIELDS))
            integer(line["step"]), real(line["return"]), real(line["cpu_seconds"])
            runs[f"{line['game']}_{line['algorithm']}", integer(line["seed"])].append(line)
            number += 1
    except (OSError, ValueError) as error:
        where = f"{file}: line {number}" if isinstance(error, ValueError) else f"{file}"
        raise UserError(f"{where}: cannot be read ({error}); expected what benchmarks/peers writes") from error
    return {name: sorted(lines, key=lambda line: int(line["step"])) for name, lines in runs.items()}
