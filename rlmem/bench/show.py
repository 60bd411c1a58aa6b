"""The tables of a benchmark, and their plot."""

from collections.abc import Sequence
from textwrap import fill
from typing import Any

from rlmem.errors import UserError, extra
from rlmem.stats import tables
from rlmem.stats.figures import COLOURS, figure

MARKERS = "os^Dv<>"


class Column(str):
    """The heading of a column of numbers. Columns with one unit share a panel; those without a unit are not drawn."""

    unit: str

    def __new__(cls, head: str, unit: str = "") -> "Column":
        made = super().__new__(cls, head)
        made.unit = unit
        return made


class Table(tables.Table):
    """A table whose numbers can be drawn: first the columns of texts, which name the rows, then those of numbers."""

    def labels(self) -> list[str]:
        texts = sum(not isinstance(column, Column) for column in self.columns)
        return [", ".join(str(cell) for cell in row[:texts] if cell) for row in self.rows]

    def panels(self) -> dict[str, dict[str, list[Any]]]:
        """Unit -> head -> the numbers of a column."""
        units: dict[str, dict[str, list[Any]]] = {}
        for k, column in enumerate(self.columns):
            if isinstance(column, Column) and column.unit:
                units.setdefault(column.unit, {})[column] = [row[k] for row in self.rows]
        return units


def quotient(value: float | None, other: float | None) -> float | None:
    return value / other if value and other else None


def verdict(what: str, ratio: float, goal: float, digits: str = ".1f", remark: str = "") -> str:
    said = "reached" if ratio >= goal else "missed"
    return f"{what} {ratio:{digits}}x ({remark}goal {goal:g}x: {said})"


def picture_types() -> list[str]:
    """The file types that a plot can be written to. Raises UserError without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError(f"bench: the plots need matplotlib; e.g. {extra('bench')}") from error
    return list(Figure().canvas.get_supported_filetypes())


def plot(all_tables: Sequence[Table]) -> Any:
    """A figure with a row of panels for each table; a panel has a row of dots for each row of the table."""
    drawn = [table for table in all_tables if table.rows]
    columns = max((len(table.panels()) for table in drawn), default=1)
    heights = [2.5 + 0.25 * len(table.rows) for table in drawn] or [1.0]
    grid = {"height_ratios": heights}
    made, axes = figure(sum(heights), len(heights), columns, width=6 * columns, gridspec_kw=grid)
    for table, row in zip(drawn, axes, strict=False):
        panels = table.panels()
        for panel, (unit, series) in zip(row, panels.items(), strict=False):
            dots(panel, unit, table.labels(), series)
        row[0].set_title(fill(f"{table.title}\n{row[0].get_title()}", 50, replace_whitespace=False))
        for panel in row[len(panels) :]:
            panel.set_axis_off()
    return made


def dots(axes: Any, title: str, labels: Sequence[str], series: dict[str, list[Any]]) -> None:
    """Draw a row for each label, from the top, with a dot for each series on a logarithmic scale."""
    from matplotlib.ticker import LogLocator

    for k, (name, values) in enumerate(series.items()):
        there = [(value, row) for row, value in enumerate(values) if value]
        color, marker = COLOURS[k % len(COLOURS)], MARKERS[k % len(MARKERS)]
        axes.plot([x for x, _ in there], [y for _, y in there], marker, color=color, label=name, ms=5, alpha=0.8)
    axes.set(xscale="log", title=title, yticks=range(len(labels)), ylim=(len(labels) - 0.5, -0.5))
    axes.set_yticklabels(labels)
    least, most = axes.get_xlim()
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if most < 100 * least else (1,)))
    axes.xaxis.set_minor_formatter("")
    axes.xaxis.set_major_formatter("{x:,g}")
    axes.legend(fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.07 - 0.5 / len(labels)), ncols=2)
