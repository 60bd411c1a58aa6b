"""Find what lies in the given folders: reproductions, published results, sweeps, runs."""

import os
import shlex
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from rlmem.config.messages import nearest, sentence, shell
from rlmem.errors import UserError, brief, printable, reading
from rlmem.evidence import catalog, registration
from rlmem.evidence.cells import cells
from rlmem.evidence.metrics import curve_key
from rlmem.evidence.outcome import Outcome, read_curves, read_results
from rlmem.evidence.page.facts import NAMED, facts_of
from rlmem.evidence.page.groups import DIFFERS, Section, of_runs, of_sweep, rows_differ
from rlmem.evidence.peers import described
from rlmem.evidence.ranges import of_overrides
from rlmem.evidence.run import runner_of
from rlmem.evidence.runner import CELLS, read_about
from rlmem.evidence.spec import BUDGETS, Experiment
from rlmem.evidence.spec_file import read
from rlmem.evidence.tables import EXPERIMENT, VERDICT, tables
from rlmem.evidence.verdict import Verdict, judge
from rlmem.stats.tables import Table
from rlmem.sweep.manifest import Manifest, holds_sweep
from rlmem.system.received import json_of

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Item(Section):
    """An experiment at a budget with what was run of it; `file` holds published results, None for a reproduction."""

    outcome: Outcome
    verdict: Verdict
    file: Path | None

    @property
    def explained(self) -> str | None:
        """Why it came out so, in the words of the experiment file; "unexplained" where a contradiction has none."""
        given = self.outcome.experiment.budget(self.outcome.budget).explained
        return given or ("unexplained" if self.verdict.word == "contradicted" else None)

    def facts(self) -> dict[str, str | None]:
        """Name -> fact about the experiment or about all runs together."""
        experiment, verdict = self.outcome.experiment, self.verdict
        budget = experiment.budget(self.outcome.budget)
        return {
            "claim": experiment.claim,
            "source": experiment.source,
            "verdict": f"{verdict.word}: {verdict.why}",
            "changed": verdict.changed or None,
            "this budget": budget.note,
            "what came out": self.explained,
            **facts_of(self.records),
            DIFFERS: self.differs,
            "runs": f"{self.done} done",
            **{f"beside, {row}": about for row, about in described(self.outcome).items()},
        }

    def tables(self) -> list[Table]:
        return tables(self.outcome, self.verdict)


def find(folders: Sequence[Path]) -> list[Section]:
    """Items by name and budget, then sweeps, then all single runs as one group.

    Raises UserError for a folder that does not exist, cannot be read or holds none of these.
    """
    there: dict[str, list[Path]] = defaultdict(list)
    problems: list[str] = []
    for folder in folders:
        before = sum(map(len, there.values())) - len(there["half"])
        try:
            if not folder.is_dir():
                near = nearest(folder.name, (path.name for path in folder.parent.glob("*") if path.is_dir()))
                what = "is a file; expected a folder" if folder.exists() else "no such folder"
                raise UserError(sentence(str(folder), what, near=near, example="rlmem report results"))
            for kind, path in _places(folder, problems):
                there[kind].append(path)
        except UserError:
            raise
        except OSError as error:
            raise UserError(f"{brief(printable(str(error.filename)))}: cannot be read ({error.strerror})") from error
        if sum(map(len, there.values())) - len(there["half"]) == before and not problems:
            expected = "expected a reproduction, published results, a sweep or a run, or a folder of such"
            raise UserError(sentence(str(folder), f"nothing to show; {expected}", example="rlmem report results"))
    items = [
        *_readable(_reproduction, there["reproduction"], problems),
        *_readable(_published, there["results"], problems),
    ]
    groups: list[Section] = [*_readable(of_sweep, there["sweep"], problems)]
    runs, half = (list(dict.fromkeys(there[kind])) for kind in ("run", "half"))
    if runs or half or problems:
        groups.append(of_runs(runs, half, problems))
    if problems and not items and not any(section.records for section in groups):
        raise UserError(*problems[:NAMED])
    return [*sorted(items, key=lambda item: (item.name, BUDGETS.index(item.outcome.budget))), *groups]


def _readable(make: Callable[[Path], T], paths: Iterable[Path], problems: list[str]) -> Iterator[T]:
    """The results of `make` for the paths that can be read. Each other path adds a line to `problems`."""
    for path in paths:
        try:
            with reading(path):
                made = make(path)
        except UserError as error:
            problems += error.problems
        else:
            yield made


def published(sections: Sequence[Section], command: str) -> list[Item]:
    """The sections as published items. Raises UserError, with a command as its example, if one is of another kind."""
    items = [section for section in sections if isinstance(section, Item) and section.file is not None]
    if len(items) < len(sections):
        other = next(section for section in sections if section not in items)
        if other.left_out:
            raise UserError(*other.left_out)
        raise UserError(sentence(other.name, "this is made of published results alone", example=command))
    return items


def run_dirs(folder: Path, problems: list[str]) -> list[Path]:
    """The directories of the runs in a folder, also of those that have not begun; the folder if there is nothing.

    Links that are not followed and folders that cannot be read become lines of `problems`, as in `_places`. Raises
    UserError if the folder itself cannot be read.
    """
    found: list[Path] = []
    try:
        for kind, path in _places(folder, problems) if os.path.isdir(folder) else ():
            if kind == "sweep":
                found += [path / job.name for job in Manifest(path).jobs()]
            elif kind == "reproduction":
                found += [record.run_dir for record in _reproduction(path).records if record.run_dir]
            elif kind != "results":
                found.append(path)
    except OSError as error:
        raise UserError(f"{folder}: cannot be read ({error.strerror})") from error
    return found or ([] if problems else [folder])


def _places(folder: Path, problems: list[str], depth: int = 5, root: str | None = None) -> Iterator[tuple[str, Path]]:
    """(kind, path) of everything at or down to `depth` levels below a folder, sorted by name.

    No link below the folder is followed. One that leads out of it, and a folder that cannot be read, are lines of
    `problems`.
    """
    root = root or os.path.realpath(folder)
    if _holds_item(folder):
        yield "reproduction", folder
    elif holds_sweep(folder):
        yield "sweep", folder
    elif there := [name for name in ("config.yaml", "run.json") if (folder / name).is_file()]:
        yield "run" if len(there) == 2 else "half", folder
    else:
        for path in sorted(folder.iterdir()):
            if path.is_symlink():
                target = Path(os.path.realpath(path))
                if not target.is_relative_to(root) and (target.is_dir() or path.suffix == ".csv"):
                    what = "is a link, which is not followed; expected its target"
                    problems.append(f"{path}: {what}; e.g. {shell(target)}")
            elif path.is_dir() and depth and not path.name.startswith("."):
                try:
                    yield from _places(path, problems, depth - 1, root)
                except OSError as error:
                    problems.append(f"{path}: cannot be read ({error.strerror})")
            elif path.suffix == ".csv" and path.stem.rpartition(".")[2] in BUDGETS:
                yield "results", path


def _about(folder: Path) -> dict[str, Any]:
    """What a reproduction's folder, which has a verdict, runs or both, says of its item; empty for other folders."""
    file = next((folder / name for name in (CELLS, VERDICT) if (folder / name).is_file()), None)
    try:
        about = None if file is None else json_of(file)
    except (OSError, ValueError) as error:
        raise UserError(f"{file}: cannot be read ({error}); expected what `rlmem reproduce` wrote") from error
    item = about.get("item") if isinstance(about, dict) else None
    known = isinstance(item, str) and (item in catalog.names() or (folder / EXPERIMENT).is_file())
    return read_about(file) if known and file is not None else {}


def _holds_item(folder: Path) -> bool:
    """True for the folder of a reproduction, also for one that cannot be read."""
    try:
        return bool(_about(folder))
    except UserError:
        return True


def _reproduction(folder: Path) -> Item:
    """A reproduction with its runs as they are now, or as in results.csv if they lie elsewhere."""
    about = _about(folder)
    name, budget = about["item"], about["budget"]
    experiment = _experiment(name, folder / EXPERIMENT).at(budget)
    runner = runner_of(name, experiment, budget, folder.resolve().parent.parent, folder)
    if experiment.is_trained and not (runner.runs / CELLS).is_file():
        return _item(_stored(name, experiment, budget, folder / "results.csv", folder / "curves.csv"))
    return _item(runner.so_far())


def _published(file: Path) -> Item:
    """Published results <paper>/<item>.<budget>.csv, with pictures <item>.<budget>.<caption>.svg beside them."""
    item, _, budget = file.stem.rpartition(".")
    name = f"{file.parent.resolve().name}/{item}"
    experiment = _experiment(name, file.with_suffix(".yaml")).at(budget)
    return _item(_stored(name, experiment, budget, file, file.with_suffix(".curves.csv")), file)


def _item(outcome: Outcome, file: Path | None = None) -> Item:
    name, budget, experiment = outcome.name, outcome.budget, outcome.experiment
    label, planned = f"{name} {budget}", cells(experiment, budget)
    key = curve_key(experiment.metric) if experiment.is_trained else ""
    rows, columns = dict.fromkeys(cell.row for cell in planned if cell.row), dict.fromkeys(c.column for c in planned)
    axes, asked = ([*rows, *experiment.peers], list(columns)), sum(len(cell.seeds) for cell in planned)
    command = f"rlmem reproduce {shlex.quote(name + ('.yaml' if experiment.text else ''))} --budget {budget}"
    differs = rows_differ(outcome.ours) if experiment.is_trained else ""
    shown = outcome.ours, outcome.curves, axes, asked, command
    ranges = {cell.column: of_overrides(f"last {key}", cell.overrides) for cell in reversed(planned)} if key else {}
    verdict = judge(outcome)
    return Item(name, label, key, *shown, differs=differs, ranges=ranges, outcome=outcome, verdict=verdict, file=file)


def _experiment(name: str, kept: Path) -> Experiment:
    """A shipped experiment, or the one whose text is kept with its results."""
    there = registration.read(kept.with_name(registration.FILE)).get(name, {})
    if kept.is_file():
        return read(kept, own=True, whole=True).with_registered(there)
    experiment = catalog.find(name)[1]
    first_run = {budget: known.first_run for budget, known in there.items()}
    return experiment.with_registered({b: known.begun(first_run.get(b)) for b, known in experiment.registered.items()})


def _stored(name: str, experiment: Experiment, budget: str, results: Path, curves: Path) -> Outcome:
    beside = sorted(path for path in results.parent.glob(f"{results.stem}.*") if path.suffix in (".svg", ".png"))
    pictures = {path.stem.removeprefix(f"{results.stem}."): path for path in beside if path.stem != results.stem}
    return Outcome(name, experiment, budget, read_results(results), read_curves(curves), pictures)
