"""What stands under one heading of a report: groups of runs that belong to no experiment, and facts about any runs.

Rows and columns of a group are named by what varies among its runs.
"""

import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from math import isfinite
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rlmem.core.errors import UserError, reading
from rlmem.evidence import metrics
from rlmem.evidence.cost import duration
from rlmem.evidence.page.settings import COLUMN, RunSettings, between_rows, labels, read_run, settings_of
from rlmem.evidence.records import Curve, Place, Record
from rlmem.evidence.statistics import ANY, Range, contrast
from rlmem.evidence.verdict import Outcome
from rlmem.jobs.manifest import Manifest
from rlmem.jobs.status import RETURNS
from rlmem.record import rundir
from rlmem.record.facts import RunRecord, finished
from rlmem.record.tables import Cell, Table, Value

DIFFERS = "differs between rows"
"""The name of that fact."""
INTERVALS = (
    "Intervals of means, in tables and as bands of curves, are t intervals over seeds; comparisons use Welch's. "
    "Their level is 95 % if no other is given, and they end at the least and the greatest possible value. "
    "Rankings have percentile bootstrap intervals, which are too narrow for few seeds. An interval is about other "
    "seeds on the same tasks, not about other tasks. One seed has no interval."
)
KEYS = {metrics.GREEDY: "greedy evaluation return", metrics.TRAINING: "training return"}
"""Key of a curve -> its description."""
NAMED = 4
"""The greatest number of cells or runs that a sentence names."""


@dataclass(frozen=True)
class Section:
    """What a report shows under one heading: runs side by side, with their learning curves.

    name, label: the heading, and the name in messages and above panels
    key: the key of metrics.jsonl that the curves show; "" if there is none
    axes: the names of the rows and of the columns, in order
    asked: the number of runs that belong here, whether they have begun or not
    command: the command that makes these runs, if it is a single one
    left_out: sentences about runs that lack a file, and about what cannot be read
    differs: the keys in which rows differ, but for those of the memory
    ranges: column -> the values that its curves can have at all
    """

    name: str
    label: str
    key: str
    records: Sequence[Record]
    curves: Sequence[Curve]
    axes: tuple[list[str], list[str]]
    asked: int
    command: str | None = None
    left_out: Sequence[str] = ()
    differs: str = ""
    ranges: Mapping[str, Range] = field(default_factory=dict)

    @property
    def done(self) -> str:
        """`12 of 36`: the runs that have ended, out of those that belong here."""
        return f"{sum(record.state == 'done' for record in self.records)} of {self.asked}"


@dataclass(frozen=True)
class Group(Section):
    """Runs of no experiment."""

    @property
    def metric(self) -> str:
        """The metric of the table, beside curves of `key`."""
        return "final_eval" if self.key == metrics.GREEDY else f"last {self.key or None}"

    @property
    def not_drawn(self) -> list[str]:
        """Sentences that name the runs without a curve, and the runs that are drawn but in no mean."""
        return [*self.left_out, *unseen(self.records, self.curves, self.key or "any return")]

    @property
    def not_counted(self) -> list[str]:
        """Sentences that name the runs that the table leaves out."""
        places: dict[str, list[Place]] = defaultdict(list)
        for run in self.records:
            if self.metric not in run.metrics:
                state = "ended without a finite value" if run.state == "done" else run.state
                places[f"not in the table, {state}"].append(run.place)
        return sentences(places)

    def facts(self) -> dict[str, str]:
        return facts_of(self.records) | {DIFFERS: self.differs}

    def tables(self) -> list[Table]:
        """The means over seeds with their intervals, a line per row and column with finished runs."""
        known = {name for record in self.records for name in record.metrics}
        names = [name for name in dict.fromkeys([self.metric, *metrics.BESIDE]) if name in known]
        several = any(record.column for record in self.records)
        lines: list[list[Cell]] = []
        for row, column in dict.fromkeys((record.row, record.column) for record in self.records):
            runs = [r.metrics for r in self.records if (r.row, r.column) == (row, column) and self.metric in r.metrics]
            possible = self.ranges.get(column, ANY)
            means = [mean_of([run[name] for run in runs if name in run], possible) for name in names]
            lines.append([row, *([column] if several else []), *means[:1], len(runs), *means[1:]])
        head = [f"{metrics.in_words(name)} [95 % CI]" if name == self.metric else name for name in names]
        columns = ["row", *(["column"] if several else []), *head[:1], "runs", *head[1:]]
        return [Table(f"{self.name}: runs that have ended", columns, lines)]


def mean_of(runs: Sequence[float], possible: Range) -> Value:
    """The mean with its 95 % t interval."""
    mean = contrast([(1, runs)])
    low, high = mean.bounds(possible=possible)
    return Value(mean.value if runs else None, low=low, high=high, n=len(runs))


class ListedRun(NamedTuple):
    """A run before its directory is read, which may not exist yet: its state and the overrides it was started with."""

    run_dir: Path
    state: str
    overrides: Sequence[str]
    config_hash: str = ""


def of_sweep(folder: Path) -> Group:
    """The group of a sweep's jobs. Raises UserError."""
    manifest = Manifest(folder)
    runs = [
        ListedRun(folder / job.name, manifest.state(job), job.overrides, job.config_hash) for job in manifest.jobs()
    ]
    spec = manifest.specification()
    words = [] if spec is None else [*spec.overrides, *(w for pair in spec.pairs for w in ("--pair", " ".join(pair)))]
    return group(f"Sweep {folder.name}", runs, shlex.join(["rlmem", "sweep", *words]) if words else None)


def of_runs(run_dirs: Sequence[Path], half: Sequence[Path], problems: list[str]) -> Group:
    """The group of the run directories that can be read; for each other one, a line is added to `problems`.

    half: directories that lack config.yaml or run.json
    problems: lines about what else cannot be read
    """
    runs: list[ListedRun] = []
    for run_dir in run_dirs:
        try:
            with reading(run_dir):
                config, about = read_run(run_dir)
                ended, running = finished(config, RunRecord(run_dir).rows), rundir.is_locked(run_dir)
                state = "done" if ended else "running" if running else "interrupted"
                settings_of(run_dir, about["overrides"])
                runs.append(ListedRun(run_dir, state, about["overrides"]))
        except UserError as error:
            problems += error.problems
    lines = [f"left out, no config.yaml or no run.json: {_which(map(str, half), 'directories')}"] if half else []
    lines += [f"left out, {problem}" for problem in problems[:NAMED]]
    lines += [f"left out, {len(problems) - NAMED} more that cannot be read"] if len(problems) > NAMED else []
    if len(runs) != 1:
        return group("Runs", runs, None, lines)
    command = shlex.join(["rlmem", "train", *_asked(runs[0].overrides)])
    return group(f"Run {runs[0].run_dir.name}", runs, command, lines)


def group(name: str, runs: Sequence[ListedRun], command: str | None, left_out: Sequence[str] = ()) -> Group:
    """The group of runs, with rows and columns named by what varies among them."""
    settings = [settings_of(run.run_dir, run.overrides) for run in runs]
    places = labels(settings)
    directories = [RunRecord(run.run_dir) for run in runs]
    keys = {key for run in directories for row in run.rows for key in row}
    key = next((key for key in RETURNS if key in keys), "")
    wanted = [*metrics.BESIDE, *([f"last {key}"] if key else [])]
    records = []
    for run, directory, own, place in zip(runs, directories, settings, places, strict=True):
        values = metrics.read(directory, wanted) if run.state == "done" else {}
        finite = {name: value for name, value in values.items() if isfinite(value)}
        asked = " ".join(_asked(run.overrides))
        record = Record(*place, own.seed, run.state, finite, overrides=asked, config_hash=run.config_hash)
        records.append(record.of(directory))
    rows, columns = (list(dict.fromkeys(side)) for side in zip(*places, strict=True)) if places else ([], [])
    return Group(
        name,
        name,
        key,
        records,
        of_metric(records, key, directories) if key else [],
        (rows, columns),
        len(records),
        command,
        left_out,
        differs=between_rows(settings, places),
        ranges={column: possible(key, own) for own, (_, column) in zip(settings, places, strict=True)},
    )


def possible(key: str, run: RunSettings) -> Range:
    """The values that a key of metrics.jsonl can have in a run."""
    return metrics.range_of_key(key, run.options.get(COLUMN, ""), run.options.get("wrapper", "[]"))


def rows_differ(records: Sequence[Record]) -> str:
    """The keys in which the rows of an experiment differ, but for those of the memory, read from a run of each cell."""
    one = {(record.row, record.column): record for record in records}
    lines = [re.split(r" (?=[\w.+]+=)", record.overrides) for record in one.values()]
    settings = [settings_of(record.run_dir, own) for record, own in zip(one.values(), lines, strict=True)]
    return between_rows(settings, list(one))


def of_metric(records: Sequence[Record], key: str, directories: Sequence[RunRecord] = ()) -> list[Curve]:
    """The learning curves of a key of metrics.jsonl, for the runs that have values of it.

    directories: of the records, if they are read already
    """
    known = [run for run in records if run.run_dir is not None]
    read = directories or [RunRecord(run.run_dir) for run in known if run.run_dir is not None]
    curves = ((run, *metrics.thinned(directory.series(key))) for run, directory in zip(known, read, strict=True))
    return [Curve(*run.place, steps, values) for run, steps, values in curves if steps]


def _asked(overrides: Iterable[str]) -> list[str]:
    """The overrides without those that only say where and how a run is stored on this machine."""
    return [line for line in overrides if line.partition("=")[0] not in ("run_dir", "on_exists")]


def facts_of(records: Sequence[Record]) -> dict[str, str]:
    """Name -> what holds for all runs together; unknown facts are left out."""
    machines, versions, commits = (
        [text for text in dict.fromkeys(map(attrgetter(name), records)) if text]
        for name in ("machine", "version", "commit")
    )
    seconds = [record.seconds for record in records if np.isfinite(record.seconds)]
    steps = sum(record.steps for record in records)
    facts = {
        "runs": ", ".join(f"{number} {state}" for state, number in Counter(r.state for r in records).items()),
        "seeds": ", ".join(str(seed) for seed in sorted({record.seed for record in records})),
        "steps": f"{steps:,} environment steps" if steps else "",
        "time": f"{duration(sum(seconds))} of training, one run after another" if seconds else "",
        "machine": "; ".join(machines),
        "version": ", ".join(f"rlmem {version}" for version in versions),
        "commit": ", ".join(commits),
    }
    return {name: text for name, text in facts.items() if text}


def departures(outcome: Outcome) -> list[tuple[str, str]]:
    """(reason, cells) of every exception at this budget, every cell left out, and every note on its numbers."""
    cells: dict[str, list[str]] = defaultdict(list)
    for cell in outcome.planned.cells():
        for reason in cell.reasons:
            cells[reason].append(cell.name)
    cells |= {sentence: [] for sentence in outcome.notes()}
    for (row, column), reason in outcome.planned.skipped().items():
        cells[f"left out: {reason}"].append(f"{row}/{column}" if column else row)
    return [(reason, _which(names)) for reason, names in cells.items()]


def apart(curves: Sequence[Curve]) -> tuple[list[Curve], list[Curve]]:
    """Split curves into those for the mean, and those with a single point to which the mean would shrink."""
    long, dots = ([curve for curve in curves if (len(curve.steps) > 1) is wanted] for wanted in (True, False))
    return (dots, []) if not long and len({dot.steps[0] for dot in dots}) == 1 else (long, dots)


def disjoint(curves: Sequence[Curve]) -> bool:
    """Whether no step lies within the range of all curves."""
    return bool(curves) and max(curve.steps[0] for curve in curves) > min(curve.steps[-1] for curve in curves)


def key_in_words(key: str) -> str:
    """The description of a key of metrics.jsonl, or the key if it has none."""
    return KEYS.get(key, key)


def unseen(records: Sequence[Record], curves: Sequence[Curve], key: str) -> list[str]:
    """Sentences that name the runs without a curve, and the runs that are drawn but in no mean."""
    cell: dict[tuple[str, str], list[Curve]] = defaultdict(list)
    for curve in curves:
        cell[curve.row, curve.column].append(curve)
    missing = Counter(run.place for run in records) - Counter(curve.place for curve in curves)
    counted, dots = zip(*map(apart, cell.values()), strict=True) if cell else ((), ())
    said = {
        f"no curve, since there is no value of {key}" if key else "no curve": missing.elements(),
        "one point alone, a dot beside the mean": (dot.place for dot in chain(*dots)),
        "no mean, since no step is common to all": (curve.place for curve in chain(*filter(disjoint, counted))),
    }
    return sentences(said)


def sentences(said: Mapping[str, Iterable[tuple[str, str, int]]]) -> list[str]:
    """A sentence for every reason that concerns runs, which it names."""
    named = {
        reason: [f"({' on '.join(filter(None, (row, column)))}, seed {seed})" for row, column, seed in runs]
        for reason, runs in said.items()
    }
    return [f"{reason}: {_which(names, 'runs')}" for reason, names in named.items() if names]


def _which(things: Iterable[str], kind: str = "cells") -> str:
    names = list(things)
    return ", ".join(names) if len(names) <= NAMED else f"{len(names)} {kind}, such as {', '.join(names[:NAMED])}"
