"""Groups of runs that belong to no experiment; rows and columns are named by what varies among them."""

import re
import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

from rlmem.config.catalog import default_choices
from rlmem.config.messages import to_text
from rlmem.errors import UserError, reading
from rlmem.evidence import metrics
from rlmem.evidence.outcome import Curve, Record
from rlmem.evidence.page.facts import PLACE, facts_of, omissions, sentences, unseen
from rlmem.evidence.page.labels import COLUMN, Settings, between_rows, labels
from rlmem.evidence.page.twins import twins
from rlmem.evidence.ranges import of_key
from rlmem.record import rundir
from rlmem.record.facts import RunRecord, finished
from rlmem.stats import contrast
from rlmem.stats.tables import Cell, Table, Value
from rlmem.stats.twins import Compared, table
from rlmem.stats.welch import ANY, Range
from rlmem.sweep.manifest import Manifest
from rlmem.sweep.status import RETURNS
from rlmem.system.strictjson import loads

APART = ("seed", "run_dir", "on_exists", "threads", "device", "logger", "callbacks")
"""Keys that do not distinguish experiments."""
DIFFERS = "differs between rows"
"""The name of that fact."""


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
    """Runs of no experiment.

    alike: `all runs` or options -> the overrides that they share and no name shows
    compared: what was run on games and on their fully observed twins
    """

    alike: Mapping[str, str] = field(default_factory=dict)
    compared: Sequence[Compared] = ()

    @property
    def metric(self) -> str:
        return _metric(self.key)

    @property
    def not_drawn(self) -> list[str]:
        """Sentences that name the runs without a curve, and the runs that are drawn but in no mean."""
        return [*self.left_out, *unseen(self.records, self.curves, self.key or "any return")]

    @property
    def not_counted(self) -> list[str]:
        """Sentences that name the runs that the table leaves out."""
        said: dict[str, list[tuple[str, str, int]]] = defaultdict(list)
        for run in self.records:
            if self.metric not in run.metrics:
                state = "ended without a finite value" if run.state == "done" else run.state
                said[f"not in the table, {state}"].append(PLACE(run))
        return sentences(said)

    def facts(self) -> dict[str, str]:
        alike = {f"set in {who}": keys for who, keys in self.alike.items()}
        return facts_of(self.records) | {DIFFERS: self.differs} | alike

    def tables(self) -> list[Table]:
        """The means over seeds with their intervals, a line per row and column with finished runs; what twins tell."""
        there = {name for record in self.records for name in record.metrics}
        names = [name for name in dict.fromkeys([self.metric, *metrics.BESIDE]) if name in there]
        several = any(record.column for record in self.records)
        lines: list[list[Cell]] = []
        for row, column in dict.fromkeys((record.row, record.column) for record in self.records):
            runs = [r.metrics for r in self.records if (r.row, r.column) == (row, column) and self.metric in r.metrics]
            possible = self.ranges.get(column, ANY)
            means = [_mean([run[name] for run in runs if name in run], possible) for name in names]
            lines.append([row, *([column] if several else []), *means[:1], len(runs), *means[1:]])
        head = [f"{metrics.in_words(name)} [95 % CI]" if name == self.metric else name for name in names]
        columns = ["row", *(["column"] if several else []), *head[:1], "runs", *head[1:]]
        found = [Table(f"{self.name}: runs that have ended", columns, lines)]
        return [*found, table(self.name, self.compared)] if self.compared else found


def _metric(key: str) -> str:
    """The metric of a table beside curves of `key`."""
    return "final_eval" if key == metrics.GREEDY else f"last {key or None}"


def _mean(runs: Sequence[float], possible: Range) -> Value:
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
    states = [(job, "interrupted" if job.abandoned else job.state) for job in manifest.jobs()]
    runs = [ListedRun(folder / job.name, state, job.overrides, job.config_hash) for job, state in states]
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
                runs.append(_listed(run_dir))
        except UserError as error:
            problems += error.problems
    lines = omissions(half, problems)
    if len(runs) != 1:
        return group("Runs", runs, None, lines)
    command = shlex.join(["rlmem", "train", *_asked(runs[0].overrides)])
    return group(f"Run {runs[0].run_dir.name}", runs, command, lines)


def _listed(run_dir: Path) -> ListedRun:
    """A run of no sweep. Raises whatever reading its directory raises."""
    config, about = _read(run_dir)
    ended, running = finished(config, RunRecord(run_dir).rows), rundir.is_locked(run_dir)
    run = ListedRun(run_dir, "done" if ended else "running" if running else "interrupted", about["overrides"])
    settings_of(run_dir, run.overrides)
    return run


def group(name: str, runs: Sequence[ListedRun], command: str | None, left_out: Sequence[str] = ()) -> Group:
    """The group of runs, with rows and columns named by what varies among them."""
    described = [settings_of(run.run_dir, run.overrides) for run in runs]
    places, alike = labels([settings for settings, _ in described])
    found = [RunRecord(run.run_dir) for run in runs]
    keys = {key for run in found for row in run.rows for key in row}
    key = next((key for key in RETURNS if key in keys), "")
    wanted = [*metrics.BESIDE, *([f"last {key}"] if key else [])]
    records = []
    for run, directory, (_, seed), place in zip(runs, found, described, places, strict=True):
        values = metrics.read(directory, wanted) if run.state == "done" else {}
        finite = {name: value for name, value in values.items() if isfinite(value)}
        asked = " ".join(_asked(run.overrides))
        made = Record(*place, seed, run.state, finite, overrides=asked, config_hash=run.config_hash)
        records.append(made.of(directory))
    curves = of_metric(records, key, found) if key else []
    axes = list(dict.fromkeys(row for row, _ in places)), list(dict.fromkeys(column for _, column in places))
    compared = twins([settings for settings, _ in described], records, _metric(key))
    differs = between_rows([settings for settings, _ in described], places)
    ranges = {column: possible(key, own) for (own, _), (_, column) in zip(described, places, strict=True)}
    shown = records, curves, axes, len(records), command, left_out, differs, ranges
    return Group(name, name, key, *shown, alike, compared)


def possible(key: str, run: Settings) -> Range:
    """The values that a key of metrics.jsonl can have in a run."""
    return of_key(key, run.options.get(COLUMN, ""), run.options.get("wrapper", "[]"))


def rows_differ(records: Sequence[Record]) -> str:
    """The keys in which the rows of an experiment differ, but for those of the memory, read from a run of each cell."""
    one = {(record.row, record.column): record for record in records}
    lines = [re.split(r" (?=[\w.+]+=)", record.overrides) for record in one.values()]
    settings = [settings_of(record.run_dir, own)[0] for record, own in zip(one.values(), lines, strict=True)]
    return between_rows(settings, list(one))


def of_metric(records: Sequence[Record], key: str, directories: Sequence[RunRecord] = ()) -> list[Curve]:
    """The learning curves of a key of metrics.jsonl, for the runs that have values of it.

    directories: of the records, if they are read already
    """
    there = directories or [RunRecord(run.run_dir) for run in records if run.run_dir is not None]
    known = [run for run in records if run.run_dir is not None]
    found = ((run, *metrics.curve(directory, key)) for run, directory in zip(known, there, strict=True))
    return [Curve(run.row, run.column, run.seed, steps, values) for run, steps, values in found if steps]


def settings_of(run_dir: Path | None, overrides: Sequence[str]) -> tuple[Settings, int]:
    """The settings that distinguish a run, and its seed; those of its overrides alone where it has no directory yet."""
    given = {key: _as_kept(value) for key, _, value in (line.lstrip("+").partition("=") for line in overrides)}
    defaults = default_choices()
    try:
        config, about = _read(run_dir)
        values, choices, whole = dict(_flat(config)), about["choices"], True
    except rundir.NoRun:  # a job that has not begun, or numbers alone
        values, whole = dict(given), False
        choices = {group: given.get(group, option) for group, option in defaults.items()}
    seed = values.get("seed", "0")
    options = {g: to_text(choices[g]) for g in [*defaults, *choices] if g in choices and g not in APART}
    if COLUMN in options:
        options[COLUMN] = values.pop("env.id", options[COLUMN])  # the id says more than `gym`
    kept = {key: value for key, value in values.items() if key.partition(".")[0] not in APART and key not in choices}
    asked = [key for key in given if key not in choices]
    return Settings(options, kept, asked, whole), int(seed) if re.fullmatch("[0-9]{1,18}", seed) else 0


def _read(run_dir: Path | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """The content of config.yaml and run.json. Raises NoRun if they are missing or malformed."""
    if run_dir is None:
        raise rundir.NoRun("the run lies elsewhere")
    config, about = rundir.read(run_dir)
    texts = all(isinstance(about.get(name), str | None) for name in ("rlmem", "git"))
    if not (texts and isinstance(config.get("total_steps", 0), int)):
        raise rundir.NoRun(f"{run_dir}: config.yaml or run.json is damaged (not what was written); restore it")
    return config, about


def _as_kept(value: str) -> str:
    """A value of the command line in the form of config.yaml: `1e-3` is 0.001."""
    try:
        return to_text(loads(value))
    except ValueError:
        return value


def _flat(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", to_text(value)


def _asked(overrides: Iterable[str]) -> list[str]:
    """The overrides without those that only say where and how a run is stored on this machine."""
    return [line for line in overrides if line.partition("=")[0] not in ("run_dir", "on_exists")]
