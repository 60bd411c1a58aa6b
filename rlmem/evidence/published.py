"""The numbers that papers print, as data: experiments/published/PAPER.csv has one row for each number.

Values stay as printed, also where they cannot be right: `misprints` lists those, with the values that would be.
docs/statistics.md names the source of every table, and what its spreads are.
"""

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rlmem.config.messages import nearest, sentence
from rlmem.config.paths import experiments_dir
from rlmem.errors import Fault, UserError
from rlmem.stats import expert_normalised, reference_of

PAPERS = {
    "ffm": "Morad et al. 2023, Reinforcement Learning with Fast and Forgetful Memory, arXiv:2310.04128",
    "memoroids": "Morad et al. 2024, Recurrent Reinforcement Learning with Memoroids, arXiv:2402.09900",
    "shm": "Le et al. 2025, Stable Hadamard Memory, arXiv:2410.10132",
    "rethinking_transformers": "Lu et al. 2024, Rethinking Transformers in Solving POMDPs, arXiv:2405.17358",
    "lprnn": "Stepleton et al. 2018, Low-pass Recurrent Neural Networks, arXiv:1805.04955",
    "pomdp_baselines": "Ni et al. 2022, Recurrent Model-Free RL Can Be a Strong Baseline, arXiv:2110.05038",
    "memory_rl": "Ni et al. 2023, When Do Transformers Shine in RL?, arXiv:2307.03864",
    "s5rl": "Lu et al. 2023, Structured State Space Models for In-Context Reinforcement Learning, arXiv:2303.03982",
}
"""Name of a paper -> its citation."""

AVERAGE = "average"
"""The task of a printed average of the other tasks of its table."""
ROUNDING = 0.1
"""The greatest rounding error between a printed average and that of its cells: both are printed to 0.1."""
RETURNS_OF = {"table2": "table6", "table7": "table7"}
"""Table of normalised scores in Rethinking Transformers -> the table of the returns behind them."""


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
class Average:
    """A printed average, and the average recomputed from its printed cells."""

    printed: Printed
    cells: tuple[Printed, ...]
    recomputed: float
    """The mean of the cells; that of normalised scores uses the printed returns and equation 3, for their digits."""

    @property
    def agrees(self) -> bool:
        """Whether rounding explains the difference."""
        return abs(self.printed.mean - self.recomputed) <= ROUNDING


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
    root = experiments_dir()
    if root is None or not (folder := root / "published").is_dir():
        raise Fault("the published numbers are missing from this installation: no experiments/published beside conf")
    rows = [row for name in ([paper] if paper else PAPERS) for row in _read(folder / f"{name}.csv")]
    _require("item", item, dict.fromkeys(row.item for row in rows))
    return [row for row in rows if item in (None, row.item)]


def averages() -> list[Average]:
    """Every printed average whose cells are printed too, recomputed."""
    rows, found = load(), []
    for printed in [row for row in rows if row.task == AVERAGE]:
        same = [row for row in rows if (row.paper, row.model) == (printed.paper, printed.model) and row.task != AVERAGE]
        cells = tuple(row for row in same if (row.item, row.metric) == (printed.item, printed.metric))
        values = [cell.mean for cell in cells]
        if printed.metric == "normalised_score":
            source = RETURNS_OF[printed.item], "return"
            returns = {row.task: row.mean for row in same if (row.item, row.metric) == source}
            values = [float(expert_normalised(returns[cell.task], reference_of(cell.task))) for cell in cells]
        found.append(Average(printed, cells, float(np.mean(values))))
    return found


def misprints() -> list[Misprint]:
    """The misprint behind each average that does not agree: a cell that repeats another task's, else the average."""
    return [_misprint(average) for average in averages() if not average.agrees]


def _misprint(average: Average) -> Misprint:
    printed, cells = average.printed, average.cells
    gap = f"the {len(cells)} cells average {average.recomputed:.2f}, the paper prints {printed.mean:g}"
    for cell, original in ((cell, other) for k, cell in enumerate(cells) for other in cells[:k]):
        if (cell.mean, cell.std) == (original.mean, original.std):
            restored = cell.mean + (printed.mean - average.recomputed) * len(cells)
            repeats = f"{cell.task} of {cell.model} repeats {original.task}"
            return Misprint(cell, restored, f"{repeats}, and {gap}; about {restored:.1f} would agree.")
    reason = f"The average of {printed.model} is not that of its column: {gap}."
    return Misprint(printed, average.recomputed, reason)


def _read(path: Path) -> Iterator[Printed]:
    for texts in csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))):
        mean, std, n = (texts.pop(name) for name in ("mean", "std", "n"))
        yield Printed(**texts, mean=float(mean), std=float(std) if std else None, n=int(n) if n else None)


def _require(what: str, word: str | None, known: dict[str, Any]) -> None:
    if word is not None and word not in known:
        where = f"published {what} {word}"
        raise UserError(sentence(where, "no such one", near=nearest(word, known), accepted=known))
