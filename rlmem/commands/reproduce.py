"""`rlmem reproduce`: run a table or figure of a paper, and judge the result."""

import shlex
from pathlib import Path

from rlmem.commands.toolkit import Dir, Flag, OutFile, PoolFlags, Seeds, SomeWords, Text
from rlmem.config.messages import mistake, shell
from rlmem.core import command

TRAINS = True


def run(
    item: Text,
    *,
    budget: Text = "laptop",
    cells: SomeWords = (),
    seeds: Seeds = (),
    rows: SomeWords = (),
    dry_run: Flag = False,
    show: Flag = False,
    judge: Flag = False,
    register: Flag = False,
    dir: Dir | None = None,
    publish: Dir | None = None,
    page: OutFile | None = None,
    pool: PoolFlags,
    again: str,
) -> int:
    """Run a table or figure of a paper from its shipped file, and show ours beside the paper's numbers. The same
    command again continues: finished runs are skipped, interrupted ones resumed. `rlmem list experiment` shows
    what there is.

    item ITEM: PAPER/ITEM, or an experiment file of your own
    budget BUDGET: smoke: minutes, proves that it runs; laptop: hours, tests the claim in small; paper: as published
    cells CELL: only these rows, columns or ROW/COLUMN; * and _ for a space are allowed
    seeds: only these of the budget's seeds, e.g. 0,1
    rows NAME=KEY=VALUE,...: add rows of your own and run only these, such as
        mine=memory=my_memory,memory.hidden_size=64
    dry_run: check and list the cells and their cost only
    show: show what has been run so far, or else the results that are shipped, and run nothing
    judge: end with the exit code of the verdict, see docs/experiments.md#verdicts
    register: write the expectations down with today's date, before the first run, and run nothing
    dir: where reproductions lie (reproduce)
    publish: also write the numbers to DIR/<item>.<budget>.csv
    page: also put a leaderboard into this Markdown page, and its picture beside it

    Examples:
        memoroids/figure4 --dry-run
        memoroids/figure4 --cells 'lru/*' --seeds 0    some cells only, and their first seed
        ffm/table4 --budget paper --gpus 0,1 --per-gpu 4
        ffm/table4 --show                              the table of what has been run so far, or is shipped
        rlmem/leaderboard --rows mine=memory=my_memory,memory.hidden_size=64    your own row, with its rank
        my_table.yaml --register                       write your expectations down before the first run
        memoroids/figure4 --publish results            keep the numbers in results/memoroids/figure4.laptop.csv
    """
    from rlmem.evidence import catalog

    if register:
        command.show(catalog.register(item, budget))
        return 0
    planned = catalog.find(item).at(budget)
    experiment, options = planned.experiment, pool.options(again=again)
    from rlmem.evidence.folder import parse_rows
    from rlmem.evidence.items import runner_of
    from rlmem.evidence.page import leaderboard
    from rlmem.evidence.page.groups import DIFFERS, rows_differ
    from rlmem.evidence.records import shipped_records
    from rlmem.evidence.tables import print_outcome
    from rlmem.evidence.tables import publish as publish_outcome
    from rlmem.evidence.verdict import EXIT_CODES, Outcome

    own_rows = parse_rows(rows)
    runner = runner_of(planned, dir or Path("reproduce"), rows=own_rows)
    runner.trust = pool.trust
    jobs = runner.planned.cells(cells, seeds)
    if own_rows:
        twin_of = runner.planned.twin_of
        jobs = [cell for cell in jobs if twin_of.get(cell.row, cell.row) in own_rows]
        if not jobs:
            raise mistake(f"--cells {' '.join(cells)}", "of --rows, no such cell", accepted=experiment.columns)
    if page and experiment.leaderboard is None:
        example = f"rlmem reproduce rlmem/leaderboard --page {page}"
        raise mistake(f"--page {page}", "only items with a leaderboard have one", example=example)
    if publish and (own := runner.planned.own_rows):
        problem = f"the rows {', '.join(own)} are not in its file; copy it and add them there"
        example = f"rlmem reproduce my_table.yaml --publish {publish}"
        raise mistake(f"--publish {publish}", problem, example=example)
    if dry_run:
        command.show(runner.dry_run(jobs))
        return 0
    chosen = {"--cells": cells, "--seeds": seeds, "--rows": rows}
    if show and (flags := [flag for flag, value in chosen.items() if value]):
        raise mistake(flags[0], "--show shows all that there is", example=f"rlmem reproduce {shell(item)} --show")
    if show and not runner.runs.is_dir():
        shipped = [] if experiment.text or publish else shipped_records(planned.name, budget)
        if not shipped:
            example = f"rlmem reproduce {shell(item)} --budget {budget}"
            raise mistake(str(runner.runs), "nothing has been run there", example=example)
        outcome, code, where = Outcome(planned, shipped), 0, f"shipped with rlmem; none in {runner.runs}"
    elif show:
        outcome, code, where = runner.written(), 0, f"in {runner.folder}"
    else:
        from rlmem.commands.cli import main

        catalog.require_registered(item, runner.planned)
        outcome, code = runner.reproduce(jobs, options, lambda line: main(shlex.split(line)))
        where = f"in {runner.folder}"
    print_outcome(outcome, where)
    if planned.is_trained and (keys := rows_differ(outcome.ours)):
        command.show(f"{DIFFERS}: {keys}")
    if publish:
        publish_outcome(outcome, publish)
    for written in leaderboard.page(outcome, page) if page else ():
        command.show(f"wrote {written}")
    return code or (EXIT_CODES[outcome.verdict.word] if judge else 0)
