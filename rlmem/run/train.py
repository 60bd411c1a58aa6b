"""Train and resume runs: the whole course of a run on one page."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing
from functools import partial
from pathlib import Path

import torch

from rlmem.config.compose import Config
from rlmem.config.messages import shell
from rlmem.loops.base import Loop
from rlmem.parallel import joined, launched, wait_for_first
from rlmem.parallel.start import announce, team
from rlmem.record.loggers import make_loggers
from rlmem.record.progress import Progress
from rlmem.run.assemble import Parts, assemble
from rlmem.run.ending import conclusion, recorded
from rlmem.run.experiment import require_resumable
from rlmem.run.hardware import choose_device, learning_threads
from rlmem.run.make_loop import SILENT, make_loop
from rlmem.run.resume import Fresh, Start, begin, open_run, reopen_run, warm_start
from rlmem.run.stored import fitting, require_alone, stored_config
from rlmem.run.summary import announcements, summary
from rlmem.system.failures import as_faults
from rlmem.system.signals import stopping_politely

OpenRun = Callable[[Config, Parts], AbstractContextManager[tuple[Path, Start]]]
"""Locks the directory of a run and yields it, with where the run begins."""


def train(config: Config) -> float:
    """Run `config` in its run directory; returns the `objective` of its loop at the end, for a sweeper.

    `on_exists` says what happens if that directory holds a run: error: refuse; resume: continue it; new: leave it and
    add a number to the name. Raises UserError for choices that do not go together, before anything is written.
    """
    return _train(config, open_run)


def resume(run_dir: Path, overrides: Sequence[str], trust: bool = False) -> float:
    """Continue the run in `run_dir` from its newest intact checkpoint, exactly where it was.

    run_dir: the run directory
    overrides: `key=value` of RESUMABLE keys
    trust: accept a configuration that another user wrote or edited (`stored_config`)

    Raises UserError for other overrides, if another process is training the run, if every checkpoint is damaged, or if
    another user wrote the configuration and it names code outside rlmem.
    """
    require_resumable(overrides, f"rlmem resume {shell(run_dir)} total_steps=2000000")
    require_alone(run_dir)
    return _train(stored_config(run_dir, overrides, trust), partial(reopen_run, run_dir))


def plan(config: Config) -> str:
    """The summary of a run that is not started; raises UserError as `train` does."""
    parts = assemble(config, dry_run=True)
    with closing(parts.env):
        warm_start(config, parts)
        return summary(config, parts, "nowhere: a dry run writes nothing")


def _train(config: Config, open_run: OpenRun) -> float:
    """The course of every run: assemble and check, open the directory, announce, restore, learn, conclude."""
    if (place := launched()) and place.rank > 0:
        return follow(config)
    values, settings, parts = config.values, config.settings, assemble(config)
    torch.set_num_threads(learning_threads(settings))
    with (
        as_faults(lambda: 0, values),
        open_run(config, parts) as (run_dir, start),
        Progress(settings.total_steps, run_dir / "log.txt", start.step) as progress,
        closing(parts.env),
    ):
        progress.say("\n".join(announcements(config, parts, run_dir)))
        with (
            recorded(run_dir, progress) as recorder,
            as_faults(lambda: start.step, values),
            team(partial(follow, config), settings.trainer.devices, parts.device),
        ):
            loop = make_loop(config, parts, run_dir, recorder, progress)
            with fitting(run_dir):
                begin(loop, start)
            if line := str(start):
                progress.say(line)
            with stopping_politely(loop), as_faults(lambda: loop.collector.steps, values):
                recorder.attach(make_loggers(values, run_dir, progress.say))
                _learn(loop, start)
        progress.say(conclusion(run_dir, loop))
    return loop.objective()


def follow(config: Config, port: int | None = None) -> float:
    """Train as a process beside the first, which alone writes and prints; returns what `train` does.

    config: the configuration of the run
    port: the port on this machine where the first process waits; None: torchrun says where
    """
    place, device = launched(), choose_device(config.settings.device)
    assert place is not None
    torch.set_num_threads(learning_threads(config.settings))
    with as_faults(lambda: 0, config.values), joined(place, device, None if port is None else announce(port, place)):
        parts = assemble(config)
        loop = make_loop(config, parts, None, SILENT, SILENT)
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
