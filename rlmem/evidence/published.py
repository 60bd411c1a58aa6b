"""The numbers of others: those that papers print, and learning curves that were measured of other libraries.

experiments/published/PAPER.csv has one row for each printed number. Values stay as printed, also where they cannot be
right: `misprints` lists those, with the values that would be. docs/statistics.md names the source of every table, and
describes its spreads.

A file of curves has a line for each greedy evaluation of each run, with the columns of FIELDS: `game` and `algorithm`
name what was run, `return` is the mean return of the evaluation's episodes, and `cpu_seconds` the time of training
until then. `benchmarks/peers` makes such files.
"""

import csv
import io
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from math import isfinite
from pathlib import Path
from typing import Any

import yaml

from rlmem.config import plainyaml
from rlmem.config.messages import mistake, nearest, sentence
from rlmem.config.paths import experiments_dir
from rlmem.core.errors import Fault, UserError
from rlmem.core.received import csv_rows
from rlmem.evidence.cost import steps_of
from rlmem.evidence.experiment import Planned
from rlmem.evidence.metrics import BESIDE, GAMES, GREEDY, NORMALISED, Reference, made_of, reduced, scale_of
from rlmem.evidence.records import Curve, Record, integer, real

PAPERS: dict[str, str] = plainyaml.read(Path(__file__).with_name("published.yaml"))
"""Name of a paper -> its citation."""
FIELDS = ("game", "algorithm", "seed", "step", "return", "cpu_seconds", "versions", "machine")


@dataclass(frozen=True)
class Printed:
    """A number as it is printed."""

    paper: str
    item: str
    """`table1`, `figure5`, `section4.3`, ..."""
    task: str
    """The paper's name of the task; `average` for its table's average, `all` for a whole benchmark."""
    model: str
    metric: str
    mean: float
    std: float | None
    """The number that the paper prints after +-, or as sigma; None where it prints none."""
    n: int | None
    """The number of runs; None where the paper does not say."""
    source: str


@dataclass(frozen=True)
class Misprint:
    """A printed number that contradicts others of its table."""

    published: Printed
    restored: float
    """The value that would agree, as far as rounding allows to tell."""
    reason: str


def load(paper: str | None = None, item: str | None = None) -> list[Printed]:
    """The numbers of one paper, or of one of its tables or figures; of all papers by default.

    Raises UserError for an unknown paper or item, Fault if the data are not installed.
    """
    _require("paper", paper, PAPERS)
    numbers = [n for name in ([paper] if paper else PAPERS) for n in _read(_folder() / f"{name}.csv")]
    _require("item", item, dict.fromkeys(number.item for number in numbers))
    return [number for number in numbers if item in (None, number.item)]


@cache
def misprints() -> tuple[Misprint, ...]:
    """The printed numbers that cannot be right, from experiments/published/misprints.yaml."""
    misprints = []
    for one in yaml.safe_load((_folder() / "misprints.yaml").read_text(encoding="utf-8")):
        about = one.pop("restored"), one.pop("reason")
        (number,) = [n for n in load(one["paper"], one["item"]) if one.items() <= vars(n).items()]
        misprints.append(Misprint(number, *about))
    return tuple(misprints)


def _folder() -> Path:
    root = experiments_dir()
    if root is None or not (folder := root / "published").is_dir():
        raise Fault("the published numbers are missing from this installation: no experiments/published beside conf")
    return folder


def _read(path: Path) -> Iterator[Printed]:
    for texts in csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))):
        mean, std, n = (texts.pop(name) for name in ("mean", "std", "n"))
        yield Printed(**texts, mean=float(mean), std=float(std) if std else None, n=int(n) if n else None)


def _require(noun: str, word: str | None, known: dict[str, Any]) -> None:
    if word is not None and word not in known:
        where = f"published {noun} {word}"
        raise UserError(sentence(where, "no such one", near=nearest(word, known), accepted=known))


def measured(planned: Planned) -> tuple[list[Record], list[Curve]]:
    """The record and the learning curve of every measured run that belongs into a column of the budget.

    A record's version holds the packages that made it. Raises UserError for a file that cannot be read or lacks what
    `columns` names, for a metric that its curves do not give, and for runs of another length than those that an
    expectation compares them with.
    """
    experiment, records, curves = planned.experiment, [], []
    if experiment.peers and not _is_greedy(planned.metric):
        problem = "of peers, greedy evaluations are known alone"
        raise mistake(f"metric: {planned.metric}", problem, example="metric: area_eval")
    cells = {cell.column: cell for cell in planned.cells()} if experiment.peers else {}
    for (row, peer), column in product(experiment.peers.items(), cells):
        runs, theirs = _curves_in(peer.file), peer.columns.get(column, column)
        if column in peer.columns and theirs not in {name for name, _ in runs}:
            where, known = f"peers.{row}.columns.{column}: {theirs}", list(dict.fromkeys(name for name, _ in runs))
            raise mistake(where, f"no such runs in {peer.file}", near=nearest(theirs, known), accepted=known)
        metrics = dict.fromkeys([planned.metric, *experiment.also, *BESIDE])
        scales = {name: _scale(planned, name, column) for name in metrics if _is_greedy(name)}
        for seed, lines in ((seed, lines) for (name, seed), lines in runs.items() if name == theirs):
            points = [(integer(line["step"]), real(line["return"])) for line in lines]
            values, last = {name: reduced(name, points, scale) for name, scale in scales.items()}, lines[-1]
            steps, seconds = integer(last["step"]), real(last["cpu_seconds"])
            record = Record(row, column, seed, "done", values, steps, seconds)
            records.append(replace(record, version=last["versions"], machine=last["machine"]))
            if planned.budget != "smoke":
                _require_as_long(planned, records[-1], steps_of(cells[column].overrides))
            finite = [(step, value) for step, value in points if isfinite(value)]
            curves.append(Curve(row, column, seed, [step for step, _ in finite], [value for _, value in finite]))
    return records, curves


def _require_as_long(planned: Planned, run: Record, steps: int) -> None:
    """Raise UserError for a run of a peer that a `>=` compares with runs of another length, by a tenth and more."""
    named = [e for e in planned.expectations if e.sign == ">=" and run.row in e.rows]
    asked = [e for e in named if not e.on or run.column in e.columns]
    if asked and abs(run.steps - steps) > 0.1 * steps:
        lengths = f"{run.row}'s run of seed {run.seed} ends after {run.steps:,} steps, ours after {steps:,}"
        where = f" ({run.column})" if run.column else ""
        raise UserError(f"{asked[0].text}{where}: {lengths}; compare runs of one length")


def described(planned: Planned, records: Sequence[Record]) -> dict[str, str]:
    """Row -> how many runs were measured, with which packages and on which machine."""
    texts = {}
    for row in planned.experiment.peers:
        runs = [record for record in records if record.row == row]
        about = (dict.fromkeys(text for run in runs if (text := getattr(run, name))) for name in ("version", "machine"))
        number = f"{len(runs)} measured run{'' if len(runs) == 1 else 's'}"
        texts[row] = "; ".join([number, *(", ".join(names) for names in about if names)])
    return texts


def _is_greedy(metric: str) -> bool:
    """Whether a metric is read from greedy evaluations, which are all that is known of a peer."""
    return not metric.startswith("analysis/") and made_of(metric.removeprefix(NORMALISED))[0] == GREEDY


def _scale(planned: Planned, metric: str, column: str) -> Reference | None:
    """What normalises a metric in a column; None for a metric that is not normalised. Raises UserError."""
    task = planned.experiment.task_of(column)
    if metric.startswith(NORMALISED) and task is None:
        where, problem = f"metric: {metric}{f' on {column}' if column else ''}", "of peers, the task must be named"
        raise mistake(where, problem, accepted=GAMES, example="task: CartPole-v1")
    return scale_of(metric, task or "", "task")


def _curves_in(file: Path) -> dict[tuple[str, int], list[dict[str, str]]]:
    """(game_algorithm, seed) -> the lines of the run in the order of their steps. Raises UserError."""
    runs: dict[tuple[str, int], list[dict[str, str]]] = defaultdict(list)
    number = 2  # of the line that is read, below the header
    try:
        for line in csv_rows(file):
            if lacking := [name for name in FIELDS if name not in line]:
                raise mistake(f"{file}: no column {lacking[0]}", "not the curves of a peer", accepted=FIELDS)
            integer(line["step"]), real(line["return"]), real(line["cpu_seconds"])
            runs[f"{line['game']}_{line['algorithm']}", integer(line["seed"])].append(line)
            number += 1
    except (OSError, ValueError) as error:
        where = f"{file}: line {number}" if isinstance(error, ValueError) else f"{file}"
        raise UserError(f"{where}: cannot be read ({error}); expected what benchmarks/peers writes") from error
    return {name: sorted(lines, key=lambda line: int(line["step"])) for name, lines in runs.items()}
