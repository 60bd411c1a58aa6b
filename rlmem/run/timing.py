"""What runs take on this machine: each is begun, and a few of its iterations and one evaluation are timed."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import torch

from rlmem import __version__
from rlmem.acting.workers import closing
from rlmem.config.compose import load
from rlmem.core.hardware import cache_folders, cores, own_folder, processor
from rlmem.core.received import loads
from rlmem.loops.base import Loop
from rlmem.run.assemble import assemble, learning_threads
from rlmem.run.train import SILENT, make_loop

SECONDS = 5.0
"""How long the iterations of a run are timed."""
PATIENCE = 12
"""Learning must have begun within so many times as long; else what was timed by then must do."""
SOON, SHORT = 500, 20
"""At the latest, replays are learnt from after so many steps; rows of metrics are so many times shorter."""


class Timed(NamedTuple):
    """A run that was timed: its overrides but the seed, its steps, and the seconds that all of it takes."""

    overrides: tuple[str, ...]
    steps: int
    seconds: float


def measure(lines: Iterable[str], seconds: float = SECONDS) -> Timed:
    """Time a run with these overrides, and keep the result for `timed`. Raises UserError for what cannot run.

    Learning from a replay begins sooner than in the run; its steps before learning count with the time that they take.
    """
    lines = tuple(lines)
    algo = load(lines).values["algo"]
    sooner = [f"algo.{key}={min(algo[key], SOON)}" for key in ("learning_starts", "random_steps") if key in algo]
    sooner += [f"algo.record_every={max(1, algo['record_every'] // SHORT)}"] if "record_every" in algo else []
    config = load([*lines, *sooner])
    steps, every = config.settings.total_steps, config.settings.evaluation.every
    before = torch.get_num_threads()
    torch.set_num_threads(learning_threads(config.settings))
    try:
        parts = assemble(config)
        with closing(parts.env):
            loop = make_loop(parts, None, SILENT, SILENT)
            alone = _each(loop, steps, lambda spent: not loop.updates and spent < PATIENCE * seconds)
            learning = _each(loop, steps, lambda spent: spent < seconds)
            began = perf_counter()
            loop.evaluate()
            evaluation = perf_counter() - began
    finally:
        torch.set_num_threads(before)
    before_learning = min(steps, algo.get("learning_starts", 0))
    evaluations = 1 + (steps - 1) // every if every else 1
    spent = alone * before_learning + learning * (steps - before_learning) + evaluation * evaluations
    _keep(timing := Timed(lines, steps, spent))
    return timing


def _each(loop: Loop, steps: int, on: Callable[[float], bool]) -> float:
    """Seconds of an environment step of a loop, which is turned while it has `steps` before it and `on` holds.

    on: is given the seconds that were spent
    """
    first, began = loop.collector.steps, perf_counter()
    while loop.collector.steps < steps and on(perf_counter() - began):
        loop.iterate()
    return (perf_counter() - began) / max(1, loop.collector.steps - first)


@cache
def timed() -> dict[tuple[str, ...], Timed]:
    """What was measured on this machine with this version of rlmem, by the overrides."""
    return {timing.overrides: timing for folder in cache_folders() for timing in _read(folder / _name())}


def _keep(timing: Timed) -> None:
    """Add a line to the file of this machine."""
    for folder in cache_folders():
        with suppress(OSError), open(own_folder(folder) / _name(), "a", encoding="utf-8") as file:
            file.write(json.dumps(timing) + "\n")
            break
    timed.cache_clear()


def _read(path: Path) -> Iterator[Timed]:
    with suppress(OSError, ValueError, TypeError):
        for line in path.read_text(encoding="utf-8").splitlines():
            overrides, steps, seconds = loads(line)
            yield Timed(tuple(overrides), int(steps), float(seconds))


def _name() -> str:
    about = "\n".join((processor(), str(cores()), torch.__version__, __version__))
    return f"timed-{hashlib.sha256(about.encode()).hexdigest()[:16]}"
