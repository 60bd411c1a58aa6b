"""What the papers claim: their tables and figures, the items that reproduce them, and what tests every clause."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping

import yaml

from rlmem.config.paths import experiments_dir
from rlmem.evidence.catalog import find
from rlmem.evidence.expect import NOT_TESTABLE
from rlmem.evidence.spec import Experiment
from rlmem.stats.tables import Cell, Table

Places = Mapping[str, list[str] | str]
"""The name of a table or figure -> the items that reproduce it, or the reason why there is none."""


def papers() -> dict[str, Places]:
    """The tables and figures of every paper, by the name of its folder, from experiments/papers/*.yaml."""
    root = experiments_dir()
    files = sorted(root.glob("papers/*.yaml")) if root else []
    return {file.stem: yaml.safe_load(file.read_text(encoding="utf-8")) for file in files}


def without_item() -> list[tuple[str, str, str]]:
    """(paper, table or figure, why) of every one that no item reproduces."""
    every = ((paper, place, items) for paper, places in papers().items() for place, items in places.items())
    return [(paper, place, items) for paper, place, items in every if isinstance(items, str)]


def table(only: Collection[str] = ()) -> Table:
    """A line for every clause of every item, and for every table and figure that has none.

    only: the papers that it is of; empty: all
    """
    lines: list[list[Cell]] = []
    shown: set[str] = set()
    for paper, places in papers().items():
        for place, items in places.items() if not only or paper in only else ():
            if isinstance(items, str):
                lines.append([paper, place, "", items, ""])
                continue
            for item in items:
                clauses = [("see above", "")] if item in shown else _clauses(find(item)[1])
                lines += [[paper, place, f"`{item}`", *clause] for clause in clauses]
                shown.add(item)
    return Table("", ["paper", "table or figure", "item", "what it says", "tested by"], lines)


def _clauses(experiment: Experiment) -> Iterator[tuple[str, str]]:
    """(clause, its expectations or why there are none) of an item, at the budget `paper`, or else at `laptop`."""
    tested: dict[str, str] = {}
    why: dict[str, str] = {}
    for budget, where in (("paper", ""), ("laptop", "at the budget laptop: ")):
        at, found = experiment.at(budget), defaultdict[str, list[str]](list)
        for expectation in at.expectations:
            found[expectation.clause].append(f"`{expectation.text}`")
        tested = {clause: f"{where}{'; '.join(texts)}" for clause, texts in found.items()} | tested
        why = {clause.clause: f"{NOT_TESTABLE}, {clause.reason}" for clause in at.untestable} | why
    yield from tested.items()
    yield from ((clause, reason) for clause, reason in why.items() if clause not in tested)
