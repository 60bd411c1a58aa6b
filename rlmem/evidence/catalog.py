"""The experiments that are shipped: `experiments/<paper>/<item>.yaml`, named `<paper>/<item>`."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from rlmem.config.messages import nearest, sentence, shell
from rlmem.config.paths import experiments_dir
from rlmem.errors import UserError
from rlmem.evidence import registration
from rlmem.evidence.spec import Experiment
from rlmem.evidence.spec_file import read
from rlmem.system.received import named

OTHERS = ("first_run", "papers", "published")
"""The folders beside those of experiments."""


def names(chosen: Sequence[str] = ()) -> list[str]:
    """The names of the shipped experiments, sorted by paper and item.

    chosen: these papers and items alone
    """
    root = experiments_dir()
    files = [file.relative_to(root) for file in root.glob("*/*.yaml")] if root else []
    every = sorted(f.with_suffix("").as_posix() for f in files if f.parts[0] not in OTHERS)
    return [name for name in every if not chosen or {name, name.partition("/")[0]} & {*chosen}]


def find(item: str) -> tuple[str, Experiment]:
    """The name and the experiment of `<paper>/<item>`, or of a file of the user's own. Raises UserError."""
    root, known, name = experiments_dir(), names(), item
    if item.endswith((".yaml", ".yml")):
        path = Path(item).resolve()
        name = f"{path.parent.name}/{path.stem}"
        if name not in known or root is None:
            return name, _registered(name, read(named(Path(item)), own=True), path.parent)
        if path != (root / f"{name}.yaml").resolve():
            what = f"{name} is the name of a shipped experiment; rename the file or its folder"
            raise UserError(sentence(item, what, example=f"my_{path.name}"))
    if root is None or name not in known:
        near = nearest(name, known) or nearest(name, [name.partition("/")[2] for name in known])
        shown = sorted({name.partition("/")[0] + "/..." for name in known})
        what, example = "no such experiment", "rlmem list experiment"
        raise UserError(sentence(item, what, near=near, accepted=shown, example=example))
    return name, _registered(name, read(root / f"{name}.yaml"), root)


def _registered(name: str, experiment: Experiment, folder: Path) -> Experiment:
    return experiment.with_registered(registration.read(folder / registration.FILE).get(name, {}))


def register(item: str, budget: str) -> str:
    """Register the expectations of an experiment at a budget, and return a line about it. Raises UserError."""
    name, experiment = find(item)
    version, known = experiment.at(budget).version, experiment.registered.get(budget, registration.Registration())
    if budget not in registration.COUNTED:
        what = "its runs are never judged, so nothing can be registered"
        again = f"rlmem reproduce {shell(item)} --budget laptop --register"
        raise UserError(sentence(f"--budget {budget}", what, example=again))
    if known.versions and known.versions[-1] == version:
        return f"{name} at the budget {budget}: registered already, {known.versions[-1].registered}"
    known = replace(known, versions=(*known.versions, replace(version, registered=registration.stamp(datetime.now()))))
    registration.write(registry(item, experiment), name, budget, known)
    count = f"{len(version.expect)} expectation{'s' * (len(version.expect) != 1)}"
    return f"{name} at the budget {budget}: {count} registered, hash {version.hash}"


def registry(item: str, experiment: Experiment) -> Path:
    """The file that the expectations of an experiment, found as `item`, are registered in."""
    root = experiments_dir()
    folder = root if experiment.text is None and root is not None else Path(item).resolve().parent
    return folder / registration.FILE
