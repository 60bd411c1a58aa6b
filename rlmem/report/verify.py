"""Recompute all that is published from the data it is made of, and say what differs.

From the series or curves of its runs follow the metrics of every run, from these the tables and verdicts of RESULTS.md,
and from the curves its pictures. Checksums hold what follows from nothing.
"""

import csv
import io
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from importlib.util import find_spec
from math import inf, isinf, isnan
from pathlib import Path
from xml.etree import ElementTree

import numpy as np

from rlmem.config.messages import shell
from rlmem.errors import UserError
from rlmem.report.data import SUMS, checksums
from rlmem.report.find import Item, find, published
from rlmem.report.markdown import curves, document, picture
from rlmem.reproduction.metrics import MOST, NORMALISED, curve_key, reduced, thinned
from rlmem.reproduction.outcome import Curve, Record
from rlmem.reproduction.peers import measured
from rlmem.reproduction.series import SUFFIX, Series, is_analysed, read_series
from rlmem.reproduction.tables import provenance_problem
from rlmem.stats import Reference, figures, reference_of

RECORDED, DRAWN, STORED = 6, 5, 9
"""The digits of numbers in the files of records, curves and series (`rlmem.reproduction.outcome`, `.series`)."""
APART = 0.05
"""How far apart, in points of 1/72 inch, equal curves may be that two versions of matplotlib drew."""
GROUPS = re.compile(r"(mean|band|dot)-\d+")
SHOWN = 20
"""The greatest number of differing lines of one file that are named."""


@dataclass
class Verified:
    """What was found.

    differs: a sentence for everything that does not follow from the data
    notes: a sentence for what cannot be recomputed, and for results that nobody could make again
    items, runs, numbers, pictures: how many were recomputed
    alone: metrics that are kept as one number of every run, and why nothing is beneath them -> the items that have them
    """

    differs: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    items: int = 0
    runs: int = 0
    numbers: int = 0
    pictures: int = 0
    alone: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))


def verify(folder: Path, written: Path, pictures: bool = True) -> Verified:
    """Recompute the published results in a folder, and the document that was written of them.

    pictures: draw the pictures of all curves again, too, which takes a second for each

    Raises UserError if there are no results, or files that cannot be read.
    """
    found, items = Verified(), published(find([folder]), "rlmem verify-results results")
    found.items = len(items)
    _check_sums(folder, found)
    if pictures and find_spec("matplotlib") is None:
        found.notes.append("pictures are not drawn again: matplotlib is not installed")
        pictures = False
    for item in items:
        if problem := provenance_problem(item.outcome.ours):
            found.notes.append(f"{item.label}: {problem}")
        _check_numbers(item, found)
        if item.outcome.pictures:
            found.alone["pictures of analyses and measurements: drawn from what is not stored"].append(item.label)
        if pictures and item.outcome.curves:
            _check_picture(item, found)
    _check_lines(written, document(items, written.parent), found)
    for what, labels in found.alone.items():
        found.notes.append(f"not recomputed, {what} ({', '.join(labels)})")
    return found


def _check_sums(folder: Path, found: Verified) -> None:
    """Compare the checksums of all files with those in SUMS."""
    if not (folder / SUMS).is_file():
        found.notes.append(f"{folder / SUMS}: there is none; `rlmem report {shell(folder)} --markdown FILE` writes it")
        return
    split = lambda text: {name: digest for digest, _, name in (line.partition("  ") for line in text.splitlines())}  # noqa: E731
    listed, there = split((folder / SUMS).read_text(encoding="utf-8", errors="replace")), split(checksums(folder))
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
    alone: dict[str, set[str]] = defaultdict(set)
    theirs = _of_peers(item, found)
    for place, run in runs.items():
        if run.row in item.outcome.experiment.peers:
            _check_peer(file, run, theirs.get(place), found)
            continue
        for metric, value in run.metrics.items():
            if not item.outcome.experiment.is_trained:
                alone["measured"].add(metric)
            elif is_analysed(metric):
                alone["results of analyses"].add(metric)
            elif (stored := _stored(item, series, drawn.get(place), run, metric)) is None:
                alone["read from series that are not stored"].add(metric)
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
        found.alone[f"{', '.join(sorted(metrics))}: {why}"].append(item.label)


def _named(place: tuple[str, str, int]) -> str:
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


def _of_peers(item: Item, found: Verified) -> Mapping[tuple[str, str, int], Record]:
    """The runs of peers, read from their own files again; none where these are not installed."""
    if not item.outcome.experiment.peers:
        return {}
    try:
        records, _ = measured(item.outcome.experiment, item.outcome.budget)
    except UserError as error:
        found.notes.append(f"{item.label}: the runs of peers are not compared with their files; {error}")
        return {}
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


# Pictures


def _check_picture(item: Item, found: Verified) -> None:
    """Draw the curves again. Another version of matplotlib draws them at the same places in other words."""
    path = picture(item)
    found.pictures += 1
    if not path.is_file():
        found.differs.append(f"{path}: is missing")
        return
    again = io.StringIO()
    figures.save(curves(item), again, "svg")
    there = path.read_text(encoding="utf-8", errors="replace")
    if there == again.getvalue():
        return
    ours, theirs = (_places(text) for text in (again.getvalue(), there))
    if ours.keys() == theirs.keys() and all(
        len(ours[name]) == len(theirs[name]) and np.allclose(ours[name], theirs[name], rtol=0, atol=APART)
        for name in ours
    ):
        found.notes.append(f"{path}: was drawn by another version of matplotlib; its curves are the same")
    else:
        found.differs.append(f"{path}: its curves are not those of the data")


def _places(svg: str) -> dict[str, list[float]]:
    """Number and name of a group of an SVG that shows data -> the coordinates in it."""
    try:
        root = ElementTree.fromstring(svg)
    except ElementTree.ParseError:
        return {}
    groups = [e for e in root.iter() if GROUPS.fullmatch(e.get("id", ""))]
    numbers = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")
    return {
        f"{k} {group.get('id')}": [
            float(number)
            for element in group.iter()
            for name in ("d", "x", "y")
            for number in numbers.findall(element.get(name, ""))
        ]
        for k, group in enumerate(groups)
    }


# Documents


def _check_lines(path: Path, expected: str, found: Verified) -> None:
    """Compare a file with the text that the data give, line by line."""
    if not path.is_file():
        found.notes.append(f"{path}: there is none to compare")
        return
    written = path.read_text(encoding="utf-8", errors="replace")
    if written != expected:
        lines = list(_differing(written.splitlines(), expected.splitlines()))
        more = [f"{len(lines) - SHOWN} more lines"] if len(lines) > SHOWN else []
        found.differs += [f"{path}: {line}" for line in [*lines[:SHOWN], *more]]


def _differing(written: Sequence[str], expected: Sequence[str]) -> Iterator[str]:
    """A sentence for every line that differs, with the cells that do if both are lines of a table."""
    begin = _common(written, expected)
    end = _common(written[: begin - 1 if begin else None : -1], expected[: begin - 1 if begin else None : -1])
    old, new = written[begin : len(written) - end], expected[begin : len(expected) - end]
    for kind, i, i_end, j, j_end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            continue
        for k in range(max(i_end - i, j_end - j)):
            has, gives = (old[i + k] if i + k < i_end else None), (new[j + k] if j + k < j_end else None)
            yield f"line {begin + i + k + 1}{_heading(expected, begin + j)}: {_apart(has, gives)}"


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """How many lines both begin with."""
    unequal = (k for k, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return next(unequal, min(len(one), len(other)))


def _heading(lines: Sequence[str], until: int) -> str:
    heads = (line for line in reversed(lines[: until + 1]) if line.startswith("## "))
    return next((f" ({head.removeprefix('## ')})" for head in heads), "")


def _apart(has: str | None, gives: str | None) -> str:
    if has is None or gives is None:
        return f"has `{has}`, which the data do not give" if gives is None else f"lacks `{gives}`"
    split = lambda line: line.split("|") if line.startswith("|") else next(csv.reader(io.StringIO(line)), [])  # noqa: E731
    ours, theirs = ([cell.strip() for cell in split(line)] for line in (has, gives))
    if len(ours) == len(theirs) > 2:
        cells = [(a, b) for a, b in zip(ours, theirs, strict=True) if a != b]
        row = " ".join(cell for cell in ours if cell)[:60]
        return f"{row}: " + "; ".join(f"has `{a}`, the data give `{b}`" for a, b in cells)
    return f"has `{has}`, the data give `{gives}`"
