"""The tables and the plot of `rlmem bench update`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console

from rlmem.bench import output
from rlmem.bench.output import number

PEER = "POMDP-Baselines"
PARTS = ("sample", "forward", "backward", "optimiser")
SQUARE, TAPE = "64 x 64", "tape"

Row = dict[str, Any]


def show(models: dict[str, list[Row]]) -> None:
    """A table for each layout, with the parts' shares of the time; the tape beside the segments; then every note."""
    console = Console()
    by_layout: dict[str, dict[str, Row]] = {}
    for name, rows in models.items():
        for row in rows:
            by_layout.setdefault(row["layout"], {})[name] = row
    for layout, found in by_layout.items():
        if not (sizes := next((row["batch"] for row in found.values() if row["batch"]), None)):
            continue
        size = f"{sizes['rows']} x {sizes['slots']} slots, {sizes['transitions']:,} transitions"
        title = f"{layout}: {size}; ratio to {PEER}"
        table = output.table(title, "memory", "ms", "/ s", *PARTS[:-1], "optim.", "ratio")
        for name, row in found.items():
            if row["seconds"]:
                shares = [f"{share:.0%}" for share in in_shares(row["parts"])]
                numbers = number(1e3 * row["seconds"]), number(1 / row["seconds"])
                table.add_row(name, *numbers, *shares, number(row["ratio"], ".2f"))
        console.print(table)
    tape = by_layout.get(TAPE, {})
    segments = (layout for layout in by_layout if layout not in (SQUARE, TAPE))
    table = output.table("time on the tape / on segments", "memory", *segments)
    for name, row in tape.items():
        table.add_row(name, *(number(value, ".2f") for value in row["ratio_to_segments"].values()))
    console.print(table)
    for name, rows in models.items():
        for row in rows:
            if row["note"]:
                said = f"{name}, {row['layout']}: {row['note']}"
                console.print(said, style="dim", highlight=False, markup=False, soft_wrap=True)


def in_shares(parts: dict[str, float]) -> list[float]:
    return [parts[part] / sum(parts.values()) for part in PARTS]


def plot(models: dict[str, list[Row]], path: Path) -> None:
    """A panel for each layout, in it a bar for each model, made of the parts of its update."""
    names = list(dict.fromkeys(row["layout"] for rows in models.values() for row in rows))
    figure = output.figure(4 * len(names), 1.5 + 0.35 * len(models))
    for axes, layout in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
        rows = {name: row for name, all_ in models.items() for row in all_ if row["layout"] == layout and row["parts"]}
        left = [0.0] * len(rows)
        for part in PARTS:
            widths = [1e3 * row["parts"][part] for row in rows.values()]
            axes.barh(list(rows), widths, left=left, label=part)
            left = [begin + width for begin, width in zip(left, widths, strict=True)]
        axes.set(title=f"{layout}: ms per update")
        axes.invert_yaxis()
    axes.legend(fontsize="small")
    figure.savefig(path, dpi=120)
