"""The pages that show the ranking of published results: docs/<item>.md beside RESULTS.md."""

from collections.abc import Sequence
from pathlib import Path

from rlmem.evidence.leaderboard import standings
from rlmem.evidence.outcome import Outcome
from rlmem.evidence.page.find import Item
from rlmem.system import received

MARK = "<!-- leaderboard:begin -->"


def rankings(items: Sequence[Item], folder: Path) -> dict[Path, Outcome]:
    """Page -> what it ranks, for the pages below `folder`; of an item with several budgets, the largest that has ranks.

    Results in which no row has a run of every column have no page.
    """
    found = {}
    for item in items:
        page = folder / "docs" / f"{item.name.rpartition('/')[2]}.md"
        ranked = standings(item.outcome)
        if ranked and ranked.scores and page.is_file() and MARK in received.text(page, errors="replace"):
            found[page] = item.outcome
    return found
