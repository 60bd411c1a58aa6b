"""The experiments that are shipped: `experiments/<paper>/<item>.yaml`, named `<paper>/<item>`."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from rlmem.config.messages import mistake, nearest, shell
from rlmem.config.paths import experiments_dir
from rlmem.evidence import registration
from rlmem.evidence.experiment import Experiment, Planned
from rlmem.evidence.reading import read
from rlmem.system.received import named

OTHERS = ("first_run", "papers", "published")
"""The folders beside those of experiments."""


def names(chosen: Sequence[str] = ()) -> list[str]:
    """The names of the shipped experiments, sorted by paper and item.

    chosen: only these papers and items
    """
    root = experiments_dir()
    files = [file.relative_to(root) for file in root.glob("*/*.yaml")] if root else []
    every = sorted(f.with_suffix("").as_posix() for f in files if f.parts[0] not in OTHERS)
    return [name for name in every if not chosen or {name, name.partition("/")[0]} & {*chosen}]


def find(item: str) -> Experiment:
    """The experiment `<paper>/<item>`, or that of a file of the user's own. Raises UserError."""
    root, known, file = experiments_dir(), names(), None
    if item.endswith((".yaml", ".yml")):
        file = Path(item).resolve()
        name = f"{file.parent.name}/{file.stem}"
        if name in known and root is not None and file != (root / f"{name}.yaml").resolve():
            problem = f"{name} is the name of a shipped experiment; rename the file or its folder"
            raise mistake(item, problem, example=f"my_{file.name}")
    else:
        name = item
    if root is not None and name in known:
        experiment, folder = read(root / f"{name}.yaml"), root
    elif file is not None:
        experiment, folder = read(named(Path(item)), own=True), file.parent
    else:
        near = nearest(name, known) or nearest(name, [name.partition("/")[2] for name in known])
        papers = sorted({name.partition("/")[0] + "/..." for name in known})
        raise mistake(item, "no such experiment", near=near, accepted=papers, example="rlmem list experiment")
    return experiment.known_as(name, experiment.text, registration.read(folder / registration.FILE).get(name, {}))


def register(item: str, budget: str) -> str:
    """Register the expectations of an experiment at a budget, and return a line about it. Raises UserError."""
    planned = find(item).at(budget)
    where, version, known = f"{planned.name} at the budget {budget}", planned.version, planned.registration
    if budget not in registration.COUNTED:
        again = f"rlmem reproduce {shell(item)} --budget laptop --register"
        raise mistake(f"--budget {budget}", "its runs are never judged, so nothing can be registered", example=again)
    if known.versions and known.versions[-1] == version:
        return f"{where}: registered already, {known.versions[-1].registered}"
    known = replace(known, versions=(*known.versions, replace(version, registered=registration.stamp(datetime.now()))))
    registration.write(registry(planned.experiment, item), planned.name, budget, known)
    count = f"{len(version.expect)} expectation{'s' * (len(version.expect) != 1)}"
    return f"{where}: {count} registered, hash {version.hash}"


def require_registered(item: str, planned: Planned) -> None:
    """Raise UserError if a counted run would start whose expectations, as they are now, are not registered.

    item: the experiment as the user named it
    """
    version, versions = planned.version, planned.registration.versions
    if planned.budget not in registration.COUNTED or versions[-1:] == (version,) or not (versions or version.expect):
        return
    problem = f"differ from those registered on {versions[-1].registered[:10]}" if versions else "are not registered"
    example = f"rlmem reproduce {shell(item)} --budget {planned.budget} --register"
    where = f"{item} at the budget {planned.budget}"
    raise mistake(where, f"its expectations {problem}; register them before its runs", example=example)


def registry(experiment: Experiment, item: str) -> Path:
    """The file that the expectations of an experiment, found as `item`, are registered in."""
    root = experiments_dir()
    folder = root if experiment.text is None and root is not None else Path(item).resolve().parent
    return folder / registration.FILE
