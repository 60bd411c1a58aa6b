"""Groups of runs that belong to no experiment; rows and columns are named by what varies among them."""

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlmem.config.catalog import default_choices
from rlmem.config.messages import to_text
from rlmem.record import rundir
from rlmem.record.facts import RunRecord
from rlmem.report.facts import facts_of, uncounted, unreadable, unseen
from rlmem.report.labels import COLUMN, Settings, labels
from rlmem.reproduce import metrics
from rlmem.reproduce.expect import across
from rlmem.reproduce.outcome import Curve, Record
from rlmem.stats import percentile_bounds
from rlmem.stats.resampling import SEED
from rlmem.stats.tables import Cell, Table, Value
from rlmem.sweep.manifest import Manifest
from rlmem.sweep.status import RETURNS

APART = ("seed", "run_dir", "on_exists", "threads", "device", "logger")
"""Keys that do not distinguish experiments."""


@dataclass(frozen=True)
class Group:
    """Runs side by side: a section of a report.

    name: the heading
    key: the key of metrics.jsonl that curves and table show; "" if no run has any
    records: a record of each run
    curves: the learning curves of the runs that have one
    command: the command that makes these runs, if it is a single one
    alike: `all runs` or options -> the overrides that these runs share and that no row's name shows
    half: directories that lack config.yaml or run.json, and are not shown
    """

    name: str
    key: str
    records: Sequence[Record]
    curves: Sequence[Curve]
    command: str | None = None
    alike: Mapping[str, str] = field(default_factory=dict)
    half: Sequence[Path] = ()

    @property
    def label(self) -> str:
        return self.name

    @property
    def axes(self) -> tuple[list[str], list[str]]:
        """Names of the rows and columns in the order of the runs."""
        rows, columns = ([getattr(record, side) for record in self.records] for side in ("row", "column"))
        return list(dict.fromkeys(rows)), list(dict.fromkeys(columns))

    @property
    def metric(self) -> str:
        return "final_eval" if self.key == metrics.GREEDY else f"last {self.key or None}"

    @property
    def listed_metrics(self) -> Sequence[str]:
        return [self.metric]

    @property
    def done(self) -> str:
        """`12 of 36`: the runs that have ended, out of all."""
        return f"{sum(record.state == 'done' for record in self.records)} of {len(self.records)}"

    @property
    def not_drawn(self) -> list[str]:
        """Sentences that name the runs without a curve, and the runs that are drawn but in no mean."""
        return [*unreadable(self.half), *unseen(self.records, self.curves, self.key or "any return")]

    @property
    def not_counted(self) -> list[str]:
        return uncounted(self.records, self.metric)

    def facts(self) -> dict[str, str]:
        return facts_of(self.records) | {f"set in {who}": keys for who, keys in self.alike.items()}

    def tables(self) -> list[Table]:
        """One table of the means over seeds with their intervals: a line per row and column that has finished runs."""
        rng = np.random.default_rng(SEED)
        names = [name for name in (self.metric, *metrics.BESIDE) if any(name in r.metrics for r in self.records)]
        names = list(dict.fromkeys(names))
        places = list(dict.fromkeys((record.row, record.column) for record in self.records))
        several = any(column for _, column in places)
        lines: list[list[Cell]] = []
        for row, column in places:
            runs = [record.metrics for record in self.records if (record.row, record.column) == (row, column)]
            ended = [r for r in runs if self.metric in r]
            means: list[Cell] = [_mean(np.array([r[name] for r in ended if name in r]), rng) for name in names]
            lines.append([row, *([column] if several else []), *means[:1], len(ended), *means[1:]])
        head = [f"{metrics.in_words(name)} [95 % CI]" if name == self.metric else name for name in names]
        columns = ["row", *(["column"] if several else []), *head[:1], "runs", *head[1:]]
        return [Table(f"{self.name}: runs that have ended", columns, lines)]


def _mean(runs: NDArray[np.float64], rng: np.random.Generator) -> Value:
    found = across({("", ""): runs}, "", [""], rng)
    if found is None:
        return Value(None)
    low, high = map(float, percentile_bounds(found[1]))
    return Value(found[0], low=low, high=high, n=len(runs))


@dataclass(frozen=True)
class Run:
    """What is known of a run before its directory is read.

    run_dir: its directory, which may not exist yet
    state: done | failed | running | interrupted | waiting
    overrides: the overrides that it was started with
    config_hash: the hash of its configuration, "" if unknown
    """

    run_dir: Path
    state: str
    overrides: Sequence[str]
    config_hash: str = ""


def of_sweep(folder: Path) -> Group:
    """The group of a sweep's jobs. Raises UserError."""
    manifest = Manifest(folder)
    states = [(job, "interrupted" if job.abandoned else job.state) for job in manifest.jobs()]
    runs = [Run(folder / job.name, state, job.overrides, job.config_hash) for job, state in states]
    spec = manifest.specification()
    words = [] if spec is None else [*spec.overrides, *(w for pair in spec.pairs for w in ("--pair", " ".join(pair)))]
    return group(f"Sweep {folder.name}", runs, shlex.join(["rlmem", "sweep", *words]) if words else None)


def of_runs(run_dirs: Sequence[Path], half: Sequence[Path] = ()) -> Group:
    """The group of run directories. Raises UserError."""
    runs = []
    for run_dir in run_dirs:
        config, about = _read(run_dir)
        done = RunRecord(run_dir).last_step >= config.get("total_steps", float("inf"))
        state = "done" if done else "running" if rundir.is_locked(run_dir) else "interrupted"
        runs.append(Run(run_dir, state, about["overrides"]))
    alone = runs[0].run_dir if len(runs) == 1 else None
    command = None if alone is None else shlex.join(["rlmem", "train", *_asked(runs[0].overrides)])
    return replace(group(f"Run {alone.name}" if alone else "Runs", runs, command), half=half)


def group(name: str, runs: Sequence[Run], command: str | None) -> Group:
    """The group of runs, with rows and columns named by what varies among them."""
    described = [_settings(run) for run in runs]
    named = labels([settings for settings, _ in described])
    found = [RunRecord(run.run_dir) for run in runs]
    keys = {key for run in found for row in run.rows for key in row}
    key = next((key for key in RETURNS if key in keys), "")
    wanted = [*metrics.BESIDE, *([f"last {key}"] if key else [])]
    records = []
    for run, directory, (_, seed), place in zip(runs, found, described, named.places, strict=True):
        values = metrics.read(directory, wanted) if run.state == "done" else {}
        finite = {name: value for name, value in values.items() if np.isfinite(value)}
        asked = " ".join(_asked(run.overrides))
        made = Record(*place, seed, run.state, finite, overrides=asked, config_hash=run.config_hash)
        records.append(made.of(directory))
    return Group(name, key, records, of_metric(records, key) if key else [], command, named.alike)


def of_metric(records: Sequence[Record], key: str) -> list[Curve]:
    """The learning curves of a key of metrics.jsonl, for the runs that have values of it."""
    made = []
    for run in records:
        steps, values = ([], []) if run.run_dir is None else metrics.curve(RunRecord(run.run_dir), key)
        if steps:
            made.append(Curve(run.row, run.column, run.seed, steps, values))
    return made


def _settings(run: Run) -> tuple[Settings, int]:
    """The settings that distinguish a run, and its seed."""
    given = {key: _as_kept(value) for key, _, value in (line.lstrip("+").partition("=") for line in run.overrides)}
    defaults = default_choices()
    try:
        config, about = _read(run.run_dir)
        values, choices = dict(_flat(config)), {group: to_text(option) for group, option in about["choices"].items()}
    except rundir.NoRun:  # a job that has not begun
        values = dict(given)
        choices = {group: given.get(group, to_text(option)) for group, option in defaults.items()}
    seed = values.get("seed", "0")
    options = {group: choices[group] for group in [*defaults, *choices] if group in choices and group not in APART}
    if COLUMN in options:
        options[COLUMN] = values.pop("env.id", options[COLUMN])  # the id says more than `gym`
    kept = {key: value for key, value in values.items() if key.partition(".")[0] not in APART and key not in choices}
    asked = [key for key in given if key not in choices]
    return Settings(options, kept, asked), int(seed) if seed.isdecimal() else 0


def _read(run_dir: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The content of config.yaml and run.json. Raises NoRun if they are missing or malformed."""
    config, about = rundir.read(run_dir)
    texts = all(isinstance(about.get(name), str | None) for name in ("rlmem", "git"))
    if not (texts and isinstance(config.get("total_steps", 0), int)):
        raise rundir.NoRun(f"{run_dir}: config.yaml or run.json is damaged (not what was written); restore it")
    return config, about


def _as_kept(value: str) -> str:
    """A value of the command line in the form of config.yaml: `1e-3` is 0.001."""
    try:
        return to_text(json.loads(value))
    except ValueError:
        return value


def _flat(config: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, str]]:
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", to_text(value)


def _asked(overrides: Iterable[str]) -> list[str]:
    """The overrides without those that only say where and how a run is stored on this machine."""
    return [line for line in overrides if line.partition("=")[0] not in ("run_dir", "on_exists")]
