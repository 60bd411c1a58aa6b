"""`rlmem bench scan`: h_t = a_t h_{t-1} + b_t alone, on every engine, beside copying the bytes that it has to move."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby, product
from statistics import median
from typing import get_args

import torch
from torch import Tensor

from rlmem.core.errors import UserError
from rlmem.evidence.bench.skeleton import Bench, Numbers, PlottedTable, quotient
from rlmem.evidence.bench.timing import Run, Times
from rlmem.scan import Engine, chosen_engine, linear_scan

Shape = tuple[int, int, int]
SHAPES: tuple[Shape, ...] = ((16, 1024, 256), (4, 16384, 256), (1, 16384, 256))
ENGINES = [engine for engine in get_args(Engine) if engine != "auto"]
EPISODE = 128  # slots between two starts
DTYPES = {"real": torch.float32, "complex": torch.complex64}
MOVES = {"varying": 8, "constant": 5}
"""Kind of decay -> how many numbers a scan of N numbers moves at least, gradients included, as a multiple of N."""
COPY = "copy"


@dataclass
class ScanBench(Bench):
    """Forward and backward of scans of `shapes` [B, T, D], for each kind of numbers, kind of decay and engine."""

    name = "scan"
    shapes: tuple[Shape, ...] = SHAPES

    def measure(self, result: Numbers) -> Iterator[None]:
        result["scans"] = []
        yield
        for shape, kind, (decay, moves) in product(self.shapes, DTYPES, MOVES.items()):
            copying = copies(shape, kind, self.device)
            for engine in ENGINES:
                time, copy = self.beside_copying(engine, shape, kind, decay, copying)
                copied = copy.median and copy.median * moves / 8
                case = {"shape": list(shape), "kind": kind, "decay": decay, "moves": moves, "engine": engine}
                numbers = {"seconds": time.median, "copy_seconds": copied, "copy_share": quotient(copied, time.median)}
                result["scans"].append({**case, **numbers, "note": time.note})
                yield

    def beside_copying(self, engine: Engine, shape: Shape, kind: str, decay: str, copying: Run) -> tuple[Times, Times]:
        """The times of an engine and of copying; without times if the engine cannot run here or takes too long."""
        B, T, D = shape
        try:
            chosen_engine(engine, self.device)
        except UserError as error:
            return Times(note=str(error).partition(": ")[2].partition(";")[0]), Times()
        scan = lambda part: forward_backward(engine, (B, max(1, T // part), D), kind, decay, self.device)  # noqa: E731
        if note := self.why_not(scan):
            return Times(note=note), Times()
        times = self.turns({COPY: copying, engine: scan(1)}, at_least=0.01)
        return times[engine], times[COPY]

    def tables(self, result: Numbers) -> list[PlottedTable]:
        case_of = lambda row: (",".join(map(str, row["shape"])), row["kind"], row["decay"])  # noqa: E731
        ran = list(dict.fromkeys(row["engine"] for row in result["scans"] if row["seconds"]))
        rows = []
        for case, group in groupby(result["scans"], case_of):
            cells = {row["engine"]: row for row in group}
            copy = median(row["copy_seconds"] for row in cells.values() if row["seconds"])
            times = [quotient(cells[engine]["seconds"], 1e-3) for engine in ran]
            rows.append((*case, 1e3 * copy, *times, *(quotient(cells[engine]["copy_share"], 0.01) for engine in ran)))
        shares = dict.fromkeys((f"{engine}, %" for engine in ran), "% of the speed of copying")
        title = "scan, forward + backward: ms, and % of the speed of copying"
        return [PlottedTable(title, ("B,T,D", "numbers", "decay"), dict.fromkeys((COPY, *ran), "ms") | shares, rows)]

    def notes(self, result: Numbers) -> list[str]:
        return [f"{row['engine']}: {row['note']}" for row in result["scans"] if row["note"]]


def forward_backward(engine: Engine, shape: Shape, kind: str, decay: str, device: torch.device) -> Run:
    """A scan and its gradients, those of a, b and h0."""
    B, T, D = shape
    generator = torch.Generator().manual_seed(0)

    def normal(*size: int) -> Tensor:
        return torch.randn(*size, dtype=DTYPES[kind], generator=generator).to(device)

    a = normal(D) if decay == "constant" else normal(B, T, D)
    a = 0.99 * a / a.abs().clamp(min=1e-3)
    b, h0, cotangent = normal(B, T, D), normal(B, D), normal(B, T, D)
    leaves = [leaf.requires_grad_() for leaf in (a, b, h0)]
    start = (torch.arange(T, device=device) % EPISODE == 0).repeat(B, 1)
    return lambda: torch.autograd.grad(linear_scan(a, b, h0, start, engine), leaves, cotangent)


def copies(shape: Shape, kind: str, device: torch.device) -> Run:
    """Four copies between eight tensors of N numbers, which together exceed any cache."""
    pairs = [[torch.ones(shape, dtype=DTYPES[kind], device=device) for _ in range(2)] for _ in range(4)]
    return lambda: [target.copy_(source) for source, target in pairs]
