"""Tables of a benchmark's numbers, on a terminal, in a document and as a plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import Any, NamedTuple

from rich.table import Table as RichTable

from rlmem.errors import UserError, extra

Cell = str | float | None
MARKERS = "os^Dv<>"


class Column(NamedTuple):
    """A column of numbers.

    Attributes:
        head: what stands above it.
        unit: what the numbers are. Columns of one unit share a panel of the plot; without a unit they are not drawn.
        digits: how a number is written; see `number`.
    """

    head: str
    unit: str = ""
    digits: str = ",.3g"


@dataclass(frozen=True)
class Table:
    """Texts and numbers in columns.

    Attributes:
        title: the line above the table.
        columns: a text is the head of a column of texts; those come first, and are the labels of the plot.
        rows: the cells.
    """

    title: str
    columns: Sequence[str | Column]
    rows: Sequence[Sequence[Cell]]

    def texts(self) -> list[list[str]]:
        """The heads, then the cells of each row, as they are written."""
        digits = [column.digits if isinstance(column, Column) else "" for column in self.columns]
        cells = [[number(*pair) for pair in zip(row, digits, strict=True)] for row in self.rows]
        return [[column if isinstance(column, str) else column.head for column in self.columns], *cells]

    def rich(self) -> RichTable:
        """The table for a terminal."""
        table = RichTable(title=self.title, title_justify="left")
        heads, *rows = self.texts()
        for head, column in zip(heads, self.columns, strict=True):
            table.add_column(head, justify="left" if isinstance(column, str) else "right", no_wrap=True)
        for row in rows:
            table.add_row(*row)
        return table

    def markdown(self) -> str:
        """The table for a document, without the title."""
        heads, *rows = self.texts()
        rule = ["---" if isinstance(column, str) else "---:" for column in self.columns]
        return "\n".join(f"| {' | '.join(row)} |" for row in (heads, rule, *rows))

    def panels(self) -> dict[str, dict[str, list[Any]]]:
        """Unit -> head -> the numbers of a column."""
        units: dict[str, dict[str, list[Any]]] = {}
        for k, column in enumerate(self.columns):
            if isinstance(column, Column) and column.unit:
                units.setdefault(column.unit, {})[column.head] = [row[k] for row in self.rows]
        return units


def number(value: Cell, digits: str = ",.3g") -> str:
    """A number with a few digits, a text as it is, and a dash for None."""
    if value is None or isinstance(value, str):
        return "-" if value is None else value
    return f"{value:,.0f}" if digits == ",.3g" and abs(value) >= 100 else f"{value:{digits}}"


def quotient(value: float | None, other: float | None, factor: float = 1.0) -> float | None:
    """factor * value / other; None where one of them is missing."""
    return factor * value / other if value and other else None


def verdict(what: str, ratio: float, goal: float, digits: str = ".1f", remark: str = "") -> str:
    """A line that says whether a ratio reaches its goal."""
    said = "reached" if ratio >= goal else "missed"
    return f"{what} {ratio:{digits}}x ({remark}goal {goal:g}x: {said})"


def empty_figure(width: float, height: float) -> Any:
    """An empty matplotlib figure, which needs no display; UserError without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError(f"bench: the plots need matplotlib; e.g. {extra('bench')}") from error
    return Figure(figsize=(width, height), layout="constrained")


def plot(tables: Sequence[Table]) -> Any:
    """A figure with a row of panels for each table."""
    drawn = [table for table in tables if table.rows and table.panels()]
    heights = [2.5 + 0.25 * len(table.rows) for table in drawn]
    figure = empty_figure(6 * max((len(table.panels()) for table in drawn), default=1), sum(heights) or 1)
    parts = figure.subfigures(len(drawn), 1, squeeze=False, height_ratios=heights)[:, 0] if drawn else []
    for part, table in zip(parts, drawn, strict=True):
        panels = table.panels()
        part.suptitle(fill(table.title, 60 * len(panels)))
        texts = sum(isinstance(column, str) for column in table.columns)
        labels = [", ".join(filter(None, map(str, row[:texts]))) for row in table.rows]
        for axes, (unit, series) in zip(part.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True):
            dots(axes, unit, labels, series)
    return figure


def dots(axes: Any, title: str, labels: Sequence[str], series: Mapping[str, Sequence[float | None]]) -> None:
    """Draw a row for each label, from the top, and in it a dot of each series on a logarithmic scale."""
    from matplotlib.ticker import LogLocator

    for k, (name, values) in enumerate(series.items()):
        there = [(value, row) for row, value in enumerate(values) if value]
        marker = MARKERS[k % len(MARKERS)]
        axes.plot([value for value, _ in there], [row for _, row in there], marker, label=name, ms=5, alpha=0.8)
    axes.set(xscale="log", title=title, yticks=range(len(labels)), ylim=(len(labels) - 0.5, -0.5))
    axes.set_yticklabels(labels)
    least, most = axes.get_xlim()
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if most < 100 * least else (1,)))
    axes.xaxis.set_minor_formatter("")
    axes.xaxis.set_major_formatter("{x:,g}")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.07 - 0.5 / len(labels)), ncols=2)
