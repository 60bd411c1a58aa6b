"""The numbers that papers print, as data: experiments/published/PAPER.csv has one row for each number.

Values stay as printed, also where they cannot be right: `misprints` lists those, with the values that would be.
docs/statistics.md names the source of every table, and what its spreads are.
"""

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from rlmem.config import plainyaml
from rlmem.config.messages import nearest, sentence
from rlmem.config.paths import experiments_dir
from rlmem.errors import Fault, UserError

PAPERS: dict[str, str] = plainyaml.read(Path(__file__).with_name("published.yaml"))
"""Name of a paper -> its citation."""


@dataclass(frozen=True)
class Printed:
    """A number as it is printed."""

    paper: str
    item: str
    """`table1`, `figure5`, `section4.3`, ..."""
    task: str
    """The paper's name of the task; `average` for its table's average, `all` for a whole benchmark."""
    model: str
    metric: str
    mean: float
    std: float | None
    """The number that the paper prints after +-, or as sigma; None where it prints none."""
    n: int | None
    """The number of runs; None where the paper does not say."""
    source: str


@dataclass(frozen=True)
class Misprint:
    """A printed number that contradicts others of its table."""

    published: Printed
    restored: float
    """The value that would agree, as far as rounding allows to tell."""
    reason: str


def load(paper: str | None = None, item: str | None = None) -> list[Printed]:
    """The numbers of one paper, or of one of its tables or figures; of all papers by default.

    Raises UserError for an unknown paper or item, Fault if the data are not installed.
    """
    _require("paper", paper, PAPERS)
    numbers = [n for name in ([paper] if paper else PAPERS) for n in _read(_folder() / f"{name}.csv")]
    _require("item", item, dict.fromkeys(number.item for number in numbers))
    return [number for number in numbers if item in (None, number.item)]


@cache
def misprints() -> tuple[Misprint, ...]:
    """The printed numbers that cannot be right, from experiments/published/misprints.yaml."""
    misprints = []
    for one in yaml.safe_load((_folder() / "misprints.yaml").read_text(encoding="utf-8")):
        about = one.pop("restored"), one.pop("reason")
        (number,) = [n for n in load(one["paper"], one["item"]) if one.items() <= vars(n).items()]
        misprints.append(Misprint(number, *about))
    return tuple(misprints)


def _folder() -> Path:
    root = experiments_dir()
    if root is None or not (folder := root / "published").is_dir():
        raise Fault("the published numbers are missing from this installation: no experiments/published beside conf")
    return folder


def _read(path: Path) -> Iterator[Printed]:
    for texts in csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))):
        mean, std, n = (texts.pop(name) for name in ("mean", "std", "n"))
        yield Printed(**texts, mean=float(mean), std=float(std) if std else None, n=int(n) if n else None)


def _require(what: str, word: str | None, known: dict[str, Any]) -> None:
    if word is not None and word not in known:
        where = f"published {what} {word}"
        raise UserError(sentence(where, "no such one", near=nearest(word, known), accepted=known))
