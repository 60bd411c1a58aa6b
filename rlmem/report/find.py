"""Find what lies in the given folders: reproductions, published results, sweeps, runs."""

import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from rlmem.config.messages import nearest, sentence
from rlmem.errors import UserError, brief, printable
from rlmem.report.facts import departures, facts_of
from rlmem.report.groups import Group, of_runs, of_sweep
from rlmem.reproduce import catalog
from rlmem.reproduce.cells import Cell, cells
from rlmem.reproduce.metrics import curve_key
from rlmem.reproduce.outcome import Curve, Outcome, Record, read_curves, read_results
from rlmem.reproduce.run import runner_of
from rlmem.reproduce.runner import CELLS
from rlmem.reproduce.spec import BUDGETS, Experiment, read
from rlmem.reproduce.tables import EXPERIMENT, VERDICT, tables
from rlmem.reproduce.verdict import Verdict, judge
from rlmem.stats.tables import Table
from rlmem.sweep.manifest import holds_sweep

CURVES = ".curves.csv"
DEPTH = 5
"""How many levels below a given folder are searched."""
PICTURES = (".svg", ".png")


@dataclass(frozen=True)
class Item:
    """An experiment at a budget with what was run of it: a section of a report.

    outcome: the experiment and its runs
    file: the file of published results, None for a reproduction
    """

    outcome: Outcome
    file: Path | None = None
    half: Sequence[Path] = ()
    listed_metrics: Sequence[str] = ()

    @cached_property
    def verdict(self) -> Verdict:
        return judge(self.outcome)

    @property
    def name(self) -> str:
        return self.outcome.name

    @property
    def label(self) -> str:
        return f"{self.outcome.name} {self.outcome.budget}"

    @property
    def records(self) -> Sequence[Record]:
        return self.outcome.records

    @property
    def curves(self) -> Sequence[Curve]:
        return self.outcome.curves

    @property
    def key(self) -> str:
        """The key of metrics.jsonl that the curves show; "" for a measurement, which has none."""
        return curve_key(self.outcome.experiment.metric) if self.outcome.experiment.is_trained else ""

    @cached_property
    def planned(self) -> Sequence[Cell]:
        return cells(self.outcome.experiment, self.outcome.budget)

    @property
    def axes(self) -> tuple[list[str], list[str]]:
        """Names of the rows and columns at this budget, in the order of the file."""
        rows = [cell.row for cell in self.planned if cell.row]
        return list(dict.fromkeys(rows)), list(dict.fromkeys(cell.column for cell in self.planned))

    @property
    def done(self) -> str:
        """`12 of 36`: the runs that have ended, out of those at this budget."""
        asked = sum(len(cell.seeds) for cell in self.planned)
        return f"{sum(record.state == 'done' for record in self.records)} of {asked}"

    @property
    def command(self) -> str:
        own = ".yaml" if self.outcome.experiment.text else ""
        return f"rlmem reproduce {shlex.quote(self.outcome.name + own)} --budget {self.outcome.budget}"

    @property
    def departures(self) -> list[tuple[str, str]]:
        return departures(self.outcome)

    def facts(self) -> dict[str, str | None]:
        """Name -> fact about the experiment or about all runs together."""
        experiment, verdict = self.outcome.experiment, self.verdict
        return {
            "claim": experiment.claim,
            "source": experiment.source,
            "verdict": f"{verdict.word}: {verdict.why}",
            "this budget": experiment.budget(self.outcome.budget).note,
            **facts_of(self.records),
            "runs": f"{self.done} done",
        }

    def tables(self) -> list[Table]:
        return tables(self.outcome, self.verdict)


Section = Item | Group
"""The content of a report under one heading."""


def find(folders: Sequence[Path]) -> list[Section]:
    """Items by name and budget, then sweeps, then all single runs as one group.

    Raises UserError for a folder that does not exist, cannot be read or holds none of these.
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
    """(kind, path) of everything at or below a folder, sorted by name."""
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
    """The name of the item in a reproduction's folder, which has a verdict, runs or both; None for other folders."""
    about = next((folder / name for name in (CELLS, VERDICT) if (folder / name).is_file()), None)
    try:
        item = None if about is None else json.loads(about.read_text(encoding="utf-8")).get("item")
    except (OSError, ValueError, AttributeError) as error:
        raise UserError(f"{about}: cannot be read ({error}); expected what `rlmem reproduce` wrote") from error
    return item if isinstance(item, str) and (item in catalog.names() or (folder / EXPERIMENT).is_file()) else None


def _reproduction(folder: Path) -> Item:
    """A reproduction with its runs as they are now, or as in results.csv if they lie elsewhere."""
    about = next(folder / name for name in (CELLS, VERDICT) if (folder / name).is_file())
    said = json.loads(about.read_text(encoding="utf-8"))
    name, budget = said["item"], said["budget"]
    experiment = _experiment(name, folder / EXPERIMENT).at(budget)
    runner = runner_of(name, experiment, budget, folder.resolve().parent.parent, folder)
    if experiment.is_trained and not (runner.runs / CELLS).is_file():
        return Item(_stored(name, experiment, budget, folder / "results.csv", folder / "curves.csv"))
    return Item(runner.so_far())


def _published(file: Path) -> Item:
    """Published results <paper>/<item>.<budget>.csv, with pictures <item>.<budget>.<caption>.svg beside them."""
    item, _, budget = file.stem.rpartition(".")
    name = f"{file.parent.resolve().name}/{item}"
    experiment = _experiment(name, file.with_suffix(".yaml")).at(budget)
    return Item(_stored(name, experiment, budget, file, file.with_suffix(CURVES)), file)


def _experiment(name: str, kept: Path) -> Experiment:
    """A shipped experiment, or the one whose text is kept with its results."""
    return read(kept, own=True, whole=True) if kept.is_file() else catalog.find(name)[1]


def _stored(name: str, experiment: Experiment, budget: str, results: Path, curves: Path) -> Outcome:
    beside = sorted(path for path in results.parent.glob(f"{results.stem}.*") if path.suffix in PICTURES)
    pictures = {path.stem.removeprefix(f"{results.stem}."): path for path in beside if path.stem != results.stem}
    return Outcome(name, experiment, budget, read_results(results), read_curves(curves), pictures)
