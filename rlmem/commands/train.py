"""`rlmem train`: one run, or with -m one per combination of values."""

from rlmem.commands.toolkit import Arguments, Parser
from rlmem.errors import UserError
from rlmem.system.command import show

PARSER = Parser(
    "train",
    "Train one agent in one environment; with -m, one for every combination of the values given.",
    "memory=ffm env=repeat_previous seed=1",
    "memory=gru env=gym env.id=CartPole-v1 algo.lr=0.001 total_steps=1e5",
    "-m memory=ffm,gru seed=0,1,2",
    "memory=ffm --help        the keys of that option",
)
PARSER.add_argument("-m", "--multirun", action="store_true", help="one job per combination of comma-separated values")
PARSER.add_argument("--dry-run", action="store_true", help="check everything and print the summary only")
PARSER.add_overrides("group=option or key=value")


def run(args: Arguments) -> int:
    if args.multirun:
        return _multirun(args)
    from rlmem.config.compose import load

    config = load(args.overrides)
    from rlmem.run.train import plan, train

    if args.dry_run:
        show(plan(config))
    else:
        train(config)
    return 0


def _multirun(args: Arguments) -> int:
    from rlmem.parallel import launched
    from rlmem.sweep.multirun import check, launch, plans

    configs = check(args.overrides)
    if (there := launched()) and there.size > 1:
        raise UserError("-m: torchrun starts the processes of one run; e.g. rlmem train -m seed=0,1 trainer.devices=2")
    if args.dry_run:
        show("\n\n".join(plans(configs)))
        return 0
    failed = launch(args.overrides)
    for job in failed:
        show(f"rlmem: error: job failed: {job}", error=True)
    return 1 if failed else 0
