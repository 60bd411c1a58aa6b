"""`rlmem reproduce`: a table or figure of a paper, run and judged."""

import shlex
from pathlib import Path
from typing import Any

from rlmem.commands.toolkit import Arguments, Parser, integers, out_file, pool_options
from rlmem.config.messages import mistake, shell
from rlmem.system.command import show

PARSER = Parser(
    "reproduce",
    "Run a table or figure of a paper from its shipped file, and show ours beside the paper's numbers. The same\n"
    "command again continues: finished runs are skipped, interrupted ones resumed. `rlmem list experiment` shows\n"
    "what there is.",
    "memoroids/figure4 --dry-run",
    "memoroids/figure4 --cells 'lru/*' --seeds 0    some cells only, and their first seed",
    "ffm/table4 --budget paper --gpus 0,1 --per-gpu 4",
    "ffm/table4 --show                              the table of what has been run so far, or is shipped",
    "rlmem/leaderboard --rows mine=memory=my_memory,memory.hidden_size=64    your own row, with its rank",
    "my_table.yaml --register                       write your expectations down before the first run",
    "memoroids/figure4 --publish results            keep the numbers in results/memoroids/figure4.laptop.csv",
)
PARSER.add_argument("item", metavar="ITEM", help="PAPER/ITEM, or an experiment file of your own")
budgets = "smoke: minutes, proves that it runs; laptop: hours, tests the claim in small; paper: as published (laptop)"
PARSER.add_argument("--budget", default="laptop", metavar="BUDGET", help=budgets)
cells = "only these rows, columns or ROW/COLUMN; * and _ for a space are allowed"
PARSER.add_argument("--cells", nargs="+", default=[], metavar="CELL", help=cells)
seeds = "only these of the budget's seeds, e.g. 0,1"
PARSER.add_argument("--seeds", type=integers, default=(), metavar="SEEDS", help=seeds)
rows = "add rows of your own, such as mine=memory=my_memory,memory.hidden_size=64, and run these alone"
PARSER.add_argument("--rows", nargs="+", default=[], metavar="NAME=KEY=VALUE,...", help=rows)
PARSER.add_argument("--dry-run", action="store_true", help="check and list the cells and their cost only")
time = "first train every cell for a few seconds, to say what its runs cost here; then as --dry-run"
PARSER.add_argument("--time", action="store_true", help=time)
PARSER.add_argument(
    "--show",
    action="store_true",
    help="show what has been run so far, or else the results that are shipped, and run nothing",
)
register = "write the expectations down with today's date, before the first run, and run nothing"
PARSER.add_argument("--register", action="store_true", help=register)
lie = "where reproductions lie (reproduce)"
PARSER.add_argument("--dir", type=Path, default=Path("reproduce"), metavar="DIR", help=lie)
PARSER.add_argument("--publish", type=Path, metavar="DIR", help="also write the numbers to DIR/<item>.<budget>.csv")
page = "also put a leaderboard into this Markdown page, and its picture beside it"
PARSER.add_argument("--page", type=out_file, metavar="FILE", help=page)
PARSER.add_pool("runs", "a run")
PARSER.add_trust()


def run(args: Arguments) -> int:
    from rlmem.evidence import catalog

    if args.register:
        show(catalog.register(args.item, args.budget))
        return 0
    planned = catalog.find(args.item).at(args.budget)
    experiment, options = planned.experiment, pool_options(args, again=_again(args))
    from rlmem.evidence.folder import parse_rows
    from rlmem.evidence.items import runner_of
    from rlmem.evidence.page.groups import DIFFERS, rows_differ
    from rlmem.evidence.records import shipped_records
    from rlmem.evidence.tables import print_outcome, publish
    from rlmem.evidence.verdict import Outcome

    rows = parse_rows(args.rows)
    runner = runner_of(planned, args.dir, rows=rows)
    runner.trust = args.trust
    cells = runner.planned.cells(args.cells, args.seeds)
    if rows:
        twin_of = runner.planned.twin_of
        cells = [cell for cell in cells if twin_of.get(cell.row, cell.row) in rows]
        if not cells:
            raise mistake(f"--cells {' '.join(args.cells)}", "of --rows, no such cell", accepted=experiment.columns)
    if args.page and experiment.leaderboard is None:
        problem, example = (
            "only items with a leaderboard have one",
            f"rlmem reproduce rlmem/leaderboard --page {args.page}",
        )
        raise mistake(f"--page {args.page}", problem, example=example)
    if args.publish and (own := runner.planned.own_rows):
        problem = f"the rows {', '.join(own)} are not in its file; copy it and add them there"
        example = f"rlmem reproduce my_table.yaml --publish {args.publish}"
        raise mistake(f"--publish {args.publish}", problem, example=example)
    if args.time:
        runner.time(cells, show)
    if args.dry_run or args.time:
        show(runner.dry_run(cells))
        return 0
    if args.show and (given := args.cells or args.seeds or args.rows):
        flag = next(f"--{name}" for name in ("cells", "seeds", "rows") if getattr(args, name) is given)
        raise mistake(flag, "--show shows all that there is", example=f"rlmem reproduce {shell(args.item)} --show")
    if args.show and not runner.runs.is_dir():
        shipped = [] if experiment.text or args.publish else shipped_records(planned.name, args.budget)
        if not shipped:
            again = f"rlmem reproduce {shell(args.item)} --budget {args.budget}"
            raise mistake(str(runner.runs), "nothing has been run there", example=again)
        outcome = Outcome(planned, shipped)
        print_outcome(outcome, f"shipped with rlmem; none in {runner.runs}")
        _write_page(outcome, args.page)
        return 0
    if args.show:
        outcome, code = runner.written(), 0
    else:
        from rlmem.commands.cli import main

        catalog.require_registered(args.item, runner.planned)
        outcome, code = runner.reproduce(cells, options, lambda line: main(shlex.split(line)))
    print_outcome(outcome, f"in {runner.folder}")
    if planned.is_trained and (keys := rows_differ(outcome.ours)):
        show(f"{DIFFERS}: {keys}")
    if args.publish:
        publish(outcome, args.publish)
    _write_page(outcome, args.page)
    return code


def _write_page(outcome: Any, file: Path | None) -> None:
    """Put the leaderboard into the page that --page names, if it does."""
    if file is None:
        return
    from rlmem.evidence.page import leaderboard

    for written in leaderboard.page(outcome, file):
        show(f"wrote {written}")


def _again(args: Arguments) -> str:
    """The command that goes on with this reproduction."""
    parts = ["rlmem reproduce", shell(args.item), f"--budget {args.budget}"]
    parts += [f"--cells {shell(*args.cells)}"] if args.cells else []
    parts += [f"--seeds {','.join(map(str, args.seeds))}"] if args.seeds else []
    parts += [f"--rows {shell(*args.rows)}"] if args.rows else []
    parts += [f"--dir {shell(args.dir)}"] if args.dir != PARSER.get_default("dir") else []
    parts += [f"--jobs {args.jobs}"] if args.jobs else []
    parts += [f"--gpus {','.join(args.gpus)}"] if args.gpus else []
    parts += [f"--per-gpu {args.per_gpu}"] if args.per_gpu else []
    parts += ["--trust"] if args.trust else []
    return " ".join(parts)
