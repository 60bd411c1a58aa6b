"""What the runs in a reproduction's directory came to."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from rlmem.errors import Fault, UserError
from rlmem.record import rundir
from rlmem.reproduce.cells import cells, read_cells
from rlmem.reproduce.metrics import BESIDE, curve, curve_key, read, record
from rlmem.reproduce.outcome import Curve, Outcome, Record, short
from rlmem.reproduce.spec import Analysis, Experiment
from rlmem.sweep.jobs import Job
from rlmem.sweep.manifest import Manifest
from rlmem.system.hardware import machine_class


def collect(name: str, experiment: Experiment, budget: str, folder: Path) -> Outcome:
    """One record per run that was asked for, with what its record holds so far. Raises UserError."""
    listed = _listed(experiment, budget, folder)
    records = [_record(experiment, row, column, seed, job, folder) for row, column, seed, job in listed]
    key = curve_key(experiment.metric)
    curves = []
    for made in records:
        if made.run_dir is not None and made.state == "done":
            steps, values = curve(made.run_dir, key)
            if steps:
                curves.append(Curve(made.row, made.column, made.seed, steps, values))
    return Outcome(name, experiment, budget, records, curves, _pictures(experiment, records))


def analyse(experiment: Experiment, budget: str, folder: Path, say: Callable[[str], object]) -> None:
    """Make the experiment's analyses of every finished run of its cells that lacks them."""
    if not experiment.analyses:
        return
    from rlmem.analysis import analyze

    for _, _, _, job in _listed(experiment, budget, folder):
        for analysis in experiment.analyses:
            run_dir = folder / job.name
            if job.state == "done" and not _made(analysis, run_dir):
                try:
                    analyze(analysis.what, run_dir, **analysis.options)
                    rundir.write_atomically(_note(analysis, run_dir), _asked(analysis))
                except (UserError, Fault) as error:
                    say(f"{job.name}: {analysis.what}: {error}")


def _made(analysis: Analysis, run_dir: Path) -> bool:
    """Whether the run has it with these options, rather than one made by hand or for another item."""
    note = _note(analysis, run_dir)
    return note.exists() and note.read_text(encoding="utf-8") == _asked(analysis)


def _note(analysis: Analysis, run_dir: Path) -> Path:
    from rlmem.analysis.output import ASKED

    return run_dir / "analysis" / analysis.what / ASKED


def _asked(analysis: Analysis) -> str:
    return json.dumps(analysis.options, sort_keys=True)


def _listed(experiment: Experiment, budget: str, folder: Path) -> list[tuple[str, str, int, Job]]:
    """(row, column, seed, job) of the experiment's runs, in its order.

    The folder may hold those of further items, and of an earlier state of the file, which are none of them.
    """
    jobs = {job.config_hash: job for job in Manifest(folder).jobs()}
    there = {(c["row"], c["column"], c["seed"]): jobs.get(c["config_hash"]) for c in read_cells(folder)["cells"]}
    planned = [(cell, seed) for cell in cells(experiment, budget) for seed in cell.seeds]
    found = [(cell, seed, there.get((cell.row, cell.column, seed))) for cell, seed in planned]
    return [(c.row, c.column, seed, job) for c, seed, job in found if job and job.overrides == c.lines(seed)]


def _record(experiment: Experiment, row: str, column: str, seed: int, job: Job, folder: Path) -> Record:
    run_dir, state = folder / job.name, "interrupted" if job.abandoned else job.state
    others = tuple(f"analysis/{a.what}/" for a in experiment.analyses if not _made(a, run_dir))
    wanted = dict.fromkeys([experiment.metric, *experiment.also, *BESIDE])
    metrics = [name for name in wanted if not name.startswith(others)]
    rows = record(run_dir)
    about: dict[str, Any] = {}
    with suppress(UserError):
        about = rundir.read(run_dir)[1]
    return Record(
        row, column, seed, state,
        metrics=read(run_dir, metrics),
        steps=max((line["step"] for line in rows if "step" in line), default=0),
        seconds=next((line["time/elapsed"] for line in reversed(rows) if line.get("time/elapsed")), float("nan")),
        config_hash=job.config_hash,
        version=about.get("rlmem", ""),
        commit=short(about.get("git")),
        machine=about.get("machine") or machine_class(),
        overrides=" ".join(job.overrides),
        run_dir=run_dir,
    )  # fmt: skip


def _pictures(experiment: Experiment, records: list[Record]) -> dict[str, Path]:
    """The pictures of the analyses that count, of the first seed of every cell."""
    found: dict[str, Path] = {}
    for made in sorted(records, key=lambda made: made.seed):
        for analysis in experiment.analyses:
            path = _picture(made, analysis)
            caption = " · ".join(part for part in (analysis.what, made.row, made.column) if part)
            if path is not None and path.exists():
                found.setdefault(caption, path)
    return found


def _picture(made: Record, analysis: Analysis) -> Path | None:
    if made.run_dir is None or not _made(analysis, made.run_dir):
        return None
    return made.run_dir / "analysis" / analysis.what / "picture.svg"
