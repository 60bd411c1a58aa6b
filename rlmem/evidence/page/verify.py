"""Recompute all that is published from the data it is made of, and name what differs.

From the series or curves of its runs follow the metrics of every run, from these the tables and verdicts of RESULTS.md
and the rankings of pages, and from the curves the pictures. Checksums cover what follows from nothing.
"""

import io
import re
import shutil
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import unified_diff
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree import ElementTree

import numpy as np

from rlmem.config.messages import shell
from rlmem.config.paths import results_dir
from rlmem.core import received
from rlmem.core.errors import UserError
from rlmem.evidence.metrics import MOST, NORMALISED, curve_key, reduced, thinned
from rlmem.evidence.page import leaderboard
from rlmem.evidence.page.documents import SUMS, checksums, curves, document, picture
from rlmem.evidence.page.find import Item, find, published
from rlmem.evidence.published import measured
from rlmem.evidence.records import (
    DRAWN,
    RECORDED,
    SERIES,
    STORED,
    Curve,
    Place,
    Record,
    Series,
    is_analysed,
    read_series,
)
from rlmem.evidence.references import reference_of
from rlmem.evidence.tables import provenance_problem
from rlmem.record import figures

SHOWN = 20
"""The greatest number of differing lines of one file that are named."""
APART = 0.05
"""How far apart, in points of 1/72 inch, equal curves may be that two versions of matplotlib drew."""
CURVES, LINES = re.compile(r"(mean|band|dot)-\d+"), re.compile(r"line2d_\d+")
"""The names of groups of an SVG that show data: those of learning curves, and what matplotlib calls any line."""
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")


@dataclass
class Verified:
    """What was recomputed.

    differs: a sentence for everything that does not follow from the data
    notes: a sentence for what cannot be recomputed, and for results that nobody could make again
    items, runs, numbers, pictures, documents: how many were recomputed
    """

    differs: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    items: int = 0
    runs: int = 0
    numbers: int = 0
    pictures: int = 0
    documents: int = 0


def verify(folder: Path, written: Path | None = None, pictures: bool = True) -> Verified:
    """Recompute the published results in a folder, the document that was written of them, and its pages of rankings.

    written: the document; None for RESULTS.md beside the folder, which results that rlmem does not ship may lack
    pictures: draw the pictures of all curves again, too, which takes a second for each

    Raises UserError if there are no results, or files that cannot be read.
    """
    items = published(find([folder]), "rlmem verify-results results")
    verified = Verified(items=len(items))
    named, written = written is not None, written or folder.parent / "RESULTS.md"
    lacking = verified.differs if _is_checkout(folder) else verified.notes
    if (folder / SUMS).is_file():
        verified.differs += _changed_files(folder)
    else:
        lacking.append(f"{folder / SUMS}: there is none; `rlmem report {shell(folder)} --markdown FILE` writes it")
    draws = all(find_spec(name) for name in ("matplotlib", "jinja2"))
    if not draws:
        why = "matplotlib or Jinja is not installed"
        verified.notes.append(f"pictures, rankings and the document are not compared: {why}")
    for item in items:
        if problem := provenance_problem(item.outcome.ours):
            verified.notes.append(f"{item.label}: {problem}")
        _check_numbers(item, verified)
        if pictures and draws and item.outcome.curves:
            again = io.StringIO()
            figures.save(curves(item), again, "svg")
            _check_picture(picture(item), again.getvalue(), verified)
    if not written.is_file():
        (verified.differs if named else lacking).append(f"{written}: there is none to compare")
    elif draws:
        _check_text(written, document(items, written.parent), verified)
    for page, outcome in leaderboard.rankings(items, written.parent).items() if draws else ():
        with TemporaryDirectory() as temporary:
            for path in leaderboard.page(outcome, Path(shutil.copy(page, temporary))):
                there, text = page.parent / path.relative_to(temporary), received.text(path)
                if path.suffix == page.suffix:
                    _check_text(there, text, verified)
                elif pictures:
                    _check_picture(there, text, verified)
    if not (verified.numbers or verified.pictures or verified.documents):
        verified.differs.append(f"{folder}: nothing of it could be recomputed")
    return verified


def _is_checkout(folder: Path) -> bool:
    """Whether this folder is that of a checkout of rlmem, which is whole; an installed rlmem has the numbers alone."""
    shipped, package = results_dir(), Path(__file__).resolve().parents[2]
    return shipped is not None and folder.resolve() == shipped.resolve() != package / "results"


def _changed_files(folder: Path) -> list[str]:
    """A sentence for every file whose checksum is not the one in SUMS."""
    split = lambda text: {name: digest for digest, _, name in (line.partition("  ") for line in text.splitlines())}  # noqa: E731
    listed, there = split(received.text(folder / SUMS, errors="replace")), split(checksums(folder))
    problems = {name: f"its checksum is not the one in {SUMS}" for name in listed if listed[name] != there.get(name)}
    problems |= dict.fromkeys(listed.keys() - there.keys(), f"is missing; {SUMS} lists it")
    problems |= dict.fromkeys(there.keys() - listed.keys(), f"is not listed in {SUMS}")
    return [f"{folder / name}: {problems[name]}" for name in sorted(problems)]


def _check_numbers(item: Item, verified: Verified) -> None:
    """Recompute the metrics of every run, and the curves, from what is stored of them."""
    assert item.file is not None
    series, drawn = read_series(item.file.with_suffix(SERIES)), {curve.place: curve for curve in item.curves}
    peers: dict[Place, Record] = {}
    with suppress(UserError):  # an installed rlmem lacks the files of peers
        peers = {record.place: record for record in measured(item.outcome.planned)[0]}
    for place in sorted({*(key[:3] for key in series), *drawn} - {run.place for run in item.outcome.records}):
        verified.differs.append(f"{item.file}: {_named(place)} has values over its steps, but no line here")
    unknown: dict[str, set[str]] = defaultdict(set)
    for run in item.outcome.records:
        verified.runs += 1
        where = _named(run.place)
        for metric, value in run.metrics.items():
            again = _recomputed(item, run, metric, series, drawn.get(run.place), peers.get(run.place))
            if isinstance(again, str):
                unknown[again].add(metric)
                continue
            number, apart = again
            verified.numbers += 1
            if not np.isclose(value, number, rtol=5.1 * 10.0**-RECORDED, atol=apart, equal_nan=True):
                what = f"{metric} of {where} is {value:.{RECORDED}g}, its values give {number:.{RECORDED}g}"
                verified.differs.append(f"{item.file}: {what}")
        if (points := series.get((*run.place, item.key))) and (curve := drawn.get(run.place)):
            steps, values = thinned(points)
            if list(curve.steps) != steps or not np.allclose(curve.values, values, 5.1 * 10.0**-DRAWN, 1e-12):
                verified.differs.append(f"{item.file.with_suffix('.curves.csv')}: {where} is not its series")
    if item.outcome.pictures:
        unknown["drawn from what is not stored"].add("pictures of analyses and measurements")
    for why, names in unknown.items():
        verified.notes.append(f"not recomputed, {why}: {', '.join(sorted(names))} of {item.label}")


def _named(place: Place) -> str:
    return f"{' on '.join(filter(None, place[:2]))}, seed {place[2]},"


def _recomputed(
    item: Item, run: Record, metric: str, series: Series, curve: Curve | None, peer: Record | None
) -> tuple[float, float] | str:
    """A metric of a run, and by how much the rounding of what is stored may have moved it; or why it is not known."""
    planned = item.outcome.planned
    if run.row in planned.experiment.peers:
        return (peer.metrics[metric], 0.0) if peer and metric in peer.metrics else "of peers without their file"
    if not planned.is_trained or is_analysed(metric):
        return "results of analyses" if planned.is_trained else "measured"
    key = curve_key(metric)
    points, digits = series.get((*run.place, key), []), STORED
    if not points and curve is not None and key == item.key and len(curve.steps) < MOST:
        points, digits = list(zip(curve.steps, curve.values, strict=True)), DRAWN
    if not points:
        return "read from series that are not stored"
    reference = None
    if metric.startswith(NORMALISED):
        options = dict(line.partition("=")[::2] for line in run.overrides.split())
        reference = reference_of(planned.experiment.task_of(run.column) or options.get("env.id") or options["env"])
    apart = max(abs(value) for _, value in points) * 5 * 10.0**-digits
    return reduced(metric, points, reference), apart * (reference.scale if reference else 1)


def _check_picture(path: Path, again: str, verified: Verified) -> None:
    """Compare a picture with the one drawn again. Another version of matplotlib draws the same in other words."""
    verified.pictures += 1
    text = received.text(path, errors="replace") if path.is_file() else None
    if text is None:
        verified.differs.append(f"{path}: is missing")
    elif text != again and alike(text, again):
        verified.notes.append(f"{path}: was drawn by another version of matplotlib; it shows the same")
    elif text != again:
        verified.differs.append(f"{path}: its curves or words are not those of the data")


def alike(one: str, other: str) -> bool:
    """Whether two SVGs show the same: lines at the same places, and the same words in the same order."""
    try:
        (ours, our_words), (theirs, their_words) = (_drawn(ElementTree.fromstring(svg)) for svg in (one, other))
    except ElementTree.ParseError:
        return False
    same = our_words == their_words and len(ours) == len(theirs)
    return same and np.allclose(ours, theirs, rtol=0, atol=APART)


def _drawn(svg: ElementTree.Element) -> tuple[list[float], list[str]]:
    """The coordinates of all that shows data, and every text."""
    groups = [[e for e in svg.iter() if kind.fullmatch(e.get("id", ""))] for kind in (CURVES, LINES)]
    parts = [part for group in groups[0] or groups[1] for part in group.iter()]
    texts = [part.get(name, "") for part in parts for name in ("d", "x", "y")]
    words = ["".join(element.itertext()).strip() for element in svg.iter() if element.tag.endswith("}text")]
    return [float(number) for text in texts for number in NUMBER.findall(text)], words


def _check_text(path: Path, expected: str, verified: Verified) -> None:
    """Compare a file with the text that the data give, line by line."""
    verified.documents += 1
    written = received.text(path, errors="replace")
    if written != expected:
        lines = [*unified_diff(written.splitlines(), expected.splitlines(), "written", "recomputed", "", "", 0, "")]
        more = [f"{len(lines) - SHOWN} more lines"] if len(lines) > SHOWN else []
        verified.differs += [f"{path}: {line}" for line in [*lines[:SHOWN], *more]]
