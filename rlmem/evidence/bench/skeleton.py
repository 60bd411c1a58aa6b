"""What all benchmarks share: options, files of numbers, tables, plots. benchmarks/README.md says what each measures."""

import json
import os
import platform
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from textwrap import fill
from typing import Any, ClassVar

import torch
from rich.console import Console
from rich.progress import track

from rlmem.config.messages import nearest, sentence
from rlmem.core.errors import UserError, extra
from rlmem.core.hardware import installed_version, processor
from rlmem.evidence.bench.timing import CPU, Stopwatch, using_threads
from rlmem.record import tables
from rlmem.record.figures import COLOURS, figure, save
from rlmem.record.tables import Cell
from rlmem.run.assemble import choose_device

Numbers = dict[str, Any]
"""The numbers of a benchmark or of one of its cases, as the JSON file has them."""
MARKERS = "os^Dv<>"
progress = partial(track, console=Console(stderr=True), transient=True)
"""progress(items, what): the items, with a bar on a terminal."""


@dataclass(frozen=True)
class PlottedTable:
    """A table whose numbers can be drawn.

    texts: headings of the columns of texts, which name the rows
    numbers: heading of each other column -> its unit; columns of one unit share a panel, those of "" are not drawn
    """

    title: str
    texts: Sequence[str]
    numbers: dict[str, str]
    rows: Sequence[Sequence[Cell]]

    def text(self) -> str:
        return tables.Table(self.title, [*self.texts, *self.numbers], self.rows).text()

    def labels(self) -> list[str]:
        return [", ".join(str(cell) for cell in row[: len(self.texts)] if cell) for row in self.rows]

    def panels(self) -> dict[str, dict[str, list[Any]]]:
        """Unit -> heading -> the numbers of a column."""
        units: dict[str, dict[str, list[Any]]] = {}
        for k, (head, unit) in enumerate(self.numbers.items(), len(self.texts)):
            if unit:
                units.setdefault(unit, {})[head] = [row[k] for row in self.rows]
        return units


@dataclass
class Bench(Stopwatch, ABC):
    """A benchmark: `measure` finds its numbers, the other methods show them. Its fields are the command's options.

    threads: CPU threads; None: as many as torch has
    """

    name: ClassVar[str]
    refused: ClassVar[frozenset[str]] = frozenset()
    """Options that this benchmark does not take."""

    threads: int | None = None

    @abstractmethod
    def measure(self, result: Numbers) -> Iterator[None]:
        """Fill in the numbers beside `setting` and `machine`, and yield when the file should be written.

        Raises UserError if a choice cannot be measured.
        """

    @abstractmethod
    def tables(self, result: Numbers) -> Iterable[PlottedTable]:
        """The tables of the numbers, which the plot is drawn from."""

    def notes(self, result: Numbers) -> Iterable[str]:
        """A line for each number that is missing, or that was measured in another way than asked for."""
        return [f"{name}: {note}" for name, note in result.get("failed", {}).items()]

    def verdicts(self, result: Numbers) -> Iterable[str]:
        """Lines that compare the numbers with goals."""
        return []

    @classmethod
    def options(cls) -> set[str]:
        """The options that `run` takes beside the files."""
        return {field.name for field in fields(cls)} - cls.refused

    @classmethod
    def run(
        cls, json_path: Path | None = None, plot_path: Path | None = None, device: str = "auto", **options: Any
    ) -> Numbers:
        """Measure, write the numbers after each part, print the tables, draw the plot, and return the numbers.

        json_path: file of the numbers, by default bench-NAME.json
        plot_path: file of the plot, by default bench-NAME.png
        options: fields of the class

        Raises UserError, before anything is measured, if an option is not taken or a file could not be written.
        """
        asked = [*options, *([] if device == "auto" else ["device"])]
        if odd := [name for name in asked if name not in cls.options()]:
            raise UserError(*(f"bench {cls.name}: takes no --{name}; e.g. rlmem bench --help" for name in odd))
        json_path, plot_path = json_path or Path(f"bench-{cls.name}.json"), plot_path or Path(f"bench-{cls.name}.png")
        _check_paths(json_path, plot_path)
        bench = cls(device=CPU if "device" in cls.refused else choose_device(device), **options)
        setting = {k: v for k, v in asdict(bench).items() if k != "threads"} | {"device": str(bench.device)}
        with using_threads(bench.threads or torch.get_num_threads()):
            result: Numbers = {"setting": setting, "machine": machine(bench.device)}
            for _ in bench.measure(result):
                json_path.write_text(json.dumps(result, indent=2) + "\n")
        tables = list(bench.tables(result))
        show = partial(Console().print, highlight=False, markup=False, soft_wrap=True)
        for table in tables:
            show(table.text())
        for note in dict.fromkeys(bench.notes(result)):
            show(note, style="dim")
        for line in bench.verdicts(result):
            show(line)
        save(plot(tables), plot_path, plot_path.suffix[1:].lower())
        show(f"wrote {json_path} and {plot_path}")
        return result


def check_names(prefix: str, noun: str, names: Iterable[str], accepted: Iterable[str]) -> None:
    """Raise UserError with a line for each name that is not accepted."""
    known = list(accepted)
    no = partial(sentence, problem=f"no such {noun}", accepted=known)
    if problems := [no(prefix + name, near=nearest(name, known)) for name in names if name not in known]:
        raise UserError(*problems)


def machine(device: torch.device) -> dict[str, Any]:
    """The machine that the numbers were measured on, and the versions of the packages."""
    packages = ("sb3-contrib", "popgym", "gymnasium", "numpy")
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "processor": processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "versions": {package: version for package in packages if (version := installed_version(package))},
    }


def _check_paths(json_path: Path, plot_path: Path) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError(f"bench: the plots need matplotlib; e.g. {extra('bench')}") from error
    paths, types = (json_path, plot_path), [f".{kind}" for kind in Figure().canvas.get_supported_filetypes()]
    problems = [f"{path}: is a folder, not a file to write" for path in paths if path.is_dir()]
    problems += [f"{path}: no folder {path.parent}" for path in paths if not path.parent.is_dir()]
    if not problems and plot_path.suffix.lower() not in types:
        problems.append(sentence(f"--plot {plot_path}", "no such type of plot", accepted=types))
    if problems:
        raise UserError(*problems)


def quotient(value: float | None, other: float | None) -> float | None:
    return value / other if value and other else None


def verdict(name: str, ratio: float, goal: float, digits: str = ".1f", remark: str = "") -> str:
    return f"{name} {ratio:{digits}}x ({remark}goal {goal:g}x: {'reached' if ratio >= goal else 'missed'})"


def plot(all_tables: Sequence[PlottedTable]) -> Any:
    """A figure with a row of panels for each table; a panel has a row of dots for each row of the table."""
    drawn = [table for table in all_tables if table.rows]
    columns = max((len(table.panels()) for table in drawn), default=1)
    heights = [2.5 + 0.25 * len(table.rows) for table in drawn] or [1.0]
    drawing, axes = figure(sum(heights), len(heights), columns, width=6 * columns, height_ratios=heights)
    for table, row in zip(drawn, axes, strict=False):
        panels = table.panels()
        for panel, (unit, series) in zip(row, panels.items(), strict=False):
            dots(panel, unit, table.labels(), series)
        row[0].set_title(fill(f"{table.title}\n{row[0].get_title()}", 50, replace_whitespace=False))
        for panel in row[len(panels) :]:
            panel.set_axis_off()
    return drawing


def dots(axes: Any, title: str, labels: Sequence[str], series: dict[str, list[Any]]) -> None:
    """Draw a row for each label, from the top, with a dot for each series on a logarithmic scale."""
    from matplotlib.ticker import LogLocator

    for k, (name, values) in enumerate(series.items()):
        there = [(value, row) for row, value in enumerate(values) if value]
        color, marker = COLOURS[k % len(COLOURS)], MARKERS[k % len(MARKERS)]
        axes.plot([x for x, _ in there], [y for _, y in there], marker, color=color, label=name, ms=5, alpha=0.8)
    axes.set(xscale="log", title=title, ylim=(len(labels) - 0.5, -0.5))
    axes.set_yticks(range(len(labels)), labels)
    least, most = axes.get_xlim()
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if most < 100 * least else (1,)))
    axes.xaxis.set_minor_formatter("")
    axes.xaxis.set_major_formatter("{x:,g}")
    axes.legend(fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.07 - 0.5 / len(labels)), ncols=2)
