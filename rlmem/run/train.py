"""Train and resume runs: the run directory, the loop, and what is said around them.

With `rlmem.run.assemble`, the only modules below the command line that know the configuration.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from shutil import disk_usage
from typing import cast

import torch

from rlmem.config.compose import Config
from rlmem.config.foreign import foreign_problems
from rlmem.config.messages import shell, show
from rlmem.errors import Fault, UserError
from rlmem.loops.base import Loop
from rlmem.parallel import announce, joined, launched, of_first, place, team, wait_for_first
from rlmem.record import rundir
from rlmem.record.checkpoint import State, step_of
from rlmem.record.progress import Progress
from rlmem.record.recorder import START, Recorder
from rlmem.record.sync import make_loggers
from rlmem.run.assemble import Parts, assemble, choose_device, threads_of
from rlmem.run.make_loop import Silent, make_loop
from rlmem.run.restore import (
    agent_state,
    checkpoints,
    experiment_of,
    fitting,
    newest,
    parse_source,
    require_alone,
    require_resumable,
    require_same_experiment,
    stored_config,
    to_continue,
)
from rlmem.run.sizes import size
from rlmem.run.summary import checkpoint_bytes, env_name, summary
from rlmem.system.failures import named
from rlmem.system.signals import stopping_politely


def train(config: Config) -> float:
    """Run `config` in its run directory; returns `objective` of its loop at the end, for a sweeper.

    `on_exists` says what becomes of a run that is there already: error; resume: go on with it; new: leave it alone, and
    add a number to the name. Raises UserError for choices that do not go together, before anything is written.
    """
    if _led():
        return follow(config)
    run_dir, on_exists = config.values["run_dir"], config.values["on_exists"]
    parts = assemble(config)
    if on_exists == "resume":
        return _continue(config, parts, Path(run_dir))
    warmed = warm_start(config, parts)
    path = rundir.create(
        run_dir, config.choices | {"env": env_name(config)}, config.values["seed"], numbered=on_exists == "new"
    )
    with rundir.lock(path), named(lambda: 0, config.values):
        rundir.describe(path, config.values, config.choices, config.overrides)
        return _run(config, parts, path, None, warmed)


def _continue(config: Config, parts: Parts, run_dir: Path) -> float:
    """Go on with the run of `config` in `run_dir`, or begin it. What is there and cannot be used is moved aside."""
    require_alone(run_dir)
    rundir.make(run_dir)
    with rundir.lock(run_dir), named(lambda: 0, config.values):
        restored = to_continue(config, run_dir)
        warmed = None if restored else warm_start(config, parts)
        if restored is None:
            if aside := rundir.clear(run_dir):
                print(f"{run_dir}: what was there is damaged and lies in {aside} now; starting from the beginning")
            rundir.describe(run_dir, config.values, config.choices, config.overrides)
        else:
            _require_budget(config, restored, f"total_steps={_taken(restored)}")
            checkpoints(run_dir, config.values["checkpoint"]["keep"]).drop_after(_taken(restored))
            rundir.describe(run_dir, config.values, config.choices, config.overrides, resumed_at=_taken(restored))
        return _run(config, parts, run_dir, restored, warmed)


def resume(run_dir: Path, overrides: Sequence[str], trust: bool = False) -> float:
    """Continue the run in `run_dir` from its newest intact checkpoint, exactly where it was.

    overrides: `key=value` of RESUMABLE keys
    trust: take the run as one's own, whoever made it (`stored_config`)

    Raises UserError for other overrides, if another process is training the run, if every checkpoint is damaged, or if
    the configuration is somebody else's and names code.
    """
    command = f"rlmem resume {shell(run_dir)} total_steps=2000000"
    require_resumable(overrides, command)
    require_alone(run_dir)
    config = stored_config(run_dir, overrides, trust)
    if _led():
        return follow(config)
    with rundir.lock(run_dir), named(lambda: 0, config.values):
        parts = assemble(config)
        restored = newest(run_dir) if checkpoints(run_dir).paths() else {}
        if restored:
            stored, example = restored["experiment"], f"restore {run_dir / 'config.yaml'}"
            require_same_experiment(stored, experiment_of(config.values), f"the checkpoint in {run_dir}", example)
        _require_budget(config, restored, command)
        warmed = None if restored else warm_start(config, parts)
        checkpoints(run_dir, config.values["checkpoint"]["keep"]).drop_after(_taken(restored))
        rundir.describe(run_dir, config.values, config.choices, config.overrides, resumed_at=_taken(restored))
        return _run(config, parts, run_dir, restored, warmed)


def _led() -> bool:
    """Whether torchrun started this process beside another, the first, which leads the run."""
    there = launched()
    return there is not None and there.rank > 0


def follow(config: Config, port: int | None = None) -> float:
    """Train as one of the processes beside the first, which alone writes and speaks; returns what `train` does.

    port: where the first one waits on this machine; None: where torchrun said
    """
    here, device = launched(), choose_device(config.values["device"])
    assert here is not None
    torch.set_num_threads(threads_of(config))
    with named(lambda: 0, config.values), joined(here, device, None if port is None else announce(port, here)):
        parts = assemble(config)
        loop = make_loop(config, parts, None, cast(Recorder, Silent()), cast(Progress, Silent()))
        restored = _begin(loop, None)
        with closing(parts.env), stopping_politely(loop), named(lambda: loop.collector.steps, config.values):
            try:
                _learn(loop, warm=config.values["init_from"] is not None and not restored)
            except KeyboardInterrupt:
                wait_for_first()
                raise
            wait_for_first()
    return loop.objective()


def _taken(restored: State) -> int:
    return restored["step"] if restored else 0


def _require_budget(config: Config, restored: State, example: str) -> None:
    done, total = _taken(restored), config.values["total_steps"]
    if total < done:
        raise UserError(
            f"total_steps={total}: the run has taken {done} steps; expected at least as many; e.g. {example}"
        )


def plan(config: Config) -> str:
    """The summary of a run that is not started; raises UserError as `train` does."""
    parts = assemble(config, to_plan=True)
    with closing(parts.env):
        warm_start(config, parts)
        return summary(config, parts, "nowhere: a dry run writes nothing")


def _run(config: Config, parts: Parts, run_dir: Path, restored: State | None, warmed: str | None) -> float:
    """Train in `run_dir`; restored: None for a new run, else the checkpoint to continue from ({}: from the start).

    warmed: what is to be said of the weights that the agent begins with, if they are another run's
    """
    values = config.values
    torch.set_num_threads(threads_of(config))
    begin = _taken(restored or {})
    with Progress(values["total_steps"], run_dir / "log.txt", begin) as progress, closing(parts.env):
        progress.say(summary(config, parts, str(run_dir)))
        if problem := _little_room(config, parts, run_dir):
            progress.say(problem)
        if foreign_problems(values) and not rundir.is_own_run(run_dir):
            progress.say("this run is not signed (no key can be read or made): `rlmem resume` will ask for --trust")
        recorder = Recorder(run_dir, progress.say)
        failed = True
        try:
            if warmed is not None:
                progress.say(warmed)
            with (
                named(lambda: begin, values),
                team(partial(follow, config), values["trainer"]["devices"], parts.device),
            ):
                loop = make_loop(config, parts, run_dir, recorder, progress)
                with fitting(run_dir):
                    _begin(loop, restored)
                if restored:
                    restored.clear()  # a replay in it need not be held twice
                    progress.say(f"resumed at step {begin}")
                elif restored is not None:
                    recorder.rewind(START)
                    progress.say("no checkpoint yet: starting from the beginning")
                with stopping_politely(loop), named(lambda: loop.collector.steps, values):
                    recorder.mirror(make_loggers(values, run_dir, progress.say))
                    _learn(loop, warm=warmed is not None)
            failed = False
        except (Fault, UserError) as error:  # said by whoever ends the command, or the job
            where = last_checkpoint(run_dir)
            problems = error.problems if isinstance(error, UserError) else (str(error),)
            told = [*problems[:-1], f"{problems[-1]}; {where}"]
            progress.note(f"failed: {'; '.join(told)}")
            if isinstance(error, Fault):
                raise Fault(told[0], error.traceback) from error
            raise UserError(*told) from error
        except BaseException as error:
            progress.say(f"{_how_it_ended(error)}; {last_checkpoint(run_dir)}")
            raise
        finally:
            recorder.close(failed)
        progress.say(last_words(run_dir, loop))
    return loop.objective()


def _begin(loop: Loop, restored: State | None) -> State | None:
    """Bring every process to the checkpoint of the first one, which is returned, or else to its weights."""
    restored = of_first(restored)
    if restored:
        loop.load_state_dict(restored)
    elif place().size > 1:
        loop.agent.load_state_dict(of_first(loop.agent.state_dict()))
    return restored


def _learn(loop: Loop, warm: bool) -> None:
    """Train to the end; warm: with the weights of another run, which may have gone on when this one is resumed."""
    if warm:
        loop.save()
    loop.run()


def _little_room(config: Config, parts: Parts, run_dir: Path) -> str | None:
    """Say if the disk cannot take the checkpoints to come: one more than are kept, while the newest is written."""
    number, each = config.values["checkpoint"]["keep"] + 1, checkpoint_bytes(parts, config.values["total_steps"])
    free = disk_usage(run_dir).free
    if free > number * each:
        return None
    return f"the disk of {run_dir} has {size(free)} left, and {number} checkpoints may take {size(number * each)}"


def _how_it_ended(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt):
        return "stopped"
    return f"failed: {error!r}"


def warm_start(config: Config, parts: Parts) -> str | None:
    """Give the agent the weights that `init_from` names, if it does; what was done, as a line. Raises UserError."""
    source = config.values["init_from"]
    if source is None:
        return None
    run, which = parse_source(source)
    try:
        about, state = rundir.read(run)[1], agent_state(run, which)
    except UserError as error:
        raise UserError(*(f"init_from={source}: {problem}" for problem in error.problems)) from error
    own = {name: tensor.shape for name, tensor in parts.agent.state_dict().items()}
    if own != {name: tensor.shape for name, tensor in state["agent"].items()}:
        theirs = {group: choice for group, choice in about["choices"].items() if choice != config.choices.get(group)}
        told = ", ".join(f"{group}={show(choice)}" for group, choice in theirs.items() if group in AGENT)
        raise UserError(
            f"init_from={source}: its agent is made otherwise ({told or 'other sizes or spaces'}); expected the same "
            f"memory, encoder, heads and spaces; e.g. the choices of {run / 'config.yaml'}"
        )
    if next(parts.agent.parameters()).device.type != "meta":  # else it is only planned
        parts.agent.load_state_dict(state["agent"])
    return f"weights of {run} at step {state['step']}; everything else begins anew"


AGENT = ("memory", "algo", "encoder", "env")
"""The groups that shape an agent."""


def last_checkpoint(run_dir: Path) -> str:
    """Where a run that ended early can go on."""
    paths = checkpoints(run_dir).paths()
    if not paths:
        return f"there is no checkpoint yet; `rlmem resume {shell(run_dir)}` starts from the beginning"
    return f"saved up to step {step_of(paths[-1])}; continue with    rlmem resume {shell(run_dir)}"


def last_words(run_dir: Path, loop: Loop) -> str:
    """The result and what one may do next."""
    return "\n".join(
        [
            f"done: {loop.collector.steps:,} steps, {loop.updates:,} updates in {loop.elapsed:.0f} s",
            f"  mean evaluation {loop.evaluation_text()} ({loop.evaluation_sample()})",
            f"  results lie in   {run_dir}",
            f"  evaluate         rlmem eval {shell(run_dir)}",
            f"  train longer     rlmem resume {shell(run_dir)} total_steps={2 * loop.total_steps}",
        ]
    )
