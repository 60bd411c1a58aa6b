"""A training run in the hands of a benchmark, which turns its loop."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from rlmem.config.compose import load
from rlmem.loops.base import Loop
from rlmem.record.progress import Progress
from rlmem.record.recorder import Recorder
from rlmem.run.assemble import assemble
from rlmem.run.make_loop import make_loop


def training_loop(overrides: Sequence[str], run_dir: Path) -> Loop:
    """The loop of a run with these overrides. It records as any run does, and prints nothing.

    run_dir: an existing folder
    """
    config = load(overrides)
    quiet = Progress(config.settings.total_steps, run_dir / "log.txt", console=Console(quiet=True))
    parts = assemble(config)
    return make_loop(parts.config, parts, run_dir, Recorder(run_dir, quiet.say), quiet)
