"""Where a run begins: with its first step, or from a checkpoint in its directory."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from rlmem.config.compose import Config
from rlmem.config.messages import shell, to_text
from rlmem.core.errors import UserError
from rlmem.core.types import processes
from rlmem.loops.base import Loop
from rlmem.record import rundir
from rlmem.record.checkpoint import State
from rlmem.record.facts import RunRecord
from rlmem.record.provenance import OtherFormat, why_digits_differ
from rlmem.record.recorder import START, changed
from rlmem.run import stored
from rlmem.run.assemble import Parts


@dataclass(frozen=True)
class Start:
    """Where a run begins: with its first step, or from a checkpoint.

    step: environment steps that it has taken
    state: the checkpoint, which `begin` empties after loading, so that a replay is not held twice; None: there is none
    weights: a sentence about the weights that the agent begins with, if they are another run's
    remark: a sentence for the log, or None
    """

    step: int = 0
    state: State | None = None
    weights: str | None = None
    remark: str | None = None

    def __str__(self) -> str:
        if self.state is not None:
            return f"resumed at step {self.step}" + (f"; {self.remark}" if self.remark else "")
        return "\n".join(line for line in (self.weights, self.remark) if line)


def find_start(run_dir: Path) -> Start:
    """Where a run continues: its newest checkpoint that `unfit` accepts. Raises UserError if it has only others."""
    store = stored.checkpoints(run_dir)
    if not store.paths():
        return Start(remark="no checkpoint yet: starting from the beginning")
    try:
        state = store.load(lambda state: unfit(run_dir, state))[1]
    except FileNotFoundError as error:
        problem = f"{error}, of which the record has all rows; expected what `rlmem train` wrote"
        raise UserError(f"{run_dir}: {problem}; restore the files or start a new run") from error
    return Start(state["step"], state)


def unfit(run_dir: Path, state: State) -> str | None:
    """Why the run cannot continue from `state`: its record has lost or changed rows; None if it can."""
    try:
        changes = [changed(run_dir / f"{name}.jsonl", state["record"][name]) for name in START]
        why = next((change for change in changes if change), None)
        return why and f"{why} since the checkpoint at step {state['step']}"
    except (KeyError, TypeError, OSError):
        return f"{run_dir}: a checkpoint holds something else than this version of rlmem writes"


@contextmanager
def open_run(parts: Parts, resumed: Path | None) -> Iterator[tuple[Path, Start]]:
    """The directory of a run, locked and described, and where the run begins.

    With `on_exists=resume` the directory may hold the run already: it continues, and unusable files are moved aside.
    Weights that the run begins with are loaded into `parts.agent`.

    resumed: a run that continues, of which nothing is moved aside; None: `run_dir` and `on_exists` name the directory
    """
    config, settings = parts.config, parts.config.settings
    if resumed is None and settings.on_exists != "resume":
        start = Start(weights=warm_start(parts))
        run_dir = rundir.create(config)
        with rundir.lock(run_dir):
            rundir.describe(run_dir, config)
            yield run_dir, start
        return
    run_dir = resumed or Path(str(settings.run_dir))  # `assemble` requires one
    stored.require_record(run_dir)
    if resumed is None:
        stored.require_alone(run_dir)
        rundir.make(run_dir)
    with rundir.lock(run_dir):
        example = f"rlmem resume {shell(run_dir)} total_steps=2000000"
        elsewhere = f"restore {run_dir / 'config.yaml'}" if resumed else f"run_dir={run_dir}_2"
        earlier = find_start(run_dir) if resumed else _usable_start(config, run_dir, elsewhere)
        if earlier is not None and earlier.state is not None:
            where = f"the checkpoint in {run_dir}"
            stored.require_same_experiment(earlier.state["experiment"], config, where, elsewhere)
            if (total := settings.total_steps) < earlier.step:
                problem = f"total_steps={total}: the run has taken {earlier.step} steps; expected at least as many"
                raise UserError(f"{problem}; e.g. {example if resumed else f'total_steps={earlier.step}'}")
            start = replace(earlier, remark=why_digits_differ(RunRecord(run_dir).about))
        else:
            start = replace(earlier or Start(), weights=warm_start(parts))
            if earlier is None and (moved := rundir.move_aside(run_dir)):
                damaged = f"{run_dir}: what was there is damaged and lies in {moved} now"
                start = replace(start, remark=f"{damaged}; starting from the beginning")
        if earlier is not None:
            stored.checkpoints(run_dir, settings.checkpoint.keep).drop_after(start.step)
        rundir.describe(run_dir, config, resumed_at=None if earlier is None else start.step)
        yield run_dir, start


def _usable_start(config: Config, run_dir: Path, elsewhere: str) -> Start | None:
    """Where the run in `run_dir` continues; None if nothing can be used. UserError if it is another experiment.

    The description of the run may be damaged or edited: `config` has all of it, and every checkpoint its experiment.
    """
    try:
        experiment = stored.experiment_of(rundir.read(run_dir, strict=True)[0])
        described = not rundir.is_edited(run_dir)
        if described:
            stored.require_same_experiment(experiment, config, f"the run in {run_dir}", elsewhere)
    except (rundir.NoRun, OSError, ValueError):
        described = False
    try:
        start = find_start(run_dir)
    except OtherFormat:
        raise
    except UserError:
        return None
    return start if described or start.state is not None else None


def begin(loop: Loop, start: Start | None = None) -> Start:
    """Bring the loop to the `start` of the run, which is returned; the first process sends it to the others."""
    start = Start(**processes().of_first(vars(start or Start())))
    if start.state is not None:
        loop.load_state_dict(start.state)
        start.state.clear()
        return start
    loop.recorder.rewind(START)
    if processes().size > 1:
        loop.agent.load_state_dict(processes().of_first(loop.agent.state_dict()))
    return start


def warm_start(parts: Parts) -> str | None:
    """Load the weights that `init_from` names, if any; a sentence about them. Raises UserError if they do not fit."""
    source = parts.config.settings.init_from
    if source is None:
        return None
    try:
        run, which = stored.parse_source(source)
        about, state = rundir.read(run, strict=True)[1], stored.agent_state(run, which)
    except UserError as error:
        raise UserError(*(f"init_from={source}: {problem}" for problem in error.problems)) from error
    shapes = {name: tensor.shape for name, tensor in parts.agent.state_dict().items()}
    if shapes != {name: tensor.shape for name, tensor in state["agent"].items()}:
        shaping = [group for group in about["choices"] if group in ("memory", "algo", "encoder", "env")]
        theirs = {group: about["choices"][group] for group in shaping}
        differing = [f"{g}={to_text(choice)}" for g, choice in theirs.items() if choice != parts.config.choices.get(g)]
        reason = f"its agent is made otherwise ({', '.join(differing) or 'other sizes or spaces'})"
        example = f"expected the same memory, encoder, heads and spaces; e.g. the choices of {run / 'config.yaml'}"
        raise UserError(f"init_from={source}: {reason}; {example}")
    if next(parts.agent.parameters()).device.type != "meta":  # else it is a dry run
        parts.agent.load_state_dict(state["agent"])
    bad = stored.not_finite(state)
    return f"weights of {run} at step {state['step']}{f' ({bad})' if bad else ''}; everything else begins anew"
