"""Runs that belong to no experiment: their rows and columns are what varies among them."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlmem import rundir
from rlmem.config.catalog import default_choices
from rlmem.config.messages import show
from rlmem.errors import UserError
from rlmem.reproduce import metrics
from rlmem.reproduce.outcome import Curve, Record
from rlmem.sweep.manifest import Manifest
from rlmem.sweep.status import RETURNS

APART = ("seed", "run_dir", "on_exists", "threads", "device", "logger")
"""Keys that make no other experiment of a run."""
COLUMN = "env"
"""What makes columns if it varies."""


@dataclass(frozen=True)
class Group:
    """Runs side by side.

    key: of metrics.jsonl, what curves and table show; None if no run has any;  metric: its last value
    command: what makes these runs, if that is one command
    """

    name: str
    key: str | None
    records: Sequence[Record]
    curves: Sequence[Curve]
    command: str | None = None

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
    """asked: what was chosen and overridden;  config: all of config.yaml, key -> value;  about: run.json"""

    asked: Mapping[str, str]
    config: Mapping[str, str]
    about: Mapping[str, Any]


def of_sweep(folder: Path) -> Group:
    """The jobs of a sweep. Raises UserError."""
    manifest = Manifest(folder)
    states = [(job, "interrupted" if job.abandoned else job.state) for job in manifest.jobs()]
    runs = [Run(folder / job.name, state, job.overrides, job.config_hash) for job, state in states]
    spec = manifest.specification()
    words = [] if spec is None else [*spec.overrides, *(w for pair in spec.pairs for w in ("--pair", " ".join(pair)))]
    return group(f"Sweep {folder.name}", runs, shlex.join(["rlmem", "sweep", *words]) if words else None)


def of_runs(run_dirs: Sequence[Path]) -> Group:
    """Run directories side by side. Raises UserError."""
    runs = []
    for run_dir in run_dirs:
        config, about = rundir.read(run_dir)
        steps = max((row["step"] for row in metrics.record(run_dir) if "step" in row), default=0)
        done = steps >= config.get("total_steps", float("inf"))
        state = "done" if done else "running" if rundir.is_locked(run_dir) else "interrupted"
        runs.append(Run(run_dir, state, about["overrides"]))
    alone = runs[0].run_dir if len(runs) == 1 else None
    command = None if alone is None else shlex.join(["rlmem", "train", *_asked(runs[0].overrides)])
    return group(f"Run {alone.name}" if alone else "Runs", runs, command)


def group(name: str, runs: Sequence[Run], command: str | None) -> Group:
    said, lines = [_described(run) for run in runs], [metrics.record(run.run_dir) for run in runs]
    keys = [key for key in dict.fromkeys(key for one in said for key in one.asked) if key.split(".")[0] not in APART]
    settings = [{key: one.config.get(key, one.asked.get(key, "")) for key in [*keys, "seed"]} for one in said]
    varying = [key for key in keys if len({own[key] for own in settings}) > 1]
    columns = [COLUMN] if COLUMN in varying else []
    rows = [key for key in varying if key != COLUMN] or ["memory"]
    found = {key for own in lines for line in own for key in line}
    key = next((key for key in RETURNS if key in found), None)
    records, curves = [], []
    for run, one, own, recorded in zip(runs, said, settings, lines, strict=True):
        place = (_label(own, rows) or run.run_dir.name, _label(own, columns))
        made = _record(run, one.about, int(own["seed"] or 0), place, key, recorded)
        records.append(made)
        steps, points = ([], []) if key is None else metrics.curve(run.run_dir, key)
        if len(steps) > 1:
            curves.append(Curve(made.row, made.column, made.seed, steps, points))
    return Group(name, key, records, curves, command)


def _described(run: Run) -> Described:
    asked = dict(line.lstrip("+").partition("=")[::2] for line in run.overrides)
    try:
        config, about = rundir.read(run.run_dir)
    except UserError:  # a job that has not begun
        config, about = {}, {"choices": default_choices()}
    chosen = {key: show(value) for key, value in about["choices"].items()}
    return Described(asked | chosen if config else chosen | asked, dict(_flat(config)), about)


def _flat(config: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, str]]:
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", show(value)


def _label(own: Mapping[str, str], keys: Sequence[str]) -> str:
    """`ffm trace_size=16`: the options of groups by themselves, other keys with their last word."""
    groups = default_choices()
    words = [own[key] if key in groups else f"{key.rpartition('.')[2]}={own[key]}" for key in keys if own.get(key)]
    return " ".join(words)


def _record(
    run: Run,
    about: Mapping[str, Any],
    seed: int,
    place: tuple[str, str],
    key: str | None,
    lines: Sequence[Mapping[str, Any]],
) -> Record:
    wanted = [*metrics.BESIDE, *([f"last {key}"] if key else [])]
    return Record(
        *place, seed, run.state,
        metrics=metrics.read(run.run_dir, wanted) if run.state == "done" else {},
        steps=max((line["step"] for line in lines if "step" in line), default=0),
        seconds=next((line["time/elapsed"] for line in reversed(lines) if "time/elapsed" in line), float("nan")),
        config_hash=run.config_hash, version=about.get("rlmem", ""), commit=_commit(about.get("git") or ""),
        overrides=" ".join(_asked(run.overrides)), run_dir=run.run_dir,
    )  # fmt: skip


def _commit(written: str) -> str:
    """`0123456789ab+changes`"""
    commit, plus, changes = written.partition("+")
    return f"{commit[:12]}{plus}{changes}"


def _asked(overrides: Iterable[str]) -> list[str]:
    """Without what says where and how a run lies on this machine."""
    return [line for line in overrides if line.partition("=")[0] not in ("run_dir", "on_exists")]
