"""Train and resume runs: the whole course of a run on one page."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from rich.console import Console

from rlmem.acting.workers import closing
from rlmem.config.compose import Config
from rlmem.config.messages import mistake, shell
from rlmem.loops.base import Loop
from rlmem.loops.callbacks import Callback
from rlmem.parallel import joined, launched, wait_for_first
from rlmem.parallel.start import announce, team
from rlmem.record.loggers import make_loggers
from rlmem.record.recorder import Progress
from rlmem.run.assemble import assemble, choose_device, learning_threads
from rlmem.run.build import make_callbacks
from rlmem.run.make_loop import SILENT, conclusion, make_loop, recorded
from rlmem.run.resume import Fresh, Start, begin, open_run, warm_start
from rlmem.run.stored import fitting, parse_source, require_alone, require_resumable, stored_config
from rlmem.run.summary import announcements, summary
from rlmem.system.failures import as_faults
from rlmem.system.signals import stopping_politely


class Finished(NamedTuple):
    """A run that reached its end.

    run_dir: its directory; None in a process beside the first, which alone writes
    objective: of its loop at the end, for a sweeper
    """

    run_dir: Path | None
    objective: float


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
    if (place := launched()) and place.rank > 0:
        return Finished(None, follow(config))
    values, settings = config.values, config.settings
    called = make_callbacks(config, callbacks)
    parts = assemble(config)
    config, values = parts.config, parts.config.values
    torch.set_num_threads(learning_threads(settings))
    with (
        as_faults(lambda: 0, values),
        closing(parts.env),
        open_run(config, parts, resumed) as (run_dir, start),
        Progress(settings.total_steps, run_dir / "log.txt", start.step, console) as progress,
    ):
        progress.say("\n".join(announcements(config, parts, run_dir)))
        with (
            recorded(run_dir, progress) as recorder,
            as_faults(lambda: start.step, values),
            team(partial(follow, config), settings.trainer.devices, parts.device),
        ):
            loop = make_loop(config, parts, run_dir, recorder, progress, called)
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
        warm_start(parts.config, parts)
        return summary(parts.config, parts, "nowhere: a dry run writes nothing")


def follow(config: Config, port: int | None = None) -> float:
    """Train as a process beside the first, which alone writes and prints; the objective of its loop at the end.

    The first process waits at a port of this machine, or where torchrun says.
    """
    place, device = launched(), choose_device(config.settings.device)
    assert place is not None
    torch.set_num_threads(learning_threads(config.settings))
    with as_faults(lambda: 0, config.values), joined(place, device, None if port is None else announce(port, place)):
        parts = assemble(config)
        loop = make_loop(parts.config, parts, None, SILENT, SILENT)
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
    if isinstance(start, Fresh) and start.weights:
        loop.save()
    loop.run()
