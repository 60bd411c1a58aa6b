"""The tables and the plot of `rlmem bench memory`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console

from rlmem.bench import output, scan
from rlmem.bench.output import number
from rlmem.bench.timing import MIB

PEER = "torch.nn.GRU"
SCHEMES = ("segment", "tape")

Row = dict[str, Any]


def show(result: dict[str, Any]) -> None:
    """What does not depend on the length; a table for each length; then every note."""
    console = Console()
    built = {name: model for name, model in result["models"].items() if "error" not in model}
    title = "size; microseconds of a step of 1 and of 8 rows, and their ratio to torch.nn.GRU's"
    sizes = output.table(title, "memory", "engine", "parameters", "state", "1", "/ GRU", "8", "/ GRU", left=2)
    for name, model in built.items():
        steps = [text for row in model["latency"] for text in (number(scaled(row, 1e6)), number(ratio(row), ".2f"))]
        sizes.add_row(name, model["engine"] or "", f"{model['parameters']:,}", f"{model['state']:,}", *steps)
    console.print(sizes)
    for T in result["setting"]["lengths"]:
        episodes = max(1, result["setting"]["slots"] // T)
        measures = "ms forward + backward, ratio to torch.nn.GRU's, MiB of live tensors at the peak"
        cells = output.table(
            f"{episodes:,} x {T:,} slots: {measures}",
            "memory",
            *(column for s in SCHEMES for column in (s, "/ GRU", "MiB")),
        )
        for name, model in built.items():
            found = [cell(model, s, T) for s in SCHEMES]
            texts = [(number(scaled(c, 1e3)), number(ratio(c), ".2f"), number(mib(c))) for c in found]
            cells.add_row(name, *(text for part in texts for text in part))
        console.print(cells)
    for note in notes(result["models"]):
        console.print(note, style="dim", highlight=False, markup=False, soft_wrap=True)


def plot(result: dict[str, Any], path: Path) -> None:
    """Dots for each model: time and memory relative to torch.nn.GRU, latency, size; below, the scans."""
    models = {name: model for name, model in result["models"].items() if "error" not in model}
    names, lengths = list(models), result["setting"]["lengths"]
    figure = output.figure(16, 2 + 0.22 * len(names) + (4 if result["scans"] else 0))
    parts = figure.subfigures(2, 1, height_ratios=[2 + 0.22 * len(names), 4]) if result["scans"] else [figure]
    times, memory, latency, size = parts[0].subplots(1, 4, sharey=True)
    cells = {f"{s} {T:,}": [cell(m, s, T) for m in models.values()] for T in lengths for s in SCHEMES}
    output.dots(
        times, "forward + backward / torch.nn.GRU", names, {k: [ratio(c) for c in row] for k, row in cells.items()}
    )
    output.dots(memory, "live tensors at the peak (MiB)", names, {k: [mib(c) for c in row] for k, row in cells.items()})
    steps = {f"{k} rows": [scaled(m["latency"][i], 1e6) for m in models.values()] for i, k in enumerate((1, 8))}
    output.dots(latency, "microseconds per step", names, steps)
    output.dots(size, "numbers", names, {k: [m[k] for m in models.values()] for k in ("parameters", "state")})
    if result["scans"]:
        scan.plot(parts[1].subplots(), result["scans"])
    figure.savefig(path, dpi=120)


def cell(model: Row, scheme: str, length: int) -> Row:
    """The cell of a model, or an empty one."""
    found = (c for c in model.get("cells", ()) if (c["scheme"], c["length"]) == (scheme, length))
    return next(found, {"seconds": None, "peak_bytes": None})


def scaled(row: Row, unit: float) -> float | None:
    return row["seconds"] and row["seconds"] * unit


def ratio(row: Row) -> float | None:
    return row["seconds"] and row["peer_seconds"] and row["seconds"] / row["peer_seconds"]


def mib(row: Row) -> float | None:
    return row["peak_bytes"] and row["peak_bytes"] / MIB


def notes(models: dict[str, Row]) -> list[str]:
    """One line for whatever is missing or was measured otherwise."""
    lines = []
    for name, model in models.items():
        if "error" in model:
            lines.append(f"{name}: {model['error']}")
        for row in model.get("latency", []) + model.get("cells", []):
            where = f"{row['scheme']} {row['length']:,}" if "scheme" in row else f"step of {row['rows']} rows"
            if row["note"]:
                lines.append(f"{name}, {where}: {row['note']}")
    return lines
