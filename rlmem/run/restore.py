"""What a run directory holds to go on from: which checkpoint fits, and whether it is of the same experiment."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from rlmem.config.compose import Config, apply
from rlmem.config.foreign import foreign_problems, refuse
from rlmem.config.messages import sentence, shell, show
from rlmem.config.overrides import leaf_paths
from rlmem.config.schema import SUPPLIED
from rlmem.errors import UserError
from rlmem.record import rundir
from rlmem.record.checkpoint import BEST, Checkpoints, State, read, step_of
from rlmem.record.recorder import START, changed
from rlmem.record.trust import require_plain
from rlmem.system.failures import lacks_memory

RESUMABLE = (
    "total_steps",
    "device",
    "threads",
    "on_nan",
    "checkpoint.*",
    "evaluation.*",
    "env.evaluation",
    "env.evaluation.*",
    "logger",
    "logger.*",
    "algo.replay_dir",
    "algo.ray_address",
)
"""Keys that a resumed run may change: none of them changes what was learnt so far."""


def experiment_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """What a run's numbers follow from, {key: value}: all but its place and what a resumed run may change."""
    others = (*RESUMABLE, "run_dir", "on_exists")
    return {key: value for key, value in leaf_paths(values) if not any(fnmatch(key, other) for other in others)}


def stored_config(run_dir: Path, overrides: Sequence[str] = (), trust: bool = False) -> Config:
    """The checked configuration of the run in `run_dir`, from which its parts can be built.

    A run that somebody else made, or whose configuration was edited, may name nothing but rlmem's own classes: what
    is in it would be imported and called. That is decided before anything is.

    run_dir: the run directory
    overrides: `key=value` that replace stored values
    trust: take it as one's own, whoever made it

    Raises UserError for a configuration that is refused, and for links in the directory, through which what is written
    there would reach other places; NoRun where there is no run.
    """
    values, about = rundir.read(run_dir)
    require_plain(run_dir)
    if not trust and not rundir.is_own_run(run_dir):
        given = {override.partition("=")[0] for override in overrides}
        refuse({path: why for path, why in foreign_problems(values).items() if path not in given}, run_dir)
        if rundir.is_edited(run_dir):
            what = "was edited since it was written; new values belong on the command line"
            raise UserError(sentence(str(run_dir / "config.yaml"), what, example="--trust if the change is meant"))
    stored = Config(values, about["choices"], tuple(about["overrides"]))
    if missing := [group for group in SUPPLIED if group not in about["choices"]]:
        raise rundir.NoRun(f"{run_dir / 'run.json'}: is damaged (it lacks {', '.join(missing)}); restore it")
    return apply(stored, overrides)


POPULATION, AGENT = "population.yaml", "agent_"
"""The file that makes a directory that of a population, and what the names of its run directories begin with."""


def require_alone(run_dir: Path) -> None:
    """Refuse to train an agent of a population without the others."""
    folder = run_dir.absolute().parent
    if run_dir.absolute().name.startswith(AGENT) and (folder / POPULATION).exists():
        what = "is an agent of a population, which goes on as a whole"
        raise UserError(f"{run_dir}: {what}; e.g. rlmem population {shell(folder)}")


def require_same_experiment(stored: Mapping[str, Any], given: Mapping[str, Any], where: str, example: str) -> None:
    """UserError with every key in which two experiments differ."""
    missing = object()
    keys = [key for key in {**stored, **given} if stored.get(key, missing) != given.get(key, missing)]
    if keys:
        told = lambda side, key: show(side[key]) if key in side else "not set"  # noqa: E731
        raise UserError(*(f"{k}={told(given, k)}: {where} has {told(stored, k)}; e.g. {example}" for k in keys))


def require_resumable(overrides: Sequence[str], command: str) -> None:
    """Refuse overrides of what a resumed run may not change."""
    refuse_others(overrides, RESUMABLE, "would change the experiment; a resumed run accepts", command)


def refuse_others(overrides: Sequence[str], accepted: Sequence[str], reason: str, command: str) -> None:
    """Refuse overrides of keys outside `accepted`."""
    problems = [
        f"{override}: {reason} {', '.join(accepted)}; e.g. {command}"
        for override in overrides
        if not any(fnmatch(override.lstrip("+~").split("=")[0], pattern) for pattern in accepted)
    ]
    if problems:
        raise UserError(*problems)


def checkpoints(run_dir: Path, keep: int | None = None) -> Checkpoints:
    return Checkpoints(run_dir / "checkpoints", keep)


def newest(run_dir: Path) -> State:
    """The newest checkpoint of a run that is intact and whose record still has all its rows.

    Raises UserError if there is none.
    """
    try:
        return checkpoints(run_dir).load(lambda state: unfit(run_dir, state))[1]
    except FileNotFoundError as error:
        raise UserError(
            f"{run_dir}: {error}, of which the record has all rows; expected what `rlmem train` wrote; restore the "
            f"files or start a new run"
        ) from error


def unfit(run_dir: Path, state: State) -> str | None:
    """Why the run cannot go on from `state`, if so: the record that it continues has lost or changed rows since."""
    try:
        changes = [changed(run_dir / f"{name}.jsonl", state["record"][name]) for name in START]
        why = next((change for change in changes if change), None)
        return why and f"{why} since the checkpoint at step {state['step']}"
    except (KeyError, TypeError, OSError):
        return f"{run_dir}: a checkpoint holds something else than this version of rlmem writes"


def to_continue(config: Config, run_dir: Path) -> State | None:
    """Where `config` goes on in `run_dir`: a checkpoint, {} if none was written yet, None if nothing there can be used.

    Raises UserError if another experiment is there. The description of the run may be damaged or edited: `config` has
    all of it, and every checkpoint knows its experiment.
    """
    experiment = experiment_of(config.values)
    elsewhere = f"run_dir={run_dir}_2"
    try:
        described = not rundir.is_edited(run_dir)
        if described:
            stored = rundir.read(run_dir)[0]
            require_same_experiment(experiment_of(stored), experiment, f"the run in {run_dir}", elsewhere)
    except (rundir.NoRun, OSError, ValueError):
        described = False
    try:
        state = newest(run_dir) if checkpoints(run_dir).paths() else {}
    except UserError:
        return None
    if state:
        require_same_experiment(state["experiment"], experiment, f"the checkpoint in {run_dir}", elsewhere)
    return state if state or described else None


def agent_state(run_dir: Path, which: int | str | None = None) -> State:
    """The agent of the newest intact checkpoint (None), of the one at a step, or of the best evaluation ("best").

    The record need not be what it was: only a run that goes on continues it.
    """
    if which is None:
        try:
            return checkpoints(run_dir).load()[1]
        except FileNotFoundError as error:
            raise UserError(f"{run_dir}: {error}; expected what `rlmem train` wrote; restore the files") from error
    steps = {step_of(path): path for path in checkpoints(run_dir).paths()}
    best = run_dir / "checkpoints" / BEST
    there = best.exists() if which == "best" else which in steps
    if not there:
        accepted = ", ".join([*(["best"] if best.exists() else []), *map(str, steps)])
        raise UserError(f"{run_dir}: no checkpoint {which}; accepted: {accepted or 'none yet'}")
    try:
        return read(best if which == "best" else steps[int(which)])
    except ValueError as error:
        raise UserError(f"{error}; e.g. another checkpoint of {run_dir}") from error


def parse_source(text: str) -> tuple[Path, int | str | None]:
    """`RUN`, `RUN@step` or `RUN@best` as the arguments of `agent_state`."""
    found = re.fullmatch(r"(.+?)(?:@(best|\d+))?", text)
    if found is None:
        raise UserError(f"init_from={text}: expected RUN, RUN@step or RUN@best; e.g. init_from=runs/my_run@best")
    path, which = found.groups()
    return Path(path), int(which) if which and which.isdigit() else which


@contextmanager
def fitting(run_dir: Path) -> Iterator[None]:
    """An intact checkpoint with other parts than this version's becomes a UserError."""
    try:
        yield
    except (RuntimeError, LookupError, TypeError, ValueError, AttributeError) as error:
        if lacks_memory(error):
            raise
        told = str(error).splitlines()[:1] or [type(error).__name__]
        raise UserError(
            f"{run_dir}: its checkpoint was written by another version of rlmem ({told[0]}); expected one of this "
            f"version; start a new run"
        ) from error
