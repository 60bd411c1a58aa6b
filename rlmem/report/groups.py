"""Runs that belong to no experiment: their rows and columns are what varies among them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from rlmem.config.catalog import default_choices
from rlmem.config.messages import show
from rlmem.record import rundir
from rlmem.report.labels import COLUMN, Settings, labels
from rlmem.reproduce import metrics
from rlmem.reproduce.outcome import Curve, Record
from rlmem.sweep.manifest import Manifest
from rlmem.sweep.status import RETURNS

APART = ("seed", "run_dir", "on_exists", "threads", "device", "logger")
"""Keys that make no other experiment of a run."""


@dataclass(frozen=True)
class Group:
    """Runs side by side.

    key: the key of metrics.jsonl that curves and table show; None if no run has any
    command: what makes these runs, if that is one command
    alike: `all runs` or options -> the keys that their runs were asked to have, and that are in no row's name
    half: directories that lack config.yaml or run.json, of which nothing is shown
    """

    name: str
    key: str | None
    records: Sequence[Record]
    curves: Sequence[Curve]
    command: str | None = None
    alike: Mapping[str, str] = field(default_factory=dict)
    half: Sequence[Path] = ()

    @property
    def axes(self) -> tuple[list[str], list[str]]:
        """Rows and columns in the order of the runs."""
        rows, columns = ([getattr(record, side) for record in self.records] for side in ("row", "column"))
        return list(dict.fromkeys(rows)), list(dict.fromkeys(columns))

    @property
    def metric(self) -> str:
        return "final_eval" if self.key == metrics.GREEDY else f"last {self.key}"


@dataclass(frozen=True)
class Run:
    """A run directory, which may not be there yet, and what was asked for."""

    run_dir: Path
    state: str
    overrides: Sequence[str]
    config_hash: str = ""


@dataclass(frozen=True)
class Described:
    """A run as it is compared with others.

    settings: what tells the run apart
    about: run.json
    """

    settings: Settings
    seed: int
    about: Mapping[str, Any]


def of_sweep(folder: Path) -> Group:
    """The jobs of a sweep. Raises UserError."""
    manifest = Manifest(folder)
    states = [(job, "interrupted" if job.abandoned else job.state) for job in manifest.jobs()]
    runs = [Run(folder / job.name, state, job.overrides, job.config_hash) for job, state in states]
    spec = manifest.specification()
    words = [] if spec is None else [*spec.overrides, *(w for pair in spec.pairs for w in ("--pair", " ".join(pair)))]
    return group(f"Sweep {folder.name}", runs, shlex.join(["rlmem", "sweep", *words]) if words else None)


def of_runs(run_dirs: Sequence[Path], half: Sequence[Path] = ()) -> Group:
    """Run directories side by side. Raises UserError."""
    runs = []
    for run_dir in run_dirs:
        config, about = _read(run_dir)
        steps = max((row["step"] for row in metrics.record(run_dir) if "step" in row), default=0)
        done = steps >= config.get("total_steps", float("inf"))
        state = "done" if done else "running" if rundir.is_locked(run_dir) else "interrupted"
        runs.append(Run(run_dir, state, about["overrides"]))
    alone = runs[0].run_dir if len(runs) == 1 else None
    command = None if alone is None else shlex.join(["rlmem", "train", *_asked(runs[0].overrides)])
    return replace(group(f"Run {alone.name}" if alone else "Runs", runs, command), half=half)


def group(name: str, runs: Sequence[Run], command: str | None) -> Group:
    said, lines = [_described(run) for run in runs], [metrics.record(run.run_dir) for run in runs]
    named = labels([one.settings for one in said])
    found = {key for own in lines for line in own for key in line}
    key = next((key for key in RETURNS if key in found), None)
    records = [
        _record(run, one, place, key, recorded)
        for run, one, place, recorded in zip(runs, said, named.places, lines, strict=True)
    ]
    curves = [] if key is None else of_metric(records, key)
    return Group(name, key, records, curves, command, named.alike)


def of_metric(records: Sequence[Record], key: str) -> list[Curve]:
    """The learning curves of a key of metrics.jsonl, of those runs that have a value of it."""
    made = []
    for run in records:
        steps, values = ([], []) if run.run_dir is None else metrics.curve(run.run_dir, key)
        if steps:
            made.append(Curve(run.row, run.column, run.seed, steps, values))
    return made


def _described(run: Run) -> Described:
    given = {key: _as_kept(value) for key, _, value in (line.lstrip("+").partition("=") for line in run.overrides)}
    defaults = default_choices()
    try:
        config, about = _read(run.run_dir)
        values, choices = dict(_flat(config)), {group: show(option) for group, option in about["choices"].items()}
    except rundir.NoRun:  # a job that has not begun
        about, values = {}, dict(given)
        choices = {group: given.get(group, show(option)) for group, option in defaults.items()}
    seed = values.get("seed", "0")
    options = {group: choices[group] for group in [*defaults, *choices] if group in choices and group not in APART}
    if COLUMN in options:
        options[COLUMN] = values.pop("env.id", options[COLUMN])  # which says more than `gym`
    kept = {key: value for key, value in values.items() if key.partition(".")[0] not in APART and key not in choices}
    asked = [key for key in given if key not in choices]
    return Described(Settings(options, kept, asked), int(seed) if seed.isdecimal() else 0, about)


def _read(run_dir: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """config.yaml and run.json. Raises NoRun, also where they hold something else than what was written."""
    config, about = rundir.read(run_dir)
    texts = all(isinstance(about.get(name), str | None) for name in ("rlmem", "git"))
    if not (texts and isinstance(config.get("total_steps", 0), int)):
        raise rundir.NoRun(f"{run_dir}: config.yaml or run.json is damaged (not what was written); restore it")
    return config, about


def _as_kept(value: str) -> str:
    """A value of the command line as one of config.yaml is shown: `1e-3` is 0.001."""
    try:
        return show(json.loads(value))
    except ValueError:
        return value


def _flat(config: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, str]]:
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", show(value)


def _record(
    run: Run, one: Described, place: tuple[str, str], key: str | None, lines: Sequence[Mapping[str, Any]]
) -> Record:
    wanted = [*metrics.BESIDE, *([f"last {key}"] if key else [])]
    found = metrics.read(run.run_dir, wanted) if run.state == "done" else {}
    return Record(
        *place, one.seed, run.state,
        metrics={name: value for name, value in found.items() if np.isfinite(value)},
        steps=max((line["step"] for line in lines if "step" in line), default=0),
        seconds=next((line["time/elapsed"] for line in reversed(lines) if line.get("time/elapsed")), float("nan")),
        config_hash=run.config_hash, version=one.about.get("rlmem") or "", commit=_commit(one.about.get("git") or ""),
        overrides=" ".join(_asked(run.overrides)), run_dir=run.run_dir,
    )  # fmt: skip


def _commit(written: str) -> str:
    """`0123456789ab+changes`"""
    commit, plus, changes = written.partition("+")
    return f"{commit[:12]}{plus}{changes}"


def _asked(overrides: Iterable[str]) -> list[str]:
    """Without what says where and how a run lies on this machine."""
    return [line for line in overrides if line.partition("=")[0] not in ("run_dir", "on_exists")]
