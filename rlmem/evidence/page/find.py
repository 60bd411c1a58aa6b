"""Find what lies in the given folders: reproductions, published results, sweeps, runs."""

import os
import shlex
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from rlmem.config.messages import mistake, nearest, shell
from rlmem.core.errors import UserError, brief, printable, reading
from rlmem.core.received import json_of
from rlmem.evidence import catalog, registration
from rlmem.evidence.experiment import BUDGETS, Experiment
from rlmem.evidence.folder import CELLS, read_about
from rlmem.evidence.items import runner_of
from rlmem.evidence.metrics import curve_key, range_of
from rlmem.evidence.page.groups import DIFFERS, NAMED, Section, facts_of, of_runs, of_sweep, rows_differ
from rlmem.evidence.published import described
from rlmem.evidence.records import CURVES, RESULTS, read_curves, read_results
from rlmem.evidence.tables import EXPERIMENT, VERDICT, tables
from rlmem.evidence.verdict import Outcome, Verdict
from rlmem.jobs.manifest import Manifest, holds_sweep
from rlmem.record.tables import Table

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
        explanation = self.outcome.planned.chosen.explained
        return explanation or ("unexplained" if self.verdict.word.startswith("contradicted") else None)

    def facts(self) -> dict[str, str | None]:
        """Name -> fact about the experiment or about all runs together."""
        planned, verdict = self.outcome.planned, self.verdict
        return {
            "claim": planned.experiment.claim,
            "source": planned.experiment.source,
            "verdict": f"{verdict.word}: {verdict.why}",
            "changed": verdict.changed or None,
            "this budget": planned.chosen.note,
            "what came out": self.explained,
            **self.facts_of_runs(),
        }

    def facts_of_runs(self) -> dict[str, str]:
        """Name -> fact about all runs together."""
        peers = described(self.outcome.planned, self.outcome.records)
        ours = facts_of(self.records) | {DIFFERS: self.differs, "runs": f"{self.done} done"}
        return ours | {f"beside, {row}": about for row, about in peers.items()}

    def tables(self) -> list[Table]:
        return tables(self.outcome)


def find(folders: Sequence[Path]) -> list[Section]:
    """Items by name and budget, then sweeps, then all single runs as one group.

    Raises UserError for a folder that does not exist, cannot be read or holds none of these.
    """
    there: dict[str, list[Path]] = defaultdict(list)
    problems: list[str] = []
    for folder in folders:
        try:
            if not folder.is_dir():
                near = nearest(folder.name, (path.name for path in folder.parent.glob("*") if path.is_dir()))
                problem = "is a file; expected a folder" if folder.exists() else "no such folder"
                raise mistake(str(folder), problem, near=near, example="rlmem report results")
            places = list(_places(folder, problems))
        except OSError as error:
            raise UserError(f"{brief(printable(str(error.filename)))}: cannot be read ({error.strerror})") from error
        for kind, path in places:
            there[kind].append(path)
        if {kind for kind, _ in places} <= {"half"} and not problems:
            expected = "expected a reproduction, published results, a sweep or a run, or a folder of such"
            raise mistake(str(folder), f"nothing to show; {expected}", example="rlmem report results")
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
                section = make(path)
        except UserError as error:
            problems += error.problems
        else:
            yield section


def published(sections: Sequence[Section], command: str) -> list[Item]:
    """The sections as published items. Raises UserError, with a command as its example, if one is of another kind."""
    items = [section for section in sections if isinstance(section, Item) and section.file is not None]
    if len(items) < len(sections):
        other = next(section for section in sections if section not in items)
        if other.left_out:
            raise UserError(*other.left_out)
        raise mistake(other.name, "this is made of published results alone", example=command)
    return items


def run_dirs(folder: Path, problems: list[str]) -> list[Path]:
    """The directories of the runs in a folder, also of those that have not begun; the folder if there is nothing.

    Links that are not followed and folders that cannot be read become lines of `problems`, as in `_places`. Raises
    UserError if the folder itself cannot be read.
    """
    folders: list[Path] = []
    try:
        for kind, path in _places(folder, problems) if os.path.isdir(folder) else ():
            if kind == "sweep":
                folders += [path / job.name for job in Manifest(path).jobs()]
            elif kind == "reproduction":
                folders += [record.run_dir for record in _reproduction(path).records if record.run_dir]
            elif kind != "results":
                folders.append(path)
    except OSError as error:
        raise UserError(f"{folder}: cannot be read ({error.strerror})") from error
    return folders or ([] if problems else [folder])


def _places(folder: Path, problems: list[str], depth: int = 5, root: str | None = None) -> Iterator[tuple[str, Path]]:
    """(kind, path) of everything at or down to `depth` levels below a folder, sorted by name.

    No link below the folder is followed. One that leads out of it, and a folder that cannot be read, are lines of
    `problems`.
    """
    root = root or os.path.realpath(folder)
    if _described(folder):
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
                    problem = "is a link, which is not followed; expected its target"
                    problems.append(f"{path}: {problem}; e.g. {shell(target)}")
            elif path.is_dir() and depth and not path.name.startswith("."):
                try:
                    yield from _places(path, problems, depth - 1, root)
                except OSError as error:
                    problems.append(f"{path}: cannot be read ({error.strerror})")
            elif path.suffix == ".csv" and path.stem.rpartition(".")[2] in BUDGETS:
                yield "results", path


def _described(folder: Path) -> Path | None:
    """The file with the item of a reproduction, which has a verdict, runs or both; None for any other folder."""
    file = next((folder / name for name in (CELLS, VERDICT) if (folder / name).is_file()), None)
    try:
        about = None if file is None else json_of(file)
    except (OSError, ValueError):  # a damaged one
        return file
    item = about.get("item") if isinstance(about, dict) else None
    known = isinstance(item, str) and (item in catalog.names() or (folder / EXPERIMENT).is_file())
    return file if known else None


def _reproduction(folder: Path) -> Item:
    """A reproduction with its runs as they are now, or as in results.csv if they lie elsewhere."""
    file = _described(folder)
    assert file is not None
    about = read_about(file)
    planned = _experiment(about["item"], folder / EXPERIMENT).at(about["budget"])
    runner = runner_of(planned, folder.resolve().parent.parent, folder)
    if planned.is_trained and not (runner.runs / CELLS).is_file():
        return _item(Outcome(planned, read_results(folder / RESULTS), read_curves(folder / CURVES)))
    return _item(runner.so_far())


def _published(file: Path) -> Item:
    """Published results <paper>/<item>.<budget>.csv, with pictures <item>.<budget>.<caption>.svg beside them."""
    item, _, budget = file.stem.rpartition(".")
    planned = _experiment(f"{file.parent.resolve().name}/{item}", file.with_suffix(".yaml")).at(budget)
    beside = sorted(path for path in file.parent.glob(f"{file.stem}.*") if path.suffix in (".svg", ".png"))
    pictures = {path.stem.removeprefix(f"{file.stem}."): path for path in beside if path.stem != file.stem}
    return _item(Outcome(planned, read_results(file), read_curves(file.with_suffix(".curves.csv")), pictures), file)


def _item(outcome: Outcome, file: Path | None = None) -> Item:
    planned, cells = outcome.planned, outcome.planned.cells()
    key = curve_key(planned.metric) if planned.is_trained else ""
    rows, columns = dict.fromkeys(cell.row for cell in cells if cell.row), dict.fromkeys(cell.column for cell in cells)
    name = f"{outcome.name}{'.yaml' if planned.experiment.text else ''}"
    return Item(
        outcome.name,
        f"{outcome.name} {outcome.budget}",
        key,
        outcome.ours,
        outcome.curves,
        ([*rows, *planned.experiment.peers], list(columns)),
        sum(len(cell.seeds) for cell in cells),
        f"rlmem reproduce {shlex.quote(name)} --budget {outcome.budget}",
        differs=rows_differ(outcome.ours) if planned.is_trained else "",
        ranges={cell.column: range_of(f"last {key}", cell.overrides) for cell in reversed(cells)} if key else {},
        outcome=outcome,
        verdict=outcome.verdict,
        file=file,
    )


def _experiment(name: str, file: Path) -> Experiment:
    """A shipped experiment, or the one whose text is kept with its results."""
    registered = registration.read(file.with_name(registration.FILE), name)
    if file.is_file():
        experiment = catalog.read(file, name)
        return experiment.known_as(name, experiment.text, registered)
    experiment = catalog.find(name)
    empty = registration.Registration()
    known = {budget: one.with_runs(registered.get(budget, empty)) for budget, one in experiment.registered.items()}
    return experiment.known_as(name, None, known)
