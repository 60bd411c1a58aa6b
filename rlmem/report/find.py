"""What lies in the folders of a command: reproductions, published results, sweeps, runs."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from rlmem.config.messages import nearest, sentence
from rlmem.errors import UserError, brief, printable
from rlmem.report.groups import Group, of_runs, of_sweep
from rlmem.reproduce import catalog
from rlmem.reproduce.cells import CELLS
from rlmem.reproduce.outcome import Outcome, read_curves, read_results
from rlmem.reproduce.run import Place, so_far
from rlmem.reproduce.spec import BUDGETS, Experiment, read_kept
from rlmem.reproduce.verdict import Verdict, judge
from rlmem.reproduce.write import EXPERIMENT, VERDICT
from rlmem.sweep.manifest import holds_sweep

CURVES = ".curves.csv"
DEPTH = 5
"""Folders below the one that was named."""
PICTURES = (".svg", ".png")


@dataclass(frozen=True)
class Item:
    """An experiment at a budget with what was run of it. file: of published results"""

    outcome: Outcome
    file: Path | None = None

    @cached_property
    def verdict(self) -> Verdict:
        return judge(self.outcome)

    @property
    def command(self) -> str:
        own = ".yaml" if self.outcome.experiment.text else ""
        return f"rlmem reproduce {shlex.quote(self.outcome.name + own)} --budget {self.outcome.budget}"


Section = Item | Group


def find(folders: Sequence[Path]) -> list[Section]:
    """Items by name and budget, then sweeps, then all single runs together.

    Raises UserError for a folder that is not there, cannot be read or holds nothing of the kind.
    """
    items: list[Item] = []
    sweeps: list[Group] = []
    runs: list[Path] = []
    half: list[Path] = []
    for folder in folders:
        try:
            places = list(_places(_existing(folder)))
        except OSError as error:
            raise UserError(f"{brief(printable(str(error.filename)))}: cannot be read ({error.strerror})") from error
        if all(kind == "half" for kind, _ in places):
            expected = "expected a reproduction, published results, a sweep or a run, or a folder of such"
            raise UserError(sentence(str(folder), f"nothing to show; {expected}", example="rlmem report results"))
        items += [_reproduction(path) for kind, path in places if kind == "reproduction"]
        items += [_published(path) for kind, path in places if kind == "results"]
        sweeps += [of_sweep(path) for kind, path in places if kind == "sweep"]
        runs += [path for kind, path in places if kind == "run"]
        half += [path for kind, path in places if kind == "half"]
    items.sort(key=lambda item: (item.outcome.name, BUDGETS.index(item.outcome.budget)))
    alone = [of_runs(list(dict.fromkeys(runs)), list(dict.fromkeys(half)))] if runs or half else []
    return [*items, *sweeps, *alone]


def _existing(folder: Path) -> Path:
    if not folder.is_dir():
        near = nearest(folder.name, (path.name for path in folder.parent.glob("*") if path.is_dir()))
        what = "is a file; expected a folder" if folder.exists() else "no such folder"
        raise UserError(sentence(str(folder), what, near=near, example="rlmem report results"))
    return folder


def _places(folder: Path, depth: int = DEPTH) -> Iterator[tuple[str, Path]]:
    """(kind, path) of everything at or below a folder, in the order of names."""
    if _item(folder):
        yield "reproduction", folder
    elif holds_sweep(folder):
        yield "sweep", folder
    elif there := [name for name in ("config.yaml", "run.json") if (folder / name).is_file()]:
        yield "run" if len(there) == 2 else "half", folder
    else:
        for path in sorted(folder.iterdir()):
            if path.is_dir() and depth and not path.name.startswith("."):
                yield from _places(path, depth - 1)
            elif path.suffix == ".csv" and path.stem.rpartition(".")[2] in BUDGETS:
                yield "results", path


def _item(folder: Path) -> str | None:
    """Which item lies in a reproduction's folder, which has a verdict, runs or both."""
    about = next((folder / name for name in (CELLS, VERDICT) if (folder / name).is_file()), None)
    try:
        item = None if about is None else json.loads(about.read_text(encoding="utf-8")).get("item")
    except (OSError, ValueError, AttributeError) as error:
        raise UserError(f"{about}: cannot be read ({error}); expected what `rlmem reproduce` wrote") from error
    return item if isinstance(item, str) and (item in catalog.names() or (folder / EXPERIMENT).is_file()) else None


def _reproduction(folder: Path) -> Item:
    """Its runs as they are now; where they lie elsewhere, what results.csv says of them."""
    about = next(folder / name for name in (CELLS, VERDICT) if (folder / name).is_file())
    said = json.loads(about.read_text(encoding="utf-8"))
    name, budget = said["item"], said["budget"]
    experiment = _experiment(name, folder / EXPERIMENT).at(budget)
    owner = experiment.runs or name
    runs = folder if owner == name else folder.resolve().parent.parent / f"{owner}-{budget}"
    if experiment.run in ("train", "population") and not (runs / CELLS).is_file():
        return Item(_stored(name, experiment, budget, folder / "results.csv", folder / "curves.csv"))
    return Item(so_far(experiment, Place(name, budget, folder, owner, runs)))


def _published(file: Path) -> Item:
    """<paper>/<item>.<budget>.csv. Pictures beside it, <item>.<budget>.<caption>.svg, belong to it."""
    item, _, budget = file.stem.rpartition(".")
    name = f"{file.parent.resolve().name}/{item}"
    experiment = _experiment(name, file.with_suffix(".yaml")).at(budget)
    return Item(_stored(name, experiment, budget, file, file.with_suffix(CURVES)), file)


def _experiment(name: str, kept: Path) -> Experiment:
    """One that is not shipped has its text with its results."""
    return read_kept(kept) if kept.is_file() else catalog.find(name)[1]


def _stored(name: str, experiment: Experiment, budget: str, results: Path, curves: Path) -> Outcome:
    beside = sorted(path for path in results.parent.glob(f"{results.stem}.*") if path.suffix in PICTURES)
    pictures = {path.stem.removeprefix(f"{results.stem}."): path for path in beside if path.stem != results.stem}
    return Outcome(name, experiment, budget, read_results(results), read_curves(curves), pictures)
