"""`rlmem bench scan`: h_t = a_t h_{t-1} + b_t alone, on every engine, beside copying the bytes that it has to move.

A scan of N numbers reads a and b and writes h, then reads a, h and the gradient of h and writes those of a and b: 8 N
numbers moved, or 5 N where a is constant. Four copies between eight tensors of N numbers move 8 N. A scan that ran at
the speed of memory would take as long. Each engine takes turns with copying and with nothing else,
so that both find caches, allocator and load of the machine in the same state.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from statistics import median
from typing import Any, get_args

import torch
from rich.console import Console
from torch import Tensor

from rlmem.bench import output
from rlmem.bench.output import number
from rlmem.bench.timing import CPU, Run, in_turns, too_long
from rlmem.bench.train import threads as using_threads
from rlmem.errors import UserError
from rlmem.run.hardware import choose_device
from rlmem.scan import Engine, chosen_engine, linear_scan

Shape = tuple[int, int, int]
Shapes = tuple[Shape, ...]
SHAPES: Shapes = ((16, 1024, 256), (4, 16384, 256), (1, 16384, 256))
"""[B, T, D]"""
EPISODE = 128
"""Slots between two starts."""
COPY = "copy"


def main(
    rounds: int = 5,
    budget: float = 20.0,
    threads: int | None = None,
    device: str = "auto",
    json_path: Path = Path("bench-scan.json"),
    plot_path: Path = Path("bench-scan.png"),
    shapes: Shapes = SHAPES,
) -> dict[str, Any]:
    """Measure, print a table, write the numbers and a plot, and return the numbers."""
    output.check(json_path, plot_path)
    where = choose_device(device)
    with using_threads(threads or torch.get_num_threads()):
        scans = measure(rounds, budget, where, shapes)
        result = {"machine": output.machine(where), "scans": scans}
    output.write(result, json_path)
    report(scans)
    figure = output.figure(7, 6)
    plot(figure.subplots(), scans)
    figure.savefig(plot_path)
    Console().print(f"wrote {json_path} and {plot_path}")
    return result


def measure(rounds: int, budget: float, device: torch.device = CPU, shapes: Shapes = SHAPES) -> list[dict[str, Any]]:
    """One row for each shape, kind of numbers, kind of decay and engine."""
    found = []
    for shape, kind, decay in product(shapes, ("real", "complex"), ("varying", "constant")):
        moves = 8 if decay == "varying" else 5
        case = {"shape": list(shape), "kind": kind, "decay": decay, "moves": moves}
        copying = copies(shape, kind, device)
        for engine in get_args(Engine):
            if engine == "auto":
                continue
            time = copy = None
            note = why_not(engine, shape, kind, decay, budget, device)
            if not note:
                runs: dict[str, Run] = {COPY: copying, engine: forward_backward(engine, shape, kind, decay, device)}
                times = in_turns(runs, rounds, budget, device, at_least=0.01)
                time, copy, note = times[engine].median, times[COPY].median, times[engine].note
                assert copy is not None
                copy *= moves / 8
            share = copy / time if copy and time else None
            numbers = {"seconds": time, "copy_seconds": copy, "copy_share": share}
            found.append({**case, "engine": engine, **numbers, "note": note})
    return found


def why_not(engine: Engine, shape: Shape, kind: str, decay: str, budget: float, device: torch.device) -> str:
    """What keeps an engine from being measured, or "": it cannot run here, or would take too long."""
    try:
        chosen_engine(engine, device)
    except UserError as error:
        return str(error).partition(": ")[2].partition(";")[0]
    B, T, D = shape
    return too_long(lambda p: forward_backward(engine, (B, max(1, T // p), D), kind, decay, device), budget, device)


def forward_backward(engine: Engine, shape: Shape, kind: str, decay: str, device: torch.device) -> Run:
    """A scan and its gradients, those of a, b and h0."""
    B, T, D = shape
    generator = torch.Generator().manual_seed(0)
    dtype = torch.float32 if kind == "real" else torch.complex64

    def normal(*size: int) -> Tensor:
        return torch.randn(*size, dtype=dtype, generator=generator).to(device)

    a = normal(D) if decay == "constant" else normal(B, T, D)
    a = 0.99 * a / a.abs().clamp(min=1e-3)
    b, h0, cotangent = normal(B, T, D), normal(B, D), normal(B, T, D)
    leaves = [leaf.requires_grad_() for leaf in (a, b, h0)]
    start = torch.zeros(B, T, dtype=torch.bool, device=device)
    start[:, ::EPISODE] = True
    return lambda: torch.autograd.grad(linear_scan(a, b, h0, start, engine), leaves, cotangent)


def copies(shape: Shape, kind: str, device: torch.device) -> Run:
    """Four copies between eight tensors of N numbers: together too large for a cache."""
    dtype = torch.float32 if kind == "real" else torch.complex64
    pairs = [[torch.ones(shape, dtype=dtype, device=device) for _ in range(2)] for _ in range(4)]

    def run() -> None:
        for source, target in pairs:
            target.copy_(source)

    return run


def report(rows: list[dict[str, Any]]) -> None:
    """A line for each case; engines as milliseconds and share of the copying speed."""
    ran = list(dict.fromkeys(row["engine"] for row in rows if row["seconds"]))
    title = "scan, forward + backward: ms, and % of the speed of copying"
    table = output.table(title, "B,T,D", "numbers", "decay", COPY, *ran, left=3)
    for case in cases(rows):
        first, cells = case[ran[0]], []
        copy = median(row["copy_seconds"] for row in case.values() if row["seconds"])
        for engine in ran:
            time = case[engine]["seconds"]
            cells.append(f"{number(1e3 * time)} {case[engine]['copy_share']:4.0%}" if time else "-")
        shape = ",".join(map(str, first["shape"]))
        table.add_row(shape, first["kind"], first["decay"], number(1e3 * copy), *cells)
    console = Console()
    console.print(table)
    for note in dict.fromkeys(f"{row['engine']}: {row['note']}" for row in rows if row["note"]):
        console.print(note, style="dim", highlight=False, markup=False, soft_wrap=True)


def plot(axes: Any, rows: list[dict[str, Any]]) -> None:
    groups = cases(rows)
    ran = dict.fromkeys(row["engine"] for row in rows if row["seconds"])
    labels = [f"{r['kind']}, {r['decay']}, {r['shape']}" for r in (next(iter(case.values())) for case in groups)]
    shares = {e: [100 * case[e]["copy_share"] if case[e]["seconds"] else None for case in groups] for e in ran}
    output.dots(axes, "scan: % of the speed of copying", labels, shares, scale="linear")


def cases(rows: list[dict[str, Any]]) -> list[dict[str, dict[str, Any]]]:
    """The rows by case, each as engine -> row."""
    groups: dict[tuple[Any, ...], dict[str, dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((*row["shape"], row["kind"], row["decay"]), {})[row["engine"]] = row
    return list(groups.values())
