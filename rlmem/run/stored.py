"""What a run directory holds of a trained agent, its configuration and its weights, and what of it may be changed."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import torch
from torch.nn import Module

from rlmem.config.compose import Config, apply
from rlmem.config.foreign import foreign_problems, refuse
from rlmem.config.messages import mistake, shell, to_text
from rlmem.config.overrides import leaf_paths
from rlmem.config.schema import GROUPS
from rlmem.core.errors import UserError, brief, first_line, lacks_memory, printable
from rlmem.core.moved import current
from rlmem.record import rundir
from rlmem.record.checkpoint import BEST, Checkpoints, State, read, step_of
from rlmem.record.trust import require_plain

POPULATION_FILE = "population.yaml"
"""The file that marks the directory of a population."""

AGENT_PREFIX = "agent_"
"""The prefix of the run directories in a population."""

RESUMABLE = (
    "total_steps", "device", "threads", "compile", "on_nan", "checkpoint.*", "evaluation.*", "env.evaluation",
    "env.evaluation.*", "logger", "logger.*", "callbacks", "callbacks.*", "algo.replay_dir", "algo.ray_address",
)  # fmt: skip
"""Keys that a resumed run may change, since they do not affect what was learnt so far."""


def stored_config(
    run_dir: Path, overrides: Sequence[str] = (), trust: bool = False, command: str | None = None
) -> Config:
    """The checked configuration of the run in `run_dir`, from which its parts can be built.

    Building imports and calls what a configuration names. A run that another user made, or whose configuration was
    edited, may therefore name nothing but rlmem's own classes, which is checked before anything is imported. With
    `trust`, any configuration is accepted. `command` continues the training; None: the agent does not learn.

    Raises UserError for a configuration that is refused, for a format that this version cannot read, and for links in
    the directory, through which writing would reach other places; NoRun where there is no run.
    """
    values, about = rundir.read(run_dir, strict=True)
    require_plain(run_dir)
    if not trust and not rundir.is_own_run(run_dir):
        replaced = {override.partition("=")[0] for override in overrides}
        refuse({path: why for path, why in foreign_problems(values).items() if path not in replaced}, run_dir)
        if rundir.is_edited(run_dir):
            problem = "was edited since it was written; new values belong on the command line"
            example = "--trust (trust=True in Python) if the change is meant"
            raise mistake(str(run_dir / "config.yaml"), problem, example=example)
    if values.get("compile") == "inductor":
        if command and not any(override.startswith("compile=") for override in overrides):
            problem = "compile=inductor is not supported any more, and last digits differ without it"
            raise mistake(str(run_dir), problem, example=f"{command} compile=off")
        values = values | {"compile": "off"}
    stored = Config(values, about["choices"], tuple(about["overrides"]))
    if missing := [group for group in (*GROUPS, "logger") if group not in about["choices"]]:
        raise rundir.NoRun(f"{run_dir / 'run.json'}: is damaged (it lacks {', '.join(missing)}); restore it")
    return apply(stored, overrides)


def experiment_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """The keys that determine the numbers of a run: all but its place and what a resumed run may change."""
    others = (*RESUMABLE, "run_dir", "on_exists")
    return {key: value for key, value in leaf_paths(values) if not _matches(key, others)}


def require_same_experiment(stored: Mapping[str, Any], config: Config, where: str, example: str) -> None:
    """Raise UserError with every key in which `config` differs from the stored experiment, which is in `where`."""
    shown = lambda side, key: to_text(side[key]) if key in side else "not set"  # noqa: E731
    ours, missing = experiment_of(config.values), object()
    stored = {key: current(value) if key.endswith("._target_") else value for key, value in stored.items()}
    differing = [key for key in {**stored, **ours} if stored.get(key, missing) != ours.get(key, missing)]
    if differing:
        raise UserError(*(f"{k}={shown(ours, k)}: {where} has {shown(stored, k)}; e.g. {example}" for k in differing))


def require_resumable(overrides: Sequence[str], command: str) -> None:
    """Raise UserError for overrides of keys that a resumed run may not change; `command` is a correct example."""
    refuse_others(overrides, RESUMABLE, "would change the experiment; a resumed run accepts", command)


def refuse_others(overrides: Sequence[str], accepted: Sequence[str], reason: str, command: str) -> None:
    """Raise UserError for overrides of keys that match none of the patterns `accepted`."""
    others = [override for override in overrides if not _matches(override.lstrip("+~").split("=")[0], accepted)]
    if others:
        raise UserError(*(f"{override}: {reason} {', '.join(accepted)}; e.g. {command}" for override in others))


def _matches(key: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch(key, pattern) for pattern in patterns)


def checkpoints(run_dir: Path, keep: int | None = None) -> Checkpoints:
    """The checkpoints of a run; saving another deletes all but the newest `keep` (None: keeps all)."""
    return Checkpoints(run_dir / "checkpoints", keep)


def available(run_dir: Path) -> dict[int | str, Path]:
    """The checkpoints of a run by their steps, and the "best" one if there is one."""
    store = checkpoints(run_dir)
    best: dict[int | str, Path] = {"best": path} if (path := store.directory / BEST).exists() else {}
    return best | {step_of(path): path for path in store.paths()}


def agent_state(run_dir: Path, which: int | str | None = None) -> State:
    """The checkpoint at a step, the "best" one, or for None the newest that is intact. Raises UserError without one.

    It serves to take the agent from it: unlike when resuming, the record of the run may have changed since.
    """
    store = checkpoints(run_dir)
    if which is None:
        try:
            return store.load()[1]
        except FileNotFoundError as error:
            raise UserError(f"{run_dir}: {error}; expected what `rlmem train` wrote; restore the files") from error
    which = int(which) if isinstance(which, str) and which.isdecimal() else which
    if which not in (files := available(run_dir)):
        raise UserError(f"{run_dir}: no checkpoint {which}; accepted: {', '.join(map(str, files)) or 'none yet'}")
    try:
        return read(files[which])
    except ValueError as error:
        raise UserError(f"{error}; e.g. another checkpoint of {run_dir}") from error


def parse_source(text: str) -> tuple[Path, int | str | None]:
    """`RUN`, `RUN@step` or `RUN@best` as the arguments of `agent_state`. Raises UserError for other text."""
    folder, name = Path(text).parent, Path(text).name  # only the last part of a path may name a checkpoint
    run, at, which = name.rpartition("@")
    if not at or Path(text).is_dir():
        return Path(text), None
    if which != "best" and not which.isdecimal():
        example = shell(folder / f"{run or 'my_run'}@best")
        raise UserError(f"{text}: expected RUN, RUN@step or RUN@best; e.g. {example}")
    return folder / run, int(which) if which.isdecimal() else which


def checkpoint_of(run: Path | str, step: int | str | None) -> tuple[Path, int | str | None]:
    """The directory of `RUN`, `RUN@step` or `RUN@best`, and its checkpoint, which `step` may name as well."""
    path, which = parse_source(str(run))
    if which is not None and step not in (None, which):
        raise UserError(f"--step {step}: {run} names another checkpoint; expected one of the two; e.g. --step {which}")
    return path, step if which is None else which


def load_agent(agent: Module, run_dir: Path, which: int | str | None = None, changed: str = "") -> State:
    """Load the weights of a checkpoint into an agent and return the checkpoint; see `agent_state`.

    changed: overrides of its environment, which are to blame if the weights have other sizes
    """
    state = agent_state(run_dir, which)
    with fitting(run_dir):
        shapes = [{name: x.shape for name, x in weights.items()} for weights in (agent.state_dict(), state["agent"])]
        if changed and shapes[0] != shapes[1]:
            problem = "has other observations or actions than those that the agent was trained with"
            place = run_dir / "config.yaml"
            raise UserError(f"{changed}: {problem}; expected the same spaces; e.g. those of the environment in {place}")
        agent.load_state_dict(state["agent"])
    if bad := not_finite(state):
        warnings.warn(f"{run_dir}: at step {state['step']} {bad}; what its agent does means nothing", stacklevel=2)
    return state


def not_finite(state: State) -> str | None:
    """A phrase that names weights of a checkpoint with NaN or infinity; None if all are finite."""
    weights = {name: x for name, x in state["agent"].items() if x.is_floating_point() or x.is_complex()}
    bad = [name for name, x in weights.items() if not torch.isfinite(x).all()]
    return f"{len(bad)} of {len(weights)} weights are not finite, such as {brief(printable(bad[0]))}" if bad else None


@contextmanager
def fitting(run_dir: Path) -> Iterator[None]:
    """Raise UserError where loading an intact checkpoint fails: another version of rlmem wrote it."""
    try:
        yield
    except (RuntimeError, LookupError, TypeError, ValueError, AttributeError) as error:
        if lacks_memory(error):
            raise
        problem = f"its checkpoint was written by another version of rlmem ({first_line(error)})"
        raise UserError(f"{run_dir}: {problem}; expected one of this version; start a new run") from error


def require_record(run_dir: Path) -> None:
    """Raise UserError for a run that `rlmem pull` made, which has an agent and nothing else to resume from."""
    try:
        pulled = "hub" in rundir.read(run_dir)[1]
    except rundir.NoRun:
        return
    if pulled:
        problem = "was pulled from the Hub, which has the agent without what training needs to go on"
        raise UserError(f"{run_dir}: {problem}; e.g. rlmem train init_from={shell(run_dir)} run_dir={shell(run_dir)}-2")


def require_alone(run_dir: Path) -> None:
    """Raise UserError for an agent of a population, which cannot be trained alone."""
    folder = run_dir.absolute().parent
    if run_dir.absolute().name.startswith(AGENT_PREFIX) and (folder / POPULATION_FILE).exists():
        problem = "is an agent of a population, which goes on as a whole"
        raise UserError(f"{run_dir}: {problem}; e.g. rlmem population {shell(folder)}")
