"""The process of a job: it trains, and ends when its parent does. Arguments: the parent's PID, then overrides."""

import sys
from collections.abc import Sequence

from rlmem.system.command import run_training
from rlmem.system.signals import die_with


def main() -> int:
    """Train as `rlmem train` does; returns the exit code."""
    parent, *overrides = sys.argv[1:]
    die_with(int(parent))
    return run_training(lambda: _train(overrides))


def _train(overrides: Sequence[str]) -> int:
    from rlmem.config.compose import load

    config = load(overrides)
    from rlmem.run.train import train

    train(config)
    return 0
