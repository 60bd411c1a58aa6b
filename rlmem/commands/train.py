"""`rlmem train`: one run, or with -m one per combination of values."""

from __future__ import annotations

import argparse
import sys

from rlmem.commands.toolkit import Parser
from rlmem.errors import UserError


def parser() -> Parser:
    made = Parser(
        "train",
        "Train one agent in one environment; with -m, one for every combination of the values given.",
        "memory=ffm env=repeat_previous seed=1",
        "memory=gru env=gym env.id=CartPole-v1 algo.lr=0.001 total_steps=1e5",
        "-m memory=ffm,gru seed=0,1,2",
        "memory=ffm --help        the keys of that option",
    )
    made.add_argument("-m", "--multirun", action="store_true", help="one job per combination of comma-separated values")
    made.add_argument("--dry-run", action="store_true", help="check everything and print the summary only")
    made.add_overrides("group=option or key=value")
    return made


def run(args: argparse.Namespace) -> int:
    if args.multirun:
        return _multirun(args)
    from rlmem.config.compose import load

    config = load(args.overrides)
    from rlmem.run.train import plan, train

    if args.dry_run:
        print(plan(config))
    else:
        train(config)
    return 0


def _multirun(args: argparse.Namespace) -> int:
    from rlmem.parallel import launched
    from rlmem.sweep.multirun import check, launch, plans

    configs = check(args.overrides)
    if (there := launched()) and there.size > 1:
        raise UserError("-m: torchrun starts the processes of one run; e.g. rlmem train -m seed=0,1 trainer.devices=2")
    if args.dry_run:
        print("\n\n".join(plans(configs)))
        return 0
    if failed := launch(args.overrides):
        print(*(f"rlmem: error: job failed: {job}" for job in failed), sep="\n", file=sys.stderr)
        return 1
    return 0
