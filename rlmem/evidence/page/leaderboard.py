"""The picture of a leaderboard, and its part of a page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rlmem.core import received
from rlmem.core.errors import UserError, writing
from rlmem.evidence.leaderboard import Standings, games, ranking, standings
from rlmem.evidence.page.curves import require_matplotlib
from rlmem.evidence.page.documents import with_part
from rlmem.evidence.page.find import Item
from rlmem.evidence.page.groups import facts_of
from rlmem.evidence.statistics import performance_profile
from rlmem.evidence.verdict import Outcome
from rlmem.record import figures, rundir
from rlmem.record.tables import in_markdown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHOWN = 5
"""How many of the best rows have a colour of their own, beside the one that all are compared with and the user's."""
GREY = "#6b737c"
"""The colour of the other rows."""
WIDTH, LINE, LEAST = 11.5, 0.21, 3.4
"""Of the picture, in inches: its width, the height of a row, and the least height of all."""


MARK = "<!-- leaderboard:begin -->"


def rankings(items: Sequence[Item], folder: Path) -> dict[Path, Standings]:
    """Page -> its ranking, for the pages below `folder`; of an item with several budgets, the largest that has ranks.

    The pages are docs/<item>.md. Results in which no row has a run of every column have none.
    """
    ranked = {}
    for item in items:
        page = folder / "docs" / f"{item.name.rpartition('/')[2]}.md"
        board = standings(item.outcome)
        if board and board.scores and page.is_file() and MARK in received.text(page, errors="replace"):
            ranked[page] = board
    return ranked


def page(outcome: Outcome, file: Path) -> list[Path]:
    """Put the ranking between the marks `leaderboard` of a page, and its picture into images beside it.

    Returns the files that were written. Raises UserError where no row has runs in every game.
    """
    require_matplotlib()
    standing = standings(outcome)
    if standing is None or not standing.scores:
        raise UserError(f"--page {file}: no row of {outcome.name} has a run of every game yet")
    content, image = renewed(file, standing), file.parent / "images" / f"{_image(standing)}.svg"
    with writing(file, "--page /tmp/leaderboard.md"):
        image.parent.mkdir(parents=True, exist_ok=True)
        figures.save(picture(standing), image, "svg")
        rundir.write_atomically(file, content)
    return [file, image]


def renewed(file: Path, standings: Standings) -> str:
    """The page with this ranking between its marks. Raises UserError for a file without them."""
    return with_part(file, "leaderboard", text(standings))


def _image(board: Standings) -> str:
    return board.outcome.name.rpartition("/")[2]


def picture(standings: Standings) -> Figure:
    """Three panels: the score of every row with its interval, the score over the cost, and the performance profiles."""
    height = max(LEAST, 0.9 + LINE * len(standings.scores))
    drawing, grid = figures.figure(height, 1, 3, width=WIDTH)
    with figures.style():
        _scores(grid[0, 0], standings)
        _costs(grid[0, 1], standings)
        _profiles(grid[0, 2], standings)
    return drawing


def text(standings: Standings) -> str:
    """The part of a page between its marks."""
    outcome = standings.outcome
    about = facts_of([record for record in outcome.records if record.row in standings.scores])
    facts = "\n".join(f"- {in_markdown(f'{name}: {fact}')}" for name, fact in about.items() if fact)
    shown = f"![Scores, costs and performance profiles of the memories](images/{_image(standings)}.svg)"
    tables = f"{ranking(standings).markdown()}\n{shown}\n\n{games(standings).markdown()}"
    return f"\n{tables}\n{facts}\n\n"


def _scores(axes: Axes, standings: Standings) -> None:
    names = list(standings.aggregate)
    for place, name in enumerate(names):
        score, colour = standings.aggregate[name], _colour(standings, name)
        if np.isfinite(score.low):
            axes.plot([score.low, score.high], [place, place], color=colour, lw=3, alpha=0.35, solid_capstyle="butt")
        axes.plot(score.value, place, "o", color=colour, ms=5)
    axes.set_yticks(range(len(names)), [f"{name} {place}" for place, name in enumerate(names, 1)])
    axes.invert_yaxis()
    axes.set(xlabel="score", title=f"Interquartile mean over {len(standings.columns)} games")


def _costs(axes: Axes, standings: Standings) -> None:
    """The score over the cost of a run, with the place of each row; those whose cost is not known are missing."""
    costs = [standings.cost(name) for name in standings.aggregate]
    for place, (name, cost) in enumerate(zip(standings.aggregate, costs, strict=True), 1):
        if cost is not None:
            score, colour = standings.aggregate[name].value, _colour(standings, name)
            axes.plot(cost, score, "o", color=colour, ms=5)
            axes.annotate(str(place), (cost, score), (4, 3), textcoords="offset points", fontsize=8, color=colour)
    axes.set_xlim(0, 1.1 * max((cost for cost in costs if cost is not None), default=1.0))
    axes.set(xlabel="core-seconds of a run", ylabel="score", title="Score and cost")


def _profiles(axes: Axes, standings: Standings) -> None:
    thresholds = np.linspace(0, 1, 101)
    for name in standings.aggregate:
        colour = _colour(standings, name)
        fraction = performance_profile(standings.scores[name], thresholds)
        if colour == GREY:
            axes.plot(thresholds, fraction, color=figures.GRID, lw=0.9, zorder=2)
        else:
            dash = "dashed" if name == standings.board.beside else "solid"
            axes.plot(thresholds, fraction, color=colour, ls=dash, lw=1.8, zorder=3, label=name)
    axes.legend(fontsize=8)
    axes.set(xlabel="score τ", ylabel="share of runs with more than τ", title="Performance profiles")


def _colour(standings: Standings, name: str) -> str:
    """The best rows have a colour each, and so do the user's own; the one that all are compared with is black."""
    if name == standings.board.beside:
        return figures.INK
    names = [row for row in standings.aggregate if row != standings.board.beside]
    own = [row for row in names if row in standings.outcome.planned.own_rows]
    distinct = list(dict.fromkeys([*own, *names[:SHOWN]]))
    return figures.COLOURS[distinct.index(name) % len(figures.COLOURS)] if name in distinct else GREY
