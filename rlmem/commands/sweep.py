"""`rlmem sweep`: train many agents; after an interruption, the same command continues."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from rlmem.commands.toolkit import (
    Count,
    Dir,
    Flag,
    Natural,
    PoolFlags,
    Repeated,
    Words,
    directory_of_status,
    refuse_changes,
)
from rlmem.config.messages import mistake, nearest, shell
from rlmem.core.command import show
from rlmem.core.errors import UserError

TRAINS = True


def run(
    what: Words,
    *,
    dir: Dir | None = None,
    pair: Repeated = (),
    pool: PoolFlags,
    retries: Natural = 1,
    dry_run: Flag = False,
    trials: Count | None = None,
    sampler: Literal["tpe", "random"] | None = None,
    maximize: Flag = False,
    minimize: Flag = False,
    json: Flag = False,
) -> int:
    """Run one job per combination of values, each in a process and a run directory of its own. The same command
    again continues the sweep: finished jobs are skipped, interrupted ones resumed.

    what WHAT: key=value,value ... with or without FILE.yaml; DIR; or: status DIR
    dir: the directory of the sweep (sweeps/<name>)
    pair "k=a,b k=c,d": values that go together
    retries K: new attempts after failures
    dry_run: check and list the jobs only
    trials: search with Optuna, N jobs in all
    sampler: of a search: tpe learns from earlier jobs, random does not (tpe)
    maximize: search for a high return (the default)
    minimize: search for a low return
    json: status: print JSON only

    Examples:
        memory=ffm,gru seed=0,1,2 env=repeat_first
        memory=ffm,gru memory.ffm.trace_size=16,32       a key of one option
        --pair "env=repeat_first,autoencode algo.gamma=0.9,0.99" seed=0,1
        my_sweep.yaml --jobs 4
        sweeps/my_sweep --retry-failed                   continue a directory
        status sweeps/my_sweep
        --trials 20 algo.lr='tag(log, interval(1e-5,1e-2))' memory=ffm,gru
    """
    if what[:1] == ["status"]:
        _print_status(what[1:], json)
        return 0
    if maximize and minimize:
        raise UserError("rlmem sweep: --maximize and --minimize exclude each other; e.g. --trials 20 --minimize")
    places = [text for text in what if "=" not in text or Path(text).is_dir()]
    place, overrides = _place(places), [text for text in what if text not in places]
    options = pool.options(retries=retries, trials=trials)
    from rlmem.jobs.run import default_folder, sweep
    from rlmem.jobs.run import dry_run as listed
    from rlmem.jobs.spec import EXAMPLE, Direction, specify

    if place is not None and place.is_dir():
        specifying = {"dir": dir, "dry_run": dry_run, "maximize": maximize, "minimize": minimize, "sampler": sampler}
        refuse_changes(place, "jobs", specifying, others=[*overrides, *pair])
        return sweep(None, place, options)
    if place is None and not overrides and not pair:
        raise mistake("rlmem sweep", "nothing to sweep", example=EXAMPLE)
    if trials is None and (maximize or minimize or sampler):
        raise UserError("rlmem sweep: --maximize, --minimize and --sampler are for a search; e.g. --trials 20")
    direction: Direction = "minimize" if minimize else "maximize" if trials else None
    spec = specify(place, overrides, pair, direction, sampler or "tpe")
    folder = dir or default_folder(spec, place, whole=not overrides and not pair)
    if dry_run:
        show(listed(spec, folder))
        return 0
    return sweep(spec, folder, options)


def _place(places: list[str]) -> Path | None:
    """The sweep file or directory among the arguments."""
    if not places:
        return None
    first, *more = places
    path, example = Path(first), "rlmem sweep memory=ffm,gru seed=0,1,2"
    if more and (near := nearest(first, ["status"])):
        raise mistake(first, "no such sweep file", near=near, example=f"rlmem sweep status {shell(more[0])}")
    if more:
        raise mistake(more[0], "expected key=value after the file", example=example)
    if not path.is_dir() and not path.is_file():
        near = nearest(first, ["status", *map(str, path.parent.glob("*"))])
        problem, accepted = "no such sweep file or directory", ["key=value", "FILE.yaml", "DIR"]
        raise mistake(first, problem, near=near, accepted=accepted, example=example)
    return path


def _print_status(folders: Sequence[str], json: bool) -> None:
    folder = directory_of_status("sweep", folders, "sweeps/mine")
    from rlmem.jobs.manifest import holds_sweep
    from rlmem.jobs.status import as_json, print_table

    if not holds_sweep(folder):
        raise mistake(str(folder), "holds no sweep", example="rlmem sweep status sweeps/mine")
    if json:
        show(as_json(folder))
    else:
        print_table(folder)
