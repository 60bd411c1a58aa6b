"""From a command to a finished sweep: its jobs are composed and checked, put into the manifest, and run."""

import hashlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path

from rich.console import Console

from rlmem.config.compose import Config, load
from rlmem.config.foreign import foreign_lines, refuse
from rlmem.config.messages import shell
from rlmem.config.paths import shipped_options
from rlmem.core.command import Stopped
from rlmem.core.errors import UserError, extra
from rlmem.core.hardware import cores
from rlmem.core.moved import ADDED, HASHED
from rlmem.jobs.manifest import Job, Manifest, holds_sweep
from rlmem.jobs.multirun import check_jobs
from rlmem.jobs.pool import Options, Pool, shared_gpus
from rlmem.jobs.spec import EXAMPLE, Axis, Lines, SweepSpec, axes, expand, label, probes
from rlmem.jobs.status import View, counts, log_file, rows

Say = Callable[[str], None]


def default_folder(spec: SweepSpec, file: Path | None, whole: bool) -> Path:
    """sweeps/<name>, the same for the same command; `whole`: the `file` alone says what the sweep consists of."""
    if file is not None:
        return Path("sweeps") / (file.stem if whole else f"{file.stem}-{spec.short_hash}")
    keys = [key.rpartition(".")[2] for axis in axes(spec) if axis.varies for key in axis.keys]
    return Path("sweeps") / "-".join([*keys[:4], spec.short_hash])


def dry_run(spec: SweepSpec, folder: Path) -> str:
    """The jobs of a sweep that is not started, composed and checked."""
    if spec.direction is not None:
        check_jobs(checked := probes(axes(spec)))
        lines = [" ".join(job) for job in checked]
        return "\n".join([*lines, f"a search in {folder}, of which these {len(checked)} corners are accepted"])
    jobs, repeated = _compose(spec)
    lines = [f"{number:03d}  {' '.join(job.overrides) or '(defaults)'}" for number, job in enumerate(jobs, 1)]
    return "\n".join([*lines, *repeated, f"{len(jobs)} jobs in {folder}"])


def sweep(spec: SweepSpec | None, folder: Path, options: Options) -> int:
    """Work in `folder` until every job is done or has failed; returns the exit code, 1 if one failed.

    spec: what the sweep consists of; None: what the directory says
    options: how to work on it

    Raises UserError before anything is started, and Stopped after a signal.
    """
    _require_gpus(options.gpus)
    console = Console()
    manifest = _open(spec, folder, console.print)
    foreign = [] if options.trust else manifest.foreign()
    refuse(foreign_lines(foreign), folder)
    # Jobs of another user may choose shipped options only, not those of a folder `conf` beside them.
    with shipped_options() if foreign else nullcontext():
        return _work(manifest, options, View(console, manifest))


def _work(manifest: Manifest, options: Options, view: View) -> int:
    """Work on the jobs of a checked manifest; returns the exit code."""
    spec, folder, say = manifest.specification() or SweepSpec(()), manifest.folder, view.say
    if options.trials is not None:
        if spec.direction is None:
            raise UserError(f"--trials {options.trials}: {folder} holds a grid, not a search; e.g. --dir sweeps/search")
        manifest.set_trials(options.trials)
    more = _searcher(spec, manifest, say) if spec.direction is not None else lambda: False
    manifest.reopen(options.retries, options.retry_failed, options.only)
    places = _places(spec, manifest.jobs(options.only), options)
    again = options.again or f"rlmem sweep {shell(folder)}"
    say(f"{folder}: {counts(rows(manifest)).plain}; {places} at once")
    try:
        with shared_gpus(options.per_gpu, say), view.live or nullcontext():
            Pool(manifest, view, options, places, more).run()
    except Stopped:
        say(f"{counts(rows(manifest)).plain}; go on with    {again}")
        raise
    say(f"{counts(rows(manifest)).plain}; the table    rlmem sweep status {shell(folder)}")
    return _conclude(spec, folder, manifest.jobs(options.only), say, again)


def config_hash(config: Config) -> str:
    """A hash that is equal for runs that compute the same, wherever they are written."""
    values = {key: value for key, value in config.values.items() if key not in ("run_dir", "on_exists")}
    text = json.dumps(values, sort_keys=True, default=str)
    for present, hashed in HASHED.items():
        text = text.replace(f'"{present}"', f'"{hashed}"')
    for added in ADDED:
        text = text.replace(f"{added}, ", "")
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _open(spec: SweepSpec | None, folder: Path, say: Say) -> Manifest:
    """The manifest in `folder`, with the jobs of `spec`; they are checked before anything is written."""
    stored = Manifest(folder).specification() if holds_sweep(folder) else None
    asked = spec or stored
    if asked is None:
        problem = "holds no sweep; expected the directory of one, or something to sweep"
        raise UserError(f"{folder}: {problem}; e.g. {EXAMPLE}")
    if asked.direction is not None:
        _propose()
    if stored is not None and stored.canonical == asked.canonical:
        return Manifest(folder)
    if asked.direction is None:
        jobs, repeated = _compose(asked)
    else:
        check_jobs(probes(axes(asked)))
        jobs, repeated = [], []
    if (folder / "config.yaml").exists():
        raise UserError(f"{folder}: holds a run; expected a directory for a sweep; e.g. --dir sweeps/mine")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder}: cannot be made ({error.strerror}); e.g. --dir sweeps/mine") from error
    added = (manifest := Manifest(folder)).submit(asked, jobs)
    for line in repeated if stored is None else [f"{added} jobs added", *repeated]:
        say(line)
    return manifest


def _require_gpus(gpus: Sequence[str]) -> None:
    """Raise UserError for GPUs that do not exist: their jobs would run on the CPU without a warning."""
    if not gpus:
        return
    import torch

    there, where = torch.cuda.device_count(), f"--gpus {','.join(gpus)}"
    if not there:
        raise UserError(f"{where}: no CUDA device is available here; leave it out to run on the CPU; e.g. --jobs 2")
    beyond = [gpu for gpu in gpus if gpu.isdigit() and int(gpu) >= there]
    if beyond and "CUDA_VISIBLE_DEVICES" not in os.environ:  # else numbers may be those of the whole machine
        accepted = ",".join(map(str, range(there)))
        raise UserError(f"{where}: there is no GPU {beyond[0]} here; accepted: {accepted}; e.g. --gpus {accepted}")


def _compose(spec: SweepSpec) -> tuple[list[Job], list[str]]:
    """The checked jobs of a grid without repetitions, and a line about the repetitions."""
    every, unique, repeats = expand(all_axes := axes(spec)), dict[str, Job](), []
    for lines, config in zip(every, check_jobs(every), strict=True):
        job = _job(lines, config, all_axes)
        if unique.setdefault(job.config_hash, job) is not job:
            repeats.append(" ".join(lines))
    note = [f"{len(repeats)} jobs repeat others and are left out, such as {repeats[0]}"] if repeats else []
    return list(unique.values()), note


def _job(lines: Lines, config: Config, all_axes: Sequence[Axis], params: str | None = None) -> Job:
    values = config.values
    return Job(label(lines, all_axes), lines, config_hash(config), values["threads"], values["total_steps"], params)


def _propose() -> Callable[[Sequence[Axis], Sequence[Job], SweepSpec], tuple[Lines, str] | None]:
    """`rlmem.jobs.search.propose`. Raises UserError without Optuna."""
    try:
        from rlmem.jobs.search import propose
    except ModuleNotFoundError as error:
        raise UserError(f"--trials: needs Optuna, which is not installed; e.g. {extra('sweep')}") from error
    return propose


def _searcher(spec: SweepSpec, manifest: Manifest, say: Say) -> Callable[[], bool]:
    """A function that adds the next trial to the manifest, and returns whether there was one."""
    all_axes, exhausted, propose = axes(spec), False, _propose()

    def trial(jobs: list[Job]) -> Job | None:
        nonlocal exhausted
        proposal = propose(all_axes, jobs, spec)
        if proposal is None:
            exhausted = True
            say(f"the search has tried everything that there is, in {len(jobs)} jobs")
            return None
        lines, params = proposal
        try:
            return _job(lines, load(lines), all_axes, params)
        except UserError as error:
            return Job(label(lines, all_axes), lines, "", None, None, params, error="; ".join(error.problems))

    return lambda: not exhausted and manifest.draw(manifest.trials(), trial)


def _places(spec: SweepSpec, jobs: Sequence[Job], options: Options) -> int:
    if options.gpus:
        places = len(options.gpus) * options.per_gpu
        return min(places, options.places or places)
    if options.places:
        return options.places
    threads = [job.threads for job in jobs] or [load(probes(axes(spec))[0]).settings.threads]
    return max(1, cores() // max(count or cores() for count in threads))


def _conclude(spec: SweepSpec, folder: Path, jobs: Sequence[Job], say: Say, again: str) -> int:
    """Print the best trial, and a line on stderr for each failure; returns the exit code.

    jobs: those that were worked on
    again: the command that goes on with them
    """
    scored = [job for job in jobs if job.state == "done" and job.result is not None]
    if spec.direction is not None and scored:
        best = (max if spec.direction == "maximize" else min)(scored, key=lambda job: job.result or 0.0)
        say(f"best: return {best.result:.3f} in {folder / best.name}: {' '.join(best.overrides)}")
    failed = [job for job in jobs if job.state == "failed"]
    for job in failed:
        problem = f"{job.name} failed (exit code {job.exit_code}, attempt {job.attempts}): {job.error}"
        print(f"rlmem: error: {problem}; see {log_file(folder, job.name)}", file=sys.stderr)
    if failed:
        problem = f"{len(failed)} of {len(jobs)} jobs failed"
        print(f"rlmem: error: {problem}; again    {again} --retry-failed", file=sys.stderr)
    return 1 if failed else 0
