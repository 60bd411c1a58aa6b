"""`rlmem train`: train one agent, or with -m one per combination of values."""

from collections.abc import Sequence

from rlmem.commands.toolkit import Flag, Overrides
from rlmem.core.command import show
from rlmem.core.errors import UserError

TRAINS = True


def run(overrides: Overrides, *, multirun: Flag = False, dry_run: Flag = False) -> int:
    """Train one agent in one environment; with -m, one for every combination of the values given.

    overrides: group=option or key=value
    multirun -m: one job per combination of comma-separated values
    dry_run: check everything and print the summary only; with -m, list the jobs

    Examples:
        memory=ffm env=repeat_previous seed=1
        memory=gru env=gym env.id=CartPole-v1 algo.lr=0.001 total_steps=1e5
        -m memory=ffm,gru seed=0,1,2
        memory=ffm --help        the keys of that option
    """
    if multirun:
        return _multirun(overrides, dry_run)
    from rlmem.config.compose import load

    config = load(overrides)
    from rlmem.run.train import plan, train

    if dry_run:
        show(plan(config))
    else:
        train(config)
    return 0


def _multirun(overrides: Sequence[str], dry_run: bool) -> int:
    from rlmem.core.parallel import launched
    from rlmem.jobs.multirun import check, launch

    configs = check(overrides)
    if (there := launched()) and there.size > 1:
        raise UserError("-m: torchrun starts the processes of one run; e.g. rlmem train -m seed=0,1 trainer.devices=2")
    if dry_run:
        lines = [f"{number}  {' '.join(config.overrides) or '(defaults)'}" for number, config in enumerate(configs)]
        show("\n".join([*lines, f"{len(configs)} jobs"]))
        return 0
    failed = launch(overrides)
    for job in failed:
        show(f"rlmem: error: job failed: {job}", error=True)
    return 1 if failed else 0
