"""`rlmem reproduce`: a table or figure of a paper, run and judged."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from rlmem.commands.toolkit import Parser, device_list, integer_from
from rlmem.config.messages import sentence, shell
from rlmem.errors import UserError


def parser() -> Parser:
    made = Parser(
        "reproduce",
        "Run a table or figure of a paper from its shipped file, and show ours beside the paper's numbers. The same\n"
        "command again goes on: what is done is skipped, what is half done is resumed. `rlmem list experiment` shows\n"
        "what there is.",
        "memoroids/figure4 --dry-run",
        "memoroids/figure4 --cells 'lru/*'              some cells only",
        "ffm/table4 --budget paper --gpus 0,1 --per-gpu 4",
        "ffm/table4 --show                              the table of what has been run so far",
        "memoroids/figure4 --publish results            keep the numbers in results/memoroids/figure4.laptop.csv",
    )
    made.add_argument("item", metavar="ITEM", help="PAPER/ITEM, or an experiment file of your own")
    budgets = (
        "smoke: minutes, proves that it runs; laptop: hours, tests the claim in small; paper: as published (laptop)"
    )
    made.add_argument("--budget", default="laptop", metavar="BUDGET", help=budgets)
    cells = "rows, columns or ROW/COLUMN to add to what is run there; * and _ for a space are allowed"
    made.add_argument("--cells", nargs="+", default=[], metavar="CELL", help=cells)
    made.add_argument("--dry-run", action="store_true", help="check and list the cells and their cost only")
    made.add_argument("--show", action="store_true", help="show what has been run so far, and run nothing")
    made.add_argument(
        "--dir", type=Path, default=Path("reproduce"), metavar="DIR", help="where reproductions lie (reproduce)"
    )
    made.add_argument("--publish", type=Path, metavar="DIR", help="also write the numbers to DIR/<item>.<budget>.csv")
    made.add_argument("--jobs", type=integer_from(1), metavar="N", help="runs at once (cores / threads of a run)")
    made.add_argument("--gpus", type=device_list, default=(), metavar="0,1", help="spread the runs over these GPUs")
    made.add_argument("--per-gpu", type=integer_from(1), metavar="N", help="runs at once on each of --gpus (1)")
    made.add_argument("--retry-failed", action="store_true", help="give failed runs all their attempts again")
    made.add_trust()
    return made


def run(args: argparse.Namespace) -> int:
    from rlmem.reproduce import catalog

    name, experiment = catalog.find(args.item)
    experiment.budget(args.budget)
    if args.per_gpu and not args.gpus:
        raise UserError(f"--per-gpu {args.per_gpu}: on which? needs --gpus; e.g. --gpus 0,1 --per-gpu 2")
    from rlmem.reproduce.run import runner_of
    from rlmem.reproduce.tables import print_outcome
    from rlmem.reproduce.write import publish, write

    runner = runner_of(name, experiment, args.budget, args.dir)
    where = runner.where
    if args.dry_run:
        print(runner.dry_run(args.cells))
        return 0
    if args.show:
        if not where.runs.is_dir():
            again = f"rlmem reproduce {shell(args.item)} --budget {args.budget}"
            raise UserError(sentence(str(where.runs), "nothing has been run there", example=again))
        outcome, code = runner.so_far(), 0
        write(outcome, where.folder)
    else:
        from rlmem.commands.cli import main
        from rlmem.sweep.run import Options

        options = Options(args.jobs, args.gpus, args.per_gpu or 1, retry_failed=args.retry_failed, trust=args.trust)
        outcome, code = runner.reproduce(args.cells, options, lambda line: main(shlex.split(line)))
    print_outcome(outcome, where.folder)
    if args.publish:
        publish(outcome, args.publish)
    return code
