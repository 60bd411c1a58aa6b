"""Where the benchmarks' numbers go: JSON, a plot, and what machine they come from."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from rlmem.config.messages import sentence
from rlmem.errors import UserError, extra
from rlmem.system.hardware import processor

Item = TypeVar("Item")
MARKERS = "os^Dv<>"


def check(json_path: Path, plot_path: Path) -> None:
    """Refuse, before anything is measured, what could not be written at the end."""
    types = figure(1, 1).canvas.get_supported_filetypes()
    problems = unwritable(json_path, plot_path)
    if not problems and plot_path.suffix[1:].lower() not in types:
        problems.append(sentence(f"--plot {plot_path}", "no such type of plot", accepted=[f".{t}" for t in types]))
    if problems:
        raise UserError(*problems)


def unwritable(*paths: Path) -> list[str]:
    """What is wrong with files to be written, a line each."""
    folders = [f"{path}: is a folder, not a file to write" for path in paths if path.is_dir()]
    return folders + [f"{path}: no folder {path.parent}" for path in paths if not path.parent.is_dir()]


def figure(width: float, height: float) -> Any:
    """An empty matplotlib figure, which needs no display; UserError without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError(f"bench: the plots need matplotlib; e.g. {extra('bench')}") from error
    return Figure(figsize=(width, height), layout="constrained")


def dots(
    axes: Any, title: str, labels: Sequence[str], series: Mapping[str, Sequence[float | None]], scale: str = "log"
) -> None:
    """A row for each label, from the top, and in it a dot of each series at its value."""
    for k, (name, values) in enumerate(series.items()):
        at = [(value, row) for row, value in enumerate(values) if value]
        color, marker = f"C{k % 10}", MARKERS[k % len(MARKERS)]
        axes.plot([v for v, _ in at], [row for _, row in at], marker, color=color, label=name, ms=5, alpha=0.8)
    axes.set(xscale=scale, title=title, yticks=range(len(labels)), ylim=(len(labels) - 0.5, -0.5))
    axes.set_yticklabels(labels)
    if scale == "log":
        from matplotlib.ticker import LogLocator

        least, most = axes.get_xlim()
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if most < 100 * least else (1,)))
        axes.xaxis.set_minor_formatter("")
        axes.xaxis.set_major_formatter("{x:,g}")
    else:
        axes.set_xlim(left=0)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.07 - 0.5 / len(labels)), ncols=2)


def table(title: str, *columns: str, left: int = 1) -> Table:
    """A table whose first `left` columns are text."""
    empty = Table(title=title, title_justify="left")
    for k, column in enumerate(columns):
        empty.add_column(column, justify="left" if k < left else "right", no_wrap=True)
    return empty


def number(value: float | None, digits: str = ",.3g") -> str:
    """A number with a few digits; nothing for None."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if digits == ",.3g" and abs(value) >= 100 else f"{value:{digits}}"


def write(result: dict[str, Any], path: Path) -> None:
    path.write_text(json.dumps(result, indent=2) + "\n")


def machine(device: torch.device) -> dict[str, Any]:
    """What the numbers were measured on."""
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "processor": processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def progress(items: Iterable[Item], what: str) -> Iterable[Item]:
    """The items, with a bar on a terminal."""
    return track(list(items), what, console=Console(stderr=True), transient=True)
