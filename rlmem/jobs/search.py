"""A search: Optuna proposes jobs from the results of those in the manifest.

A study is rebuilt for every proposal, so a kill leaves nothing inconsistent, and several machines search together.
"""

import hashlib
import json
import warnings
from collections.abc import Sequence
from functools import partial
from itertools import chain
from pathlib import Path

import optuna
from optuna import Study, Trial
from optuna.distributions import distribution_to_json, json_to_distribution
from optuna.samplers import RandomSampler, TPESampler
from optuna.trial import TrialState, create_trial

from rlmem.core.errors import UserError
from rlmem.core.received import loads
from rlmem.jobs.manifest import Job, Manifest
from rlmem.jobs.spec import Axis, Lines, SweepSpec

optuna.logging.set_verbosity(optuna.logging.WARNING)

TRIES = 50
"""Proposals in a row that repeat earlier ones, after which the search counts as exhausted."""


def study(folder: Path) -> Study:
    """The search in `folder` as an Optuna study, for its plots and importances. Raises UserError if there is none."""
    manifest = Manifest(folder)
    spec = manifest.specification()
    if spec is None or spec.direction is None:
        raise UserError(f"{folder}: holds no search; expected the directory of `rlmem sweep --trials N ...`")
    return _study(manifest.jobs(), spec, seed=0)


def propose(axes: Sequence[Axis], jobs: Sequence[Job], spec: SweepSpec) -> tuple[Lines, str] | None:
    """The overrides of the next trial, and what was drawn for it as JSON; None if nothing new was found.

    The draw follows from the specification and the jobs so far. A combination that was tried is not proposed again.
    """
    tried = {job.overrides for job in jobs}
    for attempt in range(TRIES):
        digest = hashlib.sha256(f"{spec.canonical} {len(jobs)} {attempt}".encode()).digest()
        trial = _study(jobs, spec, int.from_bytes(digest[:4], "big")).ask()
        lines = _draw(trial, axes)
        if lines not in tried:
            shapes = {name: distribution_to_json(shape) for name, shape in trial.distributions.items()}
            return lines, json.dumps({"params": trial.params, "distributions": shapes})
    return None


def _draw(trial: Trial, axes: Sequence[Axis]) -> Lines:
    always = tuple(chain.from_iterable(_point(trial, axis) for axis in axes if not axis.when))
    special = [axis for axis in axes if axis.when and axis.fits(always)]
    return always + tuple(chain.from_iterable(_point(trial, axis) for axis in special))


def _point(trial: Trial, axis: Axis) -> Lines:
    if not axis.varies:
        return axis.points[0]
    name, numbers = " ".join(axis.keys), axis.numbers
    if numbers is None:
        lines = {" ".join(point): point for point in axis.points}
        return lines[str(trial.suggest_categorical(name, list(lines)))]
    key = axis.points[0][0].partition("=")[0]
    low, high, step = numbers.low, numbers.high, numbers.step
    if isinstance(low, int) and isinstance(high, int):
        return (f"{key}={trial.suggest_int(name, low, high, step=int(step or 1), log=numbers.log)}",)
    return (f"{key}={trial.suggest_float(name, low, high, step=step, log=numbers.log)!r}",)


def _study(jobs: Sequence[Job], spec: SweepSpec, seed: int) -> Study:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        # A constant liar counts running jobs as poor ones.
        sampler = RandomSampler(seed) if spec.sampler == "random" else TPESampler(seed=seed, constant_liar=True)
    study = optuna.create_study(direction=spec.direction, sampler=sampler)
    for job in jobs:
        drawn = loads(job.params or '{"params": {}, "distributions": {}}')
        shapes = {name: json_to_distribution(text) for name, text in drawn["distributions"].items()}
        make = partial(create_trial, params=drawn["params"], distributions=shapes, user_attrs={"name": job.name})
        if job.state == "done" and job.result is not None:
            study.add_trial(make(value=job.result))
        else:
            study.add_trial(make(state=TrialState.FAIL if job.state in ("done", "failed") else TrialState.RUNNING))
    return study
