"""Train and resume runs: the whole course of a run on one page."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.console import Console

from rlmem.acting.workers import closing
from rlmem.agents.graphs import Graphs
from rlmem.config.compose import Config
from rlmem.config.messages import mistake, shell
from rlmem.core.command import stopping_politely
from rlmem.core.errors import Fault, UserError, as_faults
from rlmem.core.parallel import announce, joined, launched, team, wait_for_first
from rlmem.core.types import processes
from rlmem.loops.base import Loop
from rlmem.loops.parts import Callback, Output, result_text
from rlmem.record.checkpoint import step_of
from rlmem.record.loggers import make_loggers
from rlmem.record.recorder import Progress, Recorder
from rlmem.run.assemble import Parts, assemble, choose_device, learning_threads
from rlmem.run.nodes import make_callbacks
from rlmem.run.resume import Start, begin, open_run, warm_start
from rlmem.run.stored import (
    checkpoints,
    experiment_of,
    fitting,
    parse_source,
    require_alone,
    require_resumable,
    stored_config,
)
from rlmem.run.summary import announcements, summary


class Finished(NamedTuple):
    """A run that reached its end.

    run_dir: its directory; None in a process beside the first, which alone writes
    objective: of its loop at the end, for a sweeper
    """

    run_dir: Path | None
    objective: float


class Silent:
    """Recorder, checkpoints and progress of a process that writes nothing: every method does nothing."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: None


SILENT: Any = Silent()


def train(
    config: Config,
    resumed: Path | None = None,
    console: Console | None = None,
    callbacks: Sequence[Callback] = (),
) -> Finished:
    """The course of every run: assemble and check, open the directory, announce, restore, learn, conclude.

    config: the configuration, whose `on_exists` says what happens if the run directory holds a run: error: refuse;
        resume: continue it; new: leave it and add a number to the name
    resumed: the directory of a run that continues, whatever `on_exists` says
    console: where progress is shown; None: standard output
    callbacks: called beside those of the configuration

    Raises UserError for choices that do not go together, before anything is written.
    """
    if (there := launched()) and there.rank > 0:
        return Finished(None, follow(config))
    values, settings = config.values, config.settings
    called = make_callbacks(config, callbacks)
    parts = assemble(config)
    config, values = parts.config, parts.config.values
    torch.set_num_threads(learning_threads(settings))
    with (
        as_faults(lambda: 0, values),
        closing(parts.env),
        open_run(parts, resumed) as (run_dir, start),
        Progress(settings.total_steps, run_dir / "log.txt", start.step, console) as progress,
    ):
        progress.say("\n".join(announcements(parts, run_dir)))
        with (
            recorded(run_dir, progress) as recorder,
            as_faults(lambda: start.step, values),
            team(partial(follow, config), settings.trainer.devices, parts.device),
        ):
            loop = make_loop(parts, run_dir, recorder, progress, called)
            with fitting(run_dir):
                begin(loop, start)
            if line := str(start):
                progress.say(line)
            with stopping_politely(loop), as_faults(lambda: loop.collector.steps, values):
                recorder.attach(make_loggers(values, run_dir, progress.say))
                loop.call("on_start", run_dir, values)
                _learn(loop, start)
                loop.call("on_end")
        progress.say(conclusion(run_dir, loop))
    return Finished(run_dir, loop.objective())


def resume(
    run: Path | str,
    overrides: Sequence[str],
    trust: bool = False,
    console: Console | None = None,
    callbacks: Sequence[Callback] = (),
) -> Finished:
    """Continue the run in the directory `run` from its newest intact checkpoint, exactly where it was.

    Raises UserError for RUN@best, for `overrides` of keys that are not RESUMABLE, if another process is training the
    run, if every checkpoint is damaged, or if `stored_config` refuses the configuration.
    """
    run_dir, checkpoint = parse_source(str(run))
    if checkpoint is not None:
        example = f"rlmem train init_from={shell(run)} run_dir={shell(run_dir)}-2"
        raise mistake(str(run), "a run continues from its newest checkpoint only", example=example)
    command = f"rlmem resume {shell(run_dir)}"
    require_resumable(overrides, f"{command} total_steps=2000000")
    require_alone(run_dir)
    return train(stored_config(run_dir, overrides, trust, command), run_dir, console, callbacks)


def plan(config: Config) -> str:
    """The summary of a run that is not started; raises UserError as `train` does."""
    make_callbacks(config)
    parts = assemble(config, dry_run=True)
    with closing(parts.env):
        warm_start(parts)
        return summary(parts, "nowhere: a dry run writes nothing")


def follow(config: Config, port: int | None = None) -> float:
    """Train as a process beside the first, which alone writes and prints; the objective of its loop at the end.

    The first process waits at a port of this machine, or where torchrun says.
    """
    there, device = launched(), choose_device(config.settings.device)
    assert there is not None
    torch.set_num_threads(learning_threads(config.settings))
    with as_faults(lambda: 0, config.values), joined(there, device, None if port is None else announce(port, there)):
        parts = assemble(config)
        loop = make_loop(parts, None, SILENT, SILENT)
        start = begin(loop)
        with closing(parts.env), stopping_politely(loop), as_faults(lambda: loop.collector.steps, config.values):
            try:
                _learn(loop, start)
            except KeyboardInterrupt:
                wait_for_first()
                raise
            wait_for_first()
    return loop.objective()


def _learn(loop: Loop, start: Start) -> None:
    """Train to the end. Weights of another run are saved first: that run may have changed when this one is resumed."""
    if start.weights:
        loop.save()
    loop.run()


def make_loop(
    parts: Parts,
    run_dir: Path | None,
    recorder: Recorder,
    progress: Progress,
    callbacks: Mapping[str, Callback] | None = None,
) -> Loop:
    """The loop of this process, which writes nothing if `run_dir` is None. Raises UserError."""
    settings = parts.settings
    if (devices := settings.trainer.devices) != processes().size:
        problem = "only `rlmem train` and `rlmem resume` train one run in several processes"
        raise UserError(f"trainer.devices={devices}: {problem}; e.g. trainer.devices=1")
    if settings.compile != "off":
        parts.agent.record_by(Graphs(progress.say))
    output = Output(
        recorder=recorder,
        progress=progress,
        checkpoints=SILENT if run_dir is None else checkpoints(run_dir, settings.checkpoint.keep),
        run_dir=run_dir,
        experiment=experiment_of(parts.config.values),
        callbacks=callbacks or {},
    )
    return parts.algo.loop(parts, output)


@contextmanager
def recorded(run_dir: Path, progress: Progress) -> Iterator[Recorder]:
    """The record of a run, which is closed at the end.

    If the run ends early, its log says why and how to continue. A Fault or a UserError, which is printed, says so, too.
    """
    recorder, failed = Recorder(run_dir, progress.say), True
    try:
        yield recorder
        failed = False
    except (Fault, UserError) as error:
        *first, last = error.problems if isinstance(error, UserError) else (str(error),)
        problems = [*first, f"{last}; {_how_to_continue(run_dir)}"]
        progress.note(f"failed: {'; '.join(problems)}")
        if isinstance(error, Fault):
            raise Fault(problems[0], error.traceback) from error
        raise UserError(*problems) from error
    except BaseException as error:
        reason = "stopped" if isinstance(error, KeyboardInterrupt) else f"failed: {error!r}"
        progress.say(f"{reason}; {_how_to_continue(run_dir)}")
        raise
    finally:
        recorder.close(failed)


def _how_to_continue(run_dir: Path) -> str:
    paths, command = checkpoints(run_dir).paths(), f"rlmem resume {shell(run_dir)}"
    if not paths:
        return f"there is no checkpoint yet; `{command}` starts from the beginning"
    return f"saved up to step {step_of(paths[-1])}; continue with    {command}"


def conclusion(run_dir: Path, loop: Loop) -> str:
    """The result of a run that reached its end, and what may be done next."""
    stop_at, episodes = loop.evaluation.stop_at, loop.evaluation.episodes
    early = f" (of {loop.total_steps:,}: evaluation.stop_at={stop_at:g} is reached)" if loop.ends_early else ""
    longer = "evaluation.stop_at=null" if early else f"total_steps={2 * loop.total_steps}"
    sample = f"{episodes} episodes each; ± is the standard error of the mean"
    if "held_out" in loop.last_evaluation:
        sample = f"{episodes:,} {loop.algo.answers}"
    return f"""\
done: {loop.collector.steps:,} steps{early}, {loop.updates:,} updates in {loop.elapsed:.0f} s
  mean evaluation {result_text(loop.last_evaluation)} ({sample})
  results lie in   {run_dir}
  evaluate         rlmem eval {shell(run_dir)}
  train longer     rlmem resume {shell(run_dir)} {longer}"""
