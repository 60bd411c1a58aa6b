"""A table, written as Markdown, LaTeX, CSV or plain text."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass, fields
from numbers import Integral, Real
from typing import Any

from rlmem.core.errors import printable

MISSING = "–"
UNBOUNDED = 10_000
"""The width of a table that is not folded."""
COMMANDS = {"\\": "backslash", "~": "asciitilde", "^": "asciicircum", "<": "less", ">": "greater", "|": "bar"}
"""Letter -> the name of LaTeX's text command for it."""
LATEX = str.maketrans(
    {letter: f"\\{letter}" for letter in "&%$#_{}"}
    | {letter: rf"\text{name}{{}}" for letter, name in COMMANDS.items()}
    | {"–": "--", "±": r"$\pm$"}
)


@dataclass(frozen=True)
class Value:
    """A number with its spread, as far as that is known; NaN is the same as missing."""

    mean: float | None
    std: float | None = None
    low: float | None = None
    """Bounds of an interval; give both or neither."""
    high: float | None = None
    n: int | None = None
    """The number of runs; shown in CSV only."""

    @classmethod
    def of(cls, interval: Any) -> Value:
        """An estimate with its bootstrap interval (`rlmem.evidence.statistics.Interval`)."""
        return cls(interval.value, low=interval.low, high=interval.high, n=interval.runs)


Cell = Value | float | str | None
"""A number (integers are shown without decimals), a text, or None for an empty cell."""
PARTS = tuple(field.name for field in fields(Value))


@dataclass(frozen=True)
class Table:
    """Rows under named columns. Raises ValueError for a row whose number of cells is not that of the columns."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    digits: int = 3
    """The most decimals of a number that is no integer; large numbers have fewer, and CSV has all of them."""
    notes: Sequence[str] = ()
    """Sentences below the table, which CSV leaves out."""

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"{len(self.columns)} columns, but a row of {len(row)}: {row}")

    def markdown(self) -> str:
        """The table in GitHub's Markdown, below its title."""
        ruler = ["---:" if right else "---" for right in self._right()]
        lines = [list(map(in_markdown, self.columns)), ruler, *self._shown(in_markdown)]
        notes = [f"\n{in_markdown(note)}" for note in self.notes]
        table = "\n".join([*(f"| {' | '.join(line)} |" for line in lines), *notes])
        return f"{in_markdown(self.title)}\n\n{table}\n" if self.title else f"{table}\n"

    def latex(self) -> str:
        """A LaTeX `table` with the rules of the package booktabs."""
        aligned = "".join("r" if right else "l" for right in self._right())
        line = lambda cells: f"{' & '.join(cells)} \\\\"  # noqa: E731
        head, *rows = map(line, [map(_latex, self.columns), *self._shown(_latex)])
        caption = [rf"\caption{{{_latex(self.title)}}}"] if self.title else []
        begin = [r"\begin{table}", r"\centering", *caption, rf"\begin{{tabular}}{{{aligned}}}"]
        body = [r"\toprule", head, r"\midrule", *rows, r"\bottomrule"]
        below = [rf"\par {_latex(note)}" for note in self.notes]
        return "\n".join([*begin, *body, r"\end{tabular}", *below, r"\end{table}", ""])

    def csv(self) -> str:
        """Raw numbers in CSV. What a value has beside its mean is in columns of its own: `name_low`, `name_n`, ..."""
        parts = [(k, part) for k, cells in enumerate(self._by_column()) for part in _parts(cells)]
        head = [inert(f"{self.columns[k]}_{PARTS[part]}" if part else self.columns[k]) for k, part in parts]
        return csv_text([head, *([_raw(row[k], part) for k, part in parts] for row in self.rows)])

    def text(self, width: int = UNBOUNDED) -> str:
        """The table for a terminal or a log: plain text without colours, as wide as it needs to be.

        width: characters of a line; a wider table has its texts folded between words, if it fits then
        """
        from rich import box
        from rich.console import Console
        from rich.table import Table as Grid
        from rich.text import Text

        rows, grid = self._shown(_plain), Grid(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
        for k, (name, right) in enumerate(zip(self.columns, self._right(), strict=True)):
            whole = max((len(row[k]) for row in rows), default=None) if right else None
            grid.add_column(Text(name), justify="right" if right else "left", no_wrap=right, min_width=whole)
        for row in rows:
            grid.add_row(*map(Text, row))
        written = io.StringIO()
        console = Console(file=written, width=UNBOUNDED, color_system=None, legacy_windows=False)
        fits = console.measure(grid).minimum <= width
        console.print(grid, width=width if fits else UNBOUNDED)
        lines = [line.rstrip() for line in written.getvalue().splitlines()]
        lines += ["", *self.notes] if self.notes else []
        return "\n".join([self.title, "", *lines, ""] if self.title else [*lines, ""])

    def _by_column(self) -> list[list[Cell]]:
        return [[row[k] for row in self.rows] for k in range(len(self.columns))]

    def _right(self) -> list[bool]:
        """Which columns hold numbers: those with a number and without text."""
        return [
            not any(isinstance(cell, str) for cell in cells) and any(cell is not None for cell in cells)
            for cells in self._by_column()
        ]

    def _shown(self, escaped: Callable[[str], str]) -> list[list[str]]:
        return [[escaped(cell_text(cell, self.digits)) for cell in row] for row in self.rows]


def csv_text(rows: Iterable[Sequence[object]]) -> str:
    """Rows in the form of all of our CSV files."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue()


def cell_text(cell: Cell, digits: int = 3) -> str:
    """`0.531`, `0.531 ± 0.020`, `0.531 [0.490, 0.570]`, a text as it is, or a dash."""
    if isinstance(cell, str):
        return cell
    mean, std, low, high, _ = _known(cell)
    if mean is None:
        return MISSING
    width = std if low is None or high is None else high - low
    digits = min(digits, max(_decimals(mean or 1.0, max(digits + 1, 4)), _decimals(width, 2)))
    shown = lambda x: str(int(x)) if isinstance(x, Integral) else f"{x:.{digits}f}"  # noqa: E731
    spread = "" if std is None else f" ± {shown(std)}"
    return f"{shown(mean)}{spread}" + ("" if low is None or high is None else f" [{shown(low)}, {shown(high)}]")


def _known(cell: Value | float | None) -> list[float | None]:
    """The PARTS of a cell, with None for what is NaN."""
    parts = astuple(cell if isinstance(cell, Value) else Value(cell))
    return [None if isinstance(x, Real) and math.isnan(x) else x for x in parts]


def _decimals(x: float | None, significant: int) -> int:
    """The decimals that show `significant` digits of a number; 0 for None."""
    if x is None or not math.isfinite(x) or x == 0:
        return 0
    return max(significant - 1 - math.floor(math.log10(abs(x))), 0)


def _parts(cells: Sequence[Cell]) -> list[int]:
    """The indices of the PARTS that any value of a column has, the mean always among them."""
    values = [_known(cell) for cell in cells if isinstance(cell, Value)]
    return [0, *(k for k in range(1, len(PARTS)) if any(value[k] is not None for value in values))]


def _raw(cell: Cell, part: int) -> str:
    if isinstance(cell, str):
        return "" if part else inert(cell)
    x = _known(cell)[part]
    return "" if x is None else repr(int(x) if isinstance(x, Integral) else float(x))


def inert(text: str) -> str:
    """A text as a field of a CSV file, which no spreadsheet takes for a formula; numbers stay numbers."""
    try:
        float(text)
    except ValueError:
        text = text.replace("\r", " ")  # which the csv module does not quote
        return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\n")) else text
    return text


def _plain(text: str) -> str:
    return " ".join(printable(text, keep="\t\r\n").split())


class Markdown(str):
    """A text that is Markdown already. Every other text in a document is escaped (`in_markdown`)."""


CODE = re.compile(r"(?<!`)(`+)(?!`).+?(?<!`)\1(?!`)")
"""Code in Markdown: between two equally long rows of backquotes."""
ACTIVE = re.compile(
    r"<(?=[A-Za-z/!?])|[|\\]|&(?=#?\w+;)|\](?=[(\[:])|^(?:[#>]|[-+](?=\s)|\d+(?=[.)]\s))"
    r"|[*~]+(?=[^\s*~])|(?<=[^\s*~])[*~]+|(?<!\w)_+(?=\S)|(?<=\S)_+(?!\w)"
)
"""What would begin or end a tag, a cell, an entity, a link, a heading, a quotation, a list or an emphasis."""


def in_markdown(text: str) -> str:
    """A text as Markdown that shows it, in one line. What stands between backquotes is code."""
    if isinstance(text, Markdown):
        return text
    text, parts, end = _plain(text), [], 0
    for code in CODE.finditer(text):
        parts += [ACTIVE.sub(_escape, text[end : code.start()]), code[0].replace("|", r"\|")]
        end = code.end()
    return "".join([*parts, ACTIVE.sub(_escape, text[end:])])


def _escape(match: re.Match[str]) -> str:
    if match[0].isdigit():
        return f"{match[0]}\\"
    return {"<": "&lt;", "&": "&amp;"}.get(match[0], "".join(f"\\{letter}" for letter in match[0]))


def _latex(text: str) -> str:
    """Escape for LaTeX, and set the minus sign of a number as a minus, not a hyphen."""
    return re.sub(r"(?<![\w-])-(?=[\d.])", "$-$", _plain(text).translate(LATEX))
