"""`rlmem sweep`: many runs that survive anything."""

from __future__ import annotations

import argparse
from pathlib import Path

from rlmem.commands.toolkit import Parser, device_list, integer_from
from rlmem.config.messages import nearest, sentence, shell
from rlmem.errors import UserError


def parser() -> Parser:
    made = Parser(
        "sweep",
        "Run one job per combination of values, each in a process and a run directory of its own. The same command\n"
        "again goes on with the same sweep: what is done is skipped, what is half done is resumed.",
        "memory=ffm,gru seed=0,1,2 env=repeat_first",
        "memory=ffm,gru memory.ffm.trace_size=16,32       a key of one option",
        '--pair "env=repeat_first,autoencode algo.gamma=0.9,0.99" seed=0,1',
        "my_sweep.yaml --jobs 4",
        "sweeps/my_sweep --retry-failed                   go on with a directory",
        "status sweeps/my_sweep --watch",
        "--trials 20 algo.lr='tag(log, interval(1e-5,1e-2))' memory=ffm,gru",
    )
    made.add_argument(
        "what", nargs="*", metavar="WHAT", help="key=value,value ... with or without FILE.yaml; DIR; or: status DIR"
    )
    made.add_argument("--dir", type=Path, metavar="DIR", help="the directory of the sweep (sweeps/<name>)")
    made.add_argument("--pair", action="append", default=[], metavar='"k=a,b k=c,d"', help="values that go together")
    made.add_argument("--jobs", type=integer_from(1), metavar="N", help="jobs at once (cores / threads of a job)")
    made.add_argument("--gpus", type=device_list, default=(), metavar="0,1", help="spread the jobs over these GPUs")
    made.add_argument("--per-gpu", type=integer_from(1), metavar="N", help="jobs at once on each of --gpus (1)")
    made.add_argument("--retries", type=integer_from(0), default=1, metavar="K", help="new attempts after failures (1)")
    made.add_argument("--retry-failed", action="store_true", help="give failed jobs all their attempts again")
    made.add_argument("--dry-run", action="store_true", help="check and list the jobs only")
    made.add_argument("--trials", type=integer_from(1), metavar="N", help="search with Optuna, so many jobs in all")
    made.add_argument(
        "--sampler", choices=["tpe", "random"], help="of a search: learn from the jobs so far, or not (tpe)"
    )
    direction = made.add_mutually_exclusive_group()
    direction.add_argument("--maximize", action="store_true", help="search for a high return (the default)")
    direction.add_argument("--minimize", action="store_true", help="search for a low one")
    made.add_argument("--json", action="store_true", help="status: print JSON only")
    made.add_argument("--watch", action="store_true", help="status: keep the table up to date")
    made.add_trust()
    return made


def run(args: argparse.Namespace) -> int:
    if args.what[:1] == ["status"]:
        return _status(args)
    places = [text for text in args.what if "=" not in text or Path(text).is_dir()]
    place, overrides = _place(places), [text for text in args.what if text not in places]
    if args.per_gpu and not args.gpus:
        raise UserError(f"--per-gpu {args.per_gpu}: on which? needs --gpus; e.g. --gpus 0,1 --per-gpu 2")
    from rlmem.sweep.run import Options, default_folder, dry_run, sweep
    from rlmem.sweep.spec import EXAMPLE, Direction, specify

    options = Options(args.jobs, args.gpus, args.per_gpu or 1, args.retries, args.retry_failed, args.trials, args.trust)
    if place is not None and place.is_dir():
        flags = {"--dir": args.dir, "--dry-run": args.dry_run, "--maximize": args.maximize, "--minimize": args.minimize}
        flags["--sampler"] = args.sampler
        if extra := [*overrides, *args.pair, *(flag for flag, given in flags.items() if given)]:
            example = f"rlmem sweep {shell(place)}"
            raise UserError(sentence(extra[0], f"{place} already says what its jobs are", example=example))
        return sweep(None, place, options)
    if place is None and not overrides and not args.pair:
        raise UserError(sentence("rlmem sweep", "nothing to sweep", example=EXAMPLE))
    if args.trials is None and (args.maximize or args.minimize or args.sampler):
        raise UserError("rlmem sweep: --maximize, --minimize and --sampler are for a search; e.g. --trials 20")
    direction: Direction | None = "minimize" if args.minimize else "maximize" if args.trials else None
    spec = specify(place, overrides, args.pair, direction, args.sampler or "tpe")
    folder = args.dir or default_folder(spec, place, whole=not overrides and not args.pair)
    if args.dry_run:
        print(dry_run(spec, folder))
        return 0
    return sweep(spec, folder, options)


def _place(given: list[str]) -> Path | None:
    """The sweep file or directory among the arguments."""
    example = "rlmem sweep memory=ffm,gru seed=0,1,2"
    if len(given) > 1:
        if near := nearest(given[0], ["status"]):
            raise UserError(
                sentence(given[0], "no such sweep file", near=near, example=f"rlmem sweep status {shell(given[1])}")
            )
        raise UserError(sentence(given[1], "expected key=value after the file", example=example))
    for text in given:
        path = Path(text)
        if not path.is_dir() and not path.is_file():
            near = nearest(text, ["status", *(str(found) for found in path.parent.glob("*"))])
            what, accepted = "no such sweep file or directory", ["key=value", "FILE.yaml", "DIR"]
            raise UserError(sentence(text, what, near=near, accepted=accepted, example=example))
        return path
    return None


def _status(args: argparse.Namespace) -> int:
    example = "rlmem sweep status sweeps/mine"
    if len(args.what) != 2:
        raise UserError(sentence("rlmem sweep status", "expected one directory", example=example))
    from rlmem.sweep.manifest import holds_sweep
    from rlmem.sweep.status import as_json, show, watch

    folder = Path(args.what[1])
    if not holds_sweep(folder):
        raise UserError(sentence(str(folder), "holds no sweep", example=example))
    if args.json:
        print(as_json(folder))
    elif args.watch:
        watch(folder)
    else:
        show(folder)
    return 0
