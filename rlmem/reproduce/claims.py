"""What the papers claim: their tables and figures, the items that reproduce them, and what tests every clause."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import yaml

from rlmem.config.paths import experiments_dir
from rlmem.errors import Fault
from rlmem.reproduce.catalog import find
from rlmem.reproduce.expect import NOT_TESTABLE
from rlmem.reproduce.spec import Experiment
from rlmem.stats.tables import Cell, Table


class Paper(NamedTuple):
    """A paper: its title, and what its tables and figures are reproduced by.

    places: the name of a table or figure -> the items, or the reason why there is none
    """

    title: str
    places: Mapping[str, tuple[str, ...] | str]


def papers() -> dict[str, Paper]:
    """The papers by the name of their folder, from experiments/papers/*.yaml."""
    root = experiments_dir()
    return (
        {file.stem: _paper(file.read_text(encoding="utf-8")) for file in sorted(root.glob("papers/*.yaml"))}
        if root
        else {}
    )


def table() -> Table:
    """A line for every clause of every item, and for every table and figure that has none."""
    lines: list[list[Cell]] = []
    for paper, (_, places) in papers().items():
        shown: set[str] = set()
        for place, items in places.items():
            if isinstance(items, str):
                lines.append([paper, place, "", items, ""])
                continue
            for item in items:
                if item in shown:
                    lines.append([paper, place, f"`{item}`", "see above", ""])
                    continue
                shown.add(item)
                lines += [[paper, place, f"`{item}`", *clause] for clause in _clauses(find(item)[1])]
    return Table("", ["paper", "there", "item", "what it says", "tested by"], lines)


def _clauses(experiment: Experiment) -> Iterator[tuple[str, str]]:
    """(clause, its expectations or why there are none) of an item, at the budget `paper`, or else at `laptop`."""
    tested: dict[str, str] = {}
    why: dict[str, str] = {}
    for budget, where in (("paper", ""), ("laptop", "at the budget laptop: ")):
        at, found = experiment.at(budget), defaultdict[str, list[str]](list)
        for expectation in at.expectations:
            found[expectation.clause].append(f"`{expectation.text}`")
        tested = {clause: f"{where}{'; '.join(texts)}" for clause, texts in found.items()} | tested
        why = {clause.clause: f"{NOT_TESTABLE}: {clause.reason}" for clause in at.untestable} | why
    yield from tested.items()
    yield from ((clause, reason) for clause, reason in why.items() if clause not in tested)


def _paper(text: str) -> Paper:
    content: Any = yaml.safe_load(text)
    if not isinstance(content, dict):
        raise Fault("experiments/papers: a file is no mapping")
    named = {
        str(place): tuple(given)
        if isinstance(given, list)
        else (given,)
        if "/" in given and " " not in given
        else given
        for place, given in content.items()
    }
    return Paper(text.partition("\n")[0].removeprefix("#").strip(), named)
