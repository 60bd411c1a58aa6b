"""`rlmem sweep`: many runs, which the same command continues after an interruption."""

from pathlib import Path

from rlmem.commands.toolkit import Arguments, Parser, directory_of_status, integer_from, pool_options, refuse_changes
from rlmem.config.messages import mistake, nearest, shell
from rlmem.errors import UserError
from rlmem.system.command import show

SPECIFYING = ("dir", "dry_run", "maximize", "minimize", "sampler")
"""The flags that specify a new sweep, beside --pair."""

PARSER = Parser(
    "sweep",
    "Run one job per combination of values, each in a process and a run directory of its own. The same command\n"
    "again continues the sweep: finished jobs are skipped, interrupted ones resumed.",
    "memory=ffm,gru seed=0,1,2 env=repeat_first",
    "memory=ffm,gru memory.ffm.trace_size=16,32       a key of one option",
    '--pair "env=repeat_first,autoencode algo.gamma=0.9,0.99" seed=0,1',
    "my_sweep.yaml --jobs 4",
    "sweeps/my_sweep --retry-failed                   continue a directory",
    "status sweeps/my_sweep --watch",
    "--trials 20 algo.lr='tag(log, interval(1e-5,1e-2))' memory=ffm,gru",
)
what = "key=value,value ... with or without FILE.yaml; DIR; or: status DIR"
PARSER.add_argument("what", nargs="*", metavar="WHAT", help=what)
PARSER.add_argument("--dir", type=Path, metavar="DIR", help="the directory of the sweep (sweeps/<name>)")
PARSER.add_argument("--pair", action="append", default=[], metavar='"k=a,b k=c,d"', help="values that go together")
PARSER.add_pool("jobs", "a job")
PARSER.add_argument("--retries", type=integer_from(0), default=1, metavar="K", help="new attempts after failures (1)")
PARSER.add_argument("--dry-run", action="store_true", help="check and list the jobs only")
PARSER.add_argument("--trials", type=integer_from(1), metavar="N", help="search with Optuna, N jobs in all")
sampler = "of a search: tpe learns from earlier jobs, random does not (tpe)"
PARSER.add_argument("--sampler", choices=["tpe", "random"], help=sampler)
direction = PARSER.add_mutually_exclusive_group()
direction.add_argument("--maximize", action="store_true", help="search for a high return (the default)")
direction.add_argument("--minimize", action="store_true", help="search for a low return")
PARSER.add_argument("--json", action="store_true", help="status: print JSON only")
PARSER.add_argument("--watch", action="store_true", help="status: keep the table up to date")
PARSER.add_trust()


def run(args: Arguments) -> int:
    if args.what[:1] == ["status"]:
        _print_status(args)
        return 0
    places = [text for text in args.what if "=" not in text or Path(text).is_dir()]
    place, overrides = _place(places), [text for text in args.what if text not in places]
    options = pool_options(args, retries=args.retries, trials=args.trials)
    from rlmem.sweep.run import default_folder, dry_run, sweep
    from rlmem.sweep.spec import EXAMPLE, Direction, specify

    if place is not None and place.is_dir():
        refuse_changes(place, "jobs", args, SPECIFYING, others=[*overrides, *args.pair])
        return sweep(None, place, options)
    if place is None and not overrides and not args.pair:
        raise mistake("rlmem sweep", "nothing to sweep", example=EXAMPLE)
    if args.trials is None and (args.maximize or args.minimize or args.sampler):
        raise UserError("rlmem sweep: --maximize, --minimize and --sampler are for a search; e.g. --trials 20")
    direction: Direction = "minimize" if args.minimize else "maximize" if args.trials else None
    spec = specify(place, overrides, args.pair, direction, args.sampler or "tpe")
    folder = args.dir or default_folder(spec, place, whole=not overrides and not args.pair)
    if args.dry_run:
        show(dry_run(spec, folder))
        return 0
    return sweep(spec, folder, options)


def _place(given: list[str]) -> Path | None:
    """The sweep file or directory among the arguments."""
    if not given:
        return None
    first, *more = given
    path, example = Path(first), "rlmem sweep memory=ffm,gru seed=0,1,2"
    if more and (near := nearest(first, ["status"])):
        raise mistake(first, "no such sweep file", near=near, example=f"rlmem sweep status {shell(more[0])}")
    if more:
        raise mistake(more[0], "expected key=value after the file", example=example)
    if not path.is_dir() and not path.is_file():
        near = nearest(first, ["status", *map(str, path.parent.glob("*"))])
        what, accepted = "no such sweep file or directory", ["key=value", "FILE.yaml", "DIR"]
        raise mistake(first, what, near=near, accepted=accepted, example=example)
    return path


def _print_status(args: Arguments) -> None:
    folder = directory_of_status("sweep", args.what[1:], "sweeps/mine")
    from rlmem.sweep.manifest import holds_sweep
    from rlmem.sweep.status import as_json, print_table, watch

    if not holds_sweep(folder):
        raise mistake(str(folder), "holds no sweep", example="rlmem sweep status sweeps/mine")
    if args.json:
        show(as_json(folder))
    elif args.watch:
        watch(folder)
    else:
        print_table(folder)
