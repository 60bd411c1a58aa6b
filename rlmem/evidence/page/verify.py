"""Recompute all that is published from the data it is made of, and say what differs.

From the series or curves of its runs follow the metrics of every run, from these the tables and verdicts of RESULTS.md
and the rankings of pages, and from the curves the pictures. Checksums hold what follows from nothing.
"""

import io
import shutil
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from math import inf, isinf, isnan
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from rlmem.config.messages import shell
from rlmem.config.paths import results_dir
from rlmem.errors import UserError
from rlmem.evidence.cells import cells
from rlmem.evidence.metrics import MOST, NORMALISED, curve_key, reduced, thinned
from rlmem.evidence.outcome import Curve, Outcome, Record
from rlmem.evidence.page import leaderboard
from rlmem.evidence.page.compare import alike, differing
from rlmem.evidence.page.data import SUMS, checksums
from rlmem.evidence.page.find import Item, find, published
from rlmem.evidence.page.markdown import curves, document, picture
from rlmem.evidence.page.rankings import rankings
from rlmem.evidence.peers import measured
from rlmem.evidence.series import SUFFIX, Series, is_analysed, read_series
from rlmem.evidence.tables import provenance_problem
from rlmem.stats import Reference, figures, reference_of
from rlmem.system import received

RECORDED, DRAWN, STORED = 6, 5, 9
"""The digits of numbers in the files of records, curves and series (`rlmem.evidence.outcome`, `.series`)."""
Place = tuple[str, str, int]
"""The row, the column and the seed of a run."""
SHOWN = 20
"""The greatest number of differing lines of one file that are named."""


@dataclass
class Verified:
    """What was found.

    differs: a sentence for everything that does not follow from the data
    notes: a sentence for what cannot be recomputed, and for results that nobody could make again
    items, runs, numbers, pictures, documents: how many were recomputed
    alone: metrics that are kept as one number of a run, and why nothing is beneath them -> the items that have them
    """

    differs: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    items: int = 0
    runs: int = 0
    numbers: int = 0
    pictures: int = 0
    documents: int = 0
    alone: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))


def verify(folder: Path, written: Path | None = None, pictures: bool = True) -> Verified:
    """Recompute the published results in a folder, the document that was written of them, and its pages of rankings.

    written: the document; None for RESULTS.md beside the folder, which results that rlmem does not ship may lack
    pictures: draw the pictures of all curves again, too, which takes a second for each

    Raises UserError if there are no results, or files that cannot be read.
    """
    found, items = Verified(), published(find([folder]), "rlmem verify-results results")
    named, written = written is not None, written or folder.parent / "RESULTS.md"
    lacking = found.differs if _is_checkout(folder) else found.notes
    found.items = len(items)
    if (folder / SUMS).is_file():
        _check_sums(folder, found)
    else:
        lacking.append(f"{folder / SUMS}: there is none; `rlmem report {shell(folder)} --markdown FILE` writes it")
    draws = find_spec("matplotlib") is not None
    if pictures and not draws:
        found.notes.append("pictures are not drawn again: matplotlib is not installed")
    for item in items:
        if problem := provenance_problem(item.outcome.ours):
            found.notes.append(f"{item.label}: {problem}")
        _check_numbers(item, found)
        if item.outcome.pictures:
            found.alone["pictures of analyses and measurements: drawn from what is not stored"].append(item.label)
        if pictures and draws and item.outcome.curves:
            again = io.StringIO()
            figures.save(curves(item), again, "svg")
            _check_picture(picture(item), again.getvalue(), found)
    if written.is_file():
        _check_lines(written, document(items, written.parent), found)
    else:
        (found.differs if named else lacking).append(f"{written}: there is none to compare")
    for page, outcome in rankings(items, written.parent).items():
        if draws:
            _check_page(page, outcome, pictures, found)
        else:
            found.notes.append(f"{page}: its ranking is not compared: matplotlib is not installed")
    for what, labels in found.alone.items():
        found.notes.append(f"not recomputed, {what} ({'; '.join(labels)})")
    if not (found.numbers or found.pictures or found.documents):
        found.differs.append(f"{folder}: nothing of it could be recomputed")
    return found


def _is_checkout(folder: Path) -> bool:
    """Whether this folder is that of a checkout of rlmem, which is whole; an installed rlmem has the numbers alone."""
    shipped, package = results_dir(), Path(__file__).resolve().parents[2]
    return shipped is not None and folder.resolve() == shipped.resolve() != package / "results"


def _check_sums(folder: Path, found: Verified) -> None:
    """Compare the checksums of all files with those in SUMS."""
    split = lambda text: {name: digest for digest, _, name in (line.partition("  ") for line in text.splitlines())}  # noqa: E731
    listed, there = split(received.text(folder / SUMS, errors="replace")), split(checksums(folder))
    for name in sorted(listed.keys() | there.keys()):
        if name not in there:
            found.differs.append(f"{folder / name}: is missing; {SUMS} lists it")
        elif name not in listed:
            found.differs.append(f"{folder / name}: is not listed in {SUMS}")
        elif listed[name] != there[name]:
            found.differs.append(f"{folder / name}: its checksum is not the one in {SUMS}")


# The numbers of runs


def _check_numbers(item: Item, found: Verified) -> None:
    """Recompute the metrics of every run, and the curves, from what is stored of them."""
    assert item.file is not None
    file, series = item.file, read_series(item.file.with_suffix(SUFFIX))
    drawn = {(c.row, c.column, c.seed): c for c in item.curves}
    runs = {(r.row, r.column, r.seed): r for r in item.outcome.records}
    found.runs += len(runs)
    for place in dict.fromkeys([*(key[:3] for key in series), *drawn]):
        if place not in runs:
            found.differs.append(f"{file}: {_named(place)} has values over its steps, but no line here")
    theirs = _of_peers(item, found)
    _check_places(item, theirs, found)
    alone: dict[str, dict[str, set[Place]]] = defaultdict(lambda: defaultdict(set))
    for place, run in runs.items():
        if run.row in item.outcome.experiment.peers:
            _check_peer(file, run, (theirs or {}).get(place), found)
            continue
        for metric, value in run.metrics.items():
            if not item.outcome.experiment.is_trained:
                alone["measured"][metric].add(place)
            elif is_analysed(metric):
                alone["results of analyses"][metric].add(place)
            elif (stored := _stored(item, series, drawn.get(place), run, metric)) is None:
                alone["read from series that are not stored"][metric].add(place)
            else:
                low, high = _range(metric, *stored, reference=_reference(item, run, metric))
                found.numbers += 1
                if not _within(value, low, high):
                    near = f"{low:.{RECORDED}g}" if low == high else f"{low:.{RECORDED}g} to {high:.{RECORDED}g}"
                    what = f"{metric} of {_named(place)} is {value:.{RECORDED}g}, its values over the steps give {near}"
                    found.differs.append(f"{file}: {what}")
        if (points := series.get((*place, item.key))) and (own := drawn.get(place)):
            steps, values = thinned(points)
            if list(own.steps) != steps or not _equal(own.values, values, DRAWN):
                found.differs.append(f"{file.with_suffix('.curves.csv')}: {_named(place)} is not its series")
    for why, metrics in alone.items():
        without = len(set().union(*metrics.values()))
        label = f"{item.label}, {without} of {len(item.outcome.ours)} runs"
        found.alone[f"{', '.join(sorted(metrics))}: {why}"].append(label)


def _check_places(item: Item, theirs: Mapping[Place, Record] | None, found: Verified) -> None:
    """Every run has one line, and belongs to the item: it is planned, or in the file of its peer if that is there."""
    outcome = item.outcome
    known = {(cell.row, cell.column, seed) for cell in cells(outcome.experiment, outcome.budget) for seed in cell.seeds}
    for place, lines in Counter((r.row, r.column, r.seed) for r in outcome.records).items():
        if lines > 1:
            found.differs.append(f"{item.file}: {_named(place)} has {lines} lines")
        if place[0] not in outcome.experiment.peers and place not in known:
            found.differs.append(f"{item.file}: {_named(place)} is no run of {item.label}")
        if place[0] in outcome.experiment.peers and theirs is not None and place not in theirs:
            found.differs.append(f"{item.file}: {_named(place)} is not in the file of its runs")


def _named(place: Place) -> str:
    return f"{' on '.join(filter(None, place[:2]))}, seed {place[2]},"


def _stored(
    item: Item, series: Series, curve: Curve | None, run: Record, metric: str
) -> tuple[Sequence[tuple[int, float]], int] | None:
    """What is stored of the key behind a metric, and with how many digits; None if that is not all of its values."""
    key = curve_key(metric)
    if points := series.get((run.row, run.column, run.seed, key)):
        return points, STORED
    if curve is not None and key == item.key and len(curve.steps) < MOST:
        return list(zip(curve.steps, curve.values, strict=True)), DRAWN
    return None


def _range(
    metric: str, points: Sequence[tuple[int, float]], digits: int, reference: Reference | None
) -> tuple[float, float]:
    """The least and the greatest value of a metric whose series was rounded. All reductions are monotone."""
    moved = [[(step, v + sign * abs(v) * 5 * 10.0**-digits) for step, v in points] for sign in (-1, 0, 1)]
    values = [reduced(metric, each, reference) for each in moved]
    return min(values), max(values)


def _within(value: float, low: float, high: float) -> bool:
    """Whether a rounded number lies in a range."""
    if isnan(value) or isnan(low):
        return isnan(value) and isnan(low)
    slack = 0.0 if isinf(value) else abs(value) * 5.1 * 10.0**-RECORDED
    return low - slack <= value <= high + slack


def _equal(one: Sequence[float], other: Sequence[float], digits: int) -> bool:
    """Whether numbers are equal when rounded to so many digits, or nearly so."""
    return len(one) == len(other) and np.allclose(one, other, rtol=5.1 * 10.0**-digits, atol=1e-12, equal_nan=True)


def _reference(item: Item, run: Record, metric: str) -> Reference | None:
    """What normalises a metric: the reference of the column's task, or else of the run's environment."""
    if not metric.startswith(NORMALISED):
        return None
    given = dict(line.partition("=")[::2] for line in run.overrides.split())
    task = item.outcome.experiment.task_of(run.column) or given.get("env.id") or given.get("env", "")
    try:
        return reference_of(task)
    except ValueError as error:
        raise UserError(f"{item.file}: {error}") from error


def _of_peers(item: Item, found: Verified) -> Mapping[Place, Record] | None:
    """The runs of peers, read from their own files again; None where these are not installed."""
    if not item.outcome.experiment.peers:
        return {}
    try:
        records, _ = measured(item.outcome.experiment, item.outcome.budget)
    except UserError as error:
        found.notes.append(f"{item.label}: the runs of peers are not compared with their files; {error}")
        return None
    return {(r.row, r.column, r.seed): r for r in records}


def _check_peer(file: Path, run: Record, theirs: Record | None, found: Verified) -> None:
    for metric, value in run.metrics.items() if theirs else ():
        assert theirs is not None
        exact = theirs.metrics.get(metric, -inf)
        found.numbers += 1
        if not _within(value, exact, exact):
            place = _named((run.row, run.column, run.seed))
            what = f"{metric} of {place} is {value:.{RECORDED}g}, the file of its runs gives {exact:.{RECORDED}g}"
            found.differs.append(f"{file}: {what}")


# Pictures and documents


def _check_picture(path: Path, again: str, found: Verified) -> None:
    """Compare a picture with the one drawn again. Another version of matplotlib draws the same in other words."""
    found.pictures += 1
    there = received.text(path, errors="replace") if path.is_file() else None
    if there is None:
        found.differs.append(f"{path}: is missing")
    elif there != again and alike(there, again):
        found.notes.append(f"{path}: was drawn by another version of matplotlib; it shows the same")
    elif there != again:
        found.differs.append(f"{path}: its curves or words are not those of the data")


def _check_page(page: Path, outcome: Outcome, pictures: bool, found: Verified) -> None:
    """Rank again, and compare a page with one that has this ranking between its marks."""
    with TemporaryDirectory() as folder:
        again = shutil.copy(page, folder)
        for path in leaderboard.page(outcome, Path(again)):
            there, text = page.parent / path.relative_to(folder), received.text(path)
            if path.suffix == page.suffix:
                _check_lines(there, text, found)
            elif pictures:
                _check_picture(there, text, found)


def _check_lines(path: Path, expected: str, found: Verified) -> None:
    """Compare a file with the text that the data give, line by line."""
    found.documents += 1
    written = received.text(path, errors="replace")
    if written != expected:
        lines = list(differing(written.splitlines(), expected.splitlines()))
        more = [f"{len(lines) - SHOWN} more lines"] if len(lines) > SHOWN else []
        found.differs += [f"{path}: {line}" for line in [*lines[:SHOWN], *more]]
