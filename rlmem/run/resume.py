"""Where a run begins: with its first step, or from a checkpoint in its directory."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from rlmem.config.compose import Config
from rlmem.config.messages import shell, to_text
from rlmem.errors import UserError
from rlmem.loops.base import Loop
from rlmem.parallel import of_first, place
from rlmem.record import rundir
from rlmem.record.checkpoint import State
from rlmem.record.recorder import START, changed
from rlmem.run.assemble import Parts
from rlmem.run.experiment import experiment_of, require_same_experiment
from rlmem.run.stored import agent_state, checkpoints, parse_source, require_alone
from rlmem.run.summary import env_name

AGENT_GROUPS = ("memory", "algo", "encoder", "env")
"""The groups that shape an agent."""


@dataclass(frozen=True)
class Fresh:
    """A run that begins with its first step.

    weights: a sentence about the weights that the agent begins with, if they are another run's
    again: whether the run has begun before, but has no checkpoint
    """

    weights: str | None = None
    again: bool = False

    step: ClassVar[int] = 0

    def __str__(self) -> str:
        again = "no checkpoint yet: starting from the beginning" if self.again else None
        return "\n".join(line for line in (self.weights, again) if line)


@dataclass(frozen=True)
class Restored:
    """A run that continues from a checkpoint.

    state: the checkpoint; `begin` empties it after loading, so that a replay is not held twice
    step: environment steps at the checkpoint
    """

    state: State
    step: int

    def __str__(self) -> str:
        return f"resumed at step {self.step}"


Start = Fresh | Restored


def find_start(run_dir: Path) -> Start:
    """Where the run in `run_dir` continues. Raises UserError if it has checkpoints, but none can be used."""
    if not checkpoints(run_dir).paths():
        return Fresh(again=True)
    state = newest(run_dir)
    return Restored(state, state["step"])


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
    """Why the run cannot continue from `state`: its record has lost or changed rows; None if it can."""
    try:
        changes = [changed(run_dir / f"{name}.jsonl", state["record"][name]) for name in START]
        why = next((change for change in changes if change), None)
        return why and f"{why} since the checkpoint at step {state['step']}"
    except (KeyError, TypeError, OSError):
        return f"{run_dir}: a checkpoint holds something else than this version of rlmem writes"


@contextmanager
def open_run(config: Config, parts: Parts) -> Iterator[tuple[Path, Start]]:
    """The directory of the run of `config`, locked and described, and where the run begins.

    With `on_exists=resume` the directory may hold the run already: it continues, and unusable files are moved aside.
    Weights that the run begins with are loaded into `parts.agent`.
    """
    settings = config.settings
    if settings.on_exists == "resume":
        assert settings.run_dir is not None  # `assemble` requires it
        run_dir = Path(settings.run_dir)
        require_alone(run_dir)
        rundir.make(run_dir)
        with rundir.lock(run_dir):
            yield run_dir, _start_or_continue(config, parts, run_dir)
        return
    start = Fresh(warm_start(config, parts))
    choices, numbered = config.choices | {"env": env_name(config)}, settings.on_exists == "new"
    run_dir = rundir.create(settings.run_dir, choices, settings.seed, numbered)
    with rundir.lock(run_dir):
        rundir.describe(run_dir, config.values, config.choices, config.overrides)
        yield run_dir, start


@contextmanager
def reopen_run(run_dir: Path, config: Config, parts: Parts) -> Iterator[tuple[Path, Start]]:
    """The directory of a run that continues, as in `open_run`. Raises UserError if all its checkpoints are damaged."""
    with rundir.lock(run_dir):
        start = find_start(run_dir)
        if isinstance(start, Restored):
            stored, example = start.state["experiment"], f"restore {run_dir / 'config.yaml'}"
            require_same_experiment(stored, experiment_of(config.values), f"the checkpoint in {run_dir}", example)
        yield run_dir, _go_on(config, parts, run_dir, start, f"rlmem resume {shell(run_dir)} total_steps=2000000")


def _start_or_continue(config: Config, parts: Parts, run_dir: Path) -> Start:
    """Prepare `run_dir`, which may hold the run of `config` already; UserError if it holds another experiment.

    The description of the run may be damaged or edited: `config` has all of it, and every checkpoint its experiment.
    """
    experiment, elsewhere = experiment_of(config.values), f"run_dir={run_dir}_2"
    try:
        described = not rundir.is_edited(run_dir)
        if described:
            stored = experiment_of(rundir.read(run_dir)[0])
            require_same_experiment(stored, experiment, f"the run in {run_dir}", elsewhere)
    except (rundir.NoRun, OSError, ValueError):
        described = False
    start: Start | None
    try:
        start = find_start(run_dir)
    except UserError:
        start = None
    if isinstance(start, Restored):
        require_same_experiment(start.state["experiment"], experiment, f"the checkpoint in {run_dir}", elsewhere)
    elif start is None or not described:
        fresh = Fresh(warm_start(config, parts))
        if aside := rundir.move_aside(run_dir):
            print(f"{run_dir}: what was there is damaged and lies in {aside} now; starting from the beginning")
        rundir.describe(run_dir, config.values, config.choices, config.overrides)
        return fresh
    return _go_on(config, parts, run_dir, start, f"total_steps={start.step}")


def _go_on(config: Config, parts: Parts, run_dir: Path, start: Start, example: str) -> Start:
    """Prepare `run_dir` for a run that continues from `start`. Raises UserError if it has exceeded its budget.

    example: what the user may do then
    """
    total = config.settings.total_steps
    if total < start.step:
        raise UserError(
            f"total_steps={total}: the run has taken {start.step} steps; expected at least as many; e.g. {example}"
        )
    if isinstance(start, Fresh):
        start = replace(start, weights=warm_start(config, parts))
    checkpoints(run_dir, config.settings.checkpoint.keep).drop_after(start.step)
    rundir.describe(run_dir, config.values, config.choices, config.overrides, resumed_at=start.step)
    return start


def begin(loop: Loop, start: Start | None = None) -> Start:
    """Bring the loop of every process to the start of the first process; returns that start.

    loop: the loop of this process
    start: where to begin; None in the other processes, which receive it from the first
    """
    fields = of_first({} if start is None else vars(start))
    start = Restored(**fields) if "state" in fields else Fresh(**fields)
    if isinstance(start, Restored):
        loop.load_state_dict(start.state)
        start.state.clear()
        return start
    loop.recorder.rewind(START)
    if place().size > 1:
        loop.agent.load_state_dict(of_first(loop.agent.state_dict()))
    return start


def warm_start(config: Config, parts: Parts) -> str | None:
    """Load the weights that `init_from` names into the agent; returns a sentence about them, None without `init_from`.

    Raises UserError if there are none, or if the shapes of the agents differ.
    """
    source = config.settings.init_from
    if source is None:
        return None
    run, which = parse_source(source)
    try:
        about, state = rundir.read(run)[1], agent_state(run, which)
    except UserError as error:
        raise UserError(*(f"init_from={source}: {problem}" for problem in error.problems)) from error
    shapes = {name: tensor.shape for name, tensor in parts.agent.state_dict().items()}
    if shapes != {name: tensor.shape for name, tensor in state["agent"].items()}:
        differing = {group: choice for group, choice in about["choices"].items() if choice != config.choices.get(group)}
        theirs = ", ".join(f"{group}={to_text(choice)}" for group, choice in differing.items() if group in AGENT_GROUPS)
        raise UserError(
            f"init_from={source}: its agent is made otherwise ({theirs or 'other sizes or spaces'}); expected the same "
            f"memory, encoder, heads and spaces; e.g. the choices of {run / 'config.yaml'}"
        )
    if next(parts.agent.parameters()).device.type != "meta":  # else it is a dry run
        parts.agent.load_state_dict(state["agent"])
    return f"weights of {run} at step {state['step']}; everything else begins anew"
