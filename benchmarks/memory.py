"""Time and memory of the options of conf/memory, compared with `torch.nn.GRU`.

`python -m benchmarks.memory bench-memory.json docs/memory.md` writes what `run.py memory` measured into a document, as
the table between its comments `measured`.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rlmem.evidence.bench.figure3 import PEER, Memories, Rows, TorchGRU, mib

from rlmem.config.catalog import catalog
from rlmem.conformance import facts
from rlmem.core import received
from rlmem.core.errors import UserError, one_line
from rlmem.evidence.bench.skeleton import Numbers, PlottedTable, progress, quotient
from rlmem.evidence.bench.timing import Run, Times, peak_bytes
from rlmem.evidence.page.documents import with_part
from rlmem.memory.base import Memory
from rlmem.scan import chosen_engine

MODEL = "model"
SCHEMES = ("segment", "tape")
ROWS_ACTED = (1, 8)
SHOWN = 1024
"""The length of the episodes that the table of a document is about."""
COLUMNS = ("option", "`segment` / GRU", "`tape` / GRU", "step, µs", "step / GRU", "live tensors at the peak, MiB")


@dataclass
class MemoryBench(Memories):
    """Forward and backward, steps, memory and size of each model, from `input_size` to `hidden_size` features.

    models: options of conf/memory, all by default; one that raises is reported, and the others are measured
    lengths: slots of an episode, one cell of `slots` for each
    slots: of a cell
    """

    name = "memory"
    lengths: Sequence[int] = (128, 1024, 16384)
    slots: int = 16384

    def measure(self, result: Numbers) -> Iterator[None]:
        chosen_engine("auto", self.device)  # compiles the kernels, if need be, before anything is measured
        result["models"] = {}
        for name in progress([PEER, *(self.models or catalog()["memory"])], "memories"):
            result["models"][name] = self.model(name)
            yield

    def model(self, name: str) -> Numbers:
        """Everything about one model; {"error": why} if it cannot be built or stepped."""
        try:
            node = self.node(name)
            memory, peer = self.build(node), self.build(self.node(PEER))
            entry = facts(memory) | {"latency": []}
            for B in ROWS_ACTED:
                step, peer_step = self.latency({MODEL: memory, PEER: peer}, B).values()
                row = {"rows": B, "seconds": step.median, "peer_seconds": peer_step.median, "note": step.note}
                entry["latency"].append(row)
        except Exception as error:
            return {"error": one_line(error)}
        return entry | {"cells": [cell for T in self.lengths for cell in self.cells(node, memory, peer, T)]}

    def cells(self, node: dict[str, Any], memory: Memory, peer: Memory, T: int) -> list[Numbers]:
        """Forward and backward of episodes of T slots in each layout, in turns with the peer, and their peak memory.

        A single episode is the same row in both layouts, and measured once. The peer knows no starts, and has no tape.
        """
        episodes = max(1, self.slots // T)
        schemes = SCHEMES[:1] if isinstance(memory, TorchGRU) else SCHEMES
        layouts = {scheme: Rows(scheme, episodes, T) for scheme in (schemes if episodes > 1 else SCHEMES[:1])}
        in_parts = lambda rows: lambda part: self.forward_backward(memory, rows.shorter(part))  # noqa: E731
        times = {PEER: Times()} | {s: Times(note=self.why_not(in_parts(rows))) for s, rows in layouts.items()}
        runs = {s: self.forward_backward(memory, rows) for s, rows in layouts.items() if not times[s].note}
        if runs:
            times |= self.turns({PEER: self.forward_backward(peer, layouts["segment"])} | runs)
        del runs
        cells = []
        for scheme, rows in layouts.items():
            time, peak = times[scheme], None
            if time.seconds:
                try:
                    peak = peak_bytes(self.small_and_whole, (node, rows), self.device)
                except Exception as error:
                    time.note = f"peak memory: {one_line(error)}"
            cell = {"scheme": scheme, "length": T, "episodes": episodes, "seconds": time.median, "note": time.note}
            cell |= {"peer_seconds": times[PEER].median, "rounds": len(time.seconds), "peak_bytes": peak}
            cells.append(cell)
        return cells + [cells[0] | {"scheme": scheme} for scheme in schemes if scheme not in layouts]

    def forward_backward(self, memory: Memory, rows: Rows) -> Run:
        """Outputs from the initial state, and the gradients of the weights and of the input."""
        x, start = rows.batch(self.input_size, self.device)
        leaves = [x.requires_grad_(), *(p for p in memory.parameters() if p.requires_grad)]
        cotangent = torch.ones(*start.shape, memory.output_size, device=x.device)

        def run() -> None:
            y, _ = memory(x, memory.initial_state(len(x)), start)
            torch.autograd.grad(y, leaves, cotangent, allow_unused=True)

        return run

    def small_and_whole(self, node: dict[str, Any], rows: Rows) -> tuple[Run, Run]:
        """A forward and backward of a sixteenth of `rows`, and that of `rows`."""
        memory = self.build(node)
        return self.forward_backward(memory, rows.shorter(16)), self.forward_backward(memory, rows)

    def tables(self, result: Numbers) -> Iterator[PlottedTable]:
        """A table of what does not depend on the length, then a table for each length."""
        models = {name: model for name, model in result["models"].items() if "error" not in model}
        rows: list[Any] = []
        for name, model in models.items():
            steps = [cell for row in model["latency"] for cell in (quotient(row["seconds"], 1e-6), ratio(row))]
            rows.append((name, model["engine"] or "", model["parameters"], model["state"], *steps))
        columns = {"parameters": "numbers", "state": "numbers"}
        for B in ROWS_ACTED:
            columns |= {f"{B}": "microseconds per step", f"{B} / GRU": "time / torch.nn.GRU's"}
        title = "size; microseconds of a step of 1 and of 8 rows, and their ratio to torch.nn.GRU's"
        yield PlottedTable(title, ("memory", "engine"), columns, rows)
        columns = {}
        for scheme in SCHEMES:
            columns |= {scheme: "ms", f"{scheme} / GRU": "time / torch.nn.GRU's", f"{scheme}, MiB": "MiB"}
        for T in self.lengths:
            rows = []
            for name, model in models.items():
                cells = [cell_of(model, scheme, T) for scheme in SCHEMES]
                rows.append((name, *(n for c in cells for n in (quotient(c["seconds"], 1e-3), ratio(c), mib(c)))))
            measures = "ms forward + backward, ratio to torch.nn.GRU's, MiB of live tensors at the peak"
            yield PlottedTable(f"{max(1, self.slots // T):,} x {T:,} slots: {measures}", ["memory"], columns, rows)

    def notes(self, result: Numbers) -> Iterator[str]:
        yield from notes_on(result["models"])


def cell_of(model: Numbers, scheme: str, length: int) -> Numbers:
    """The cell of a model, or an empty one."""
    cells = (c for c in model.get("cells", ()) if (c["scheme"], c["length"]) == (scheme, length))
    return next(cells, {"seconds": None, "peer_seconds": None, "peak_bytes": None})


def ratio(row: Numbers) -> float | None:
    """The seconds of a row, relative to the peer's."""
    return quotient(row["seconds"], row["peer_seconds"])


def notes_on(models: dict[str, Numbers]) -> Iterator[str]:
    for name, model in models.items():
        if "error" in model:
            yield f"{name}: {model['error']}"
        for row in model.get("latency", []) + model.get("cells", []):
            where = f"{row['scheme']} {row['length']:,}" if "scheme" in row else f"step of {row['rows']} rows"
            if row["note"]:
                yield f"{name}, {where}: {row['note']}"


def measured(result: Numbers) -> str:
    """The machine, one row for each model that was measured, and every note."""
    setting, machine, models = result["setting"], result["machine"], result["models"]
    rows = [COLUMNS, ("---", *["---:"] * (len(COLUMNS) - 1))]
    for name, model in models.items():
        if "error" not in model:
            segment, tape, step = cell_of(model, "segment", SHOWN), cell_of(model, "tape", SHOWN), model["latency"][0]
            ratios = [number(ratio(row), ".2f") for row in (segment, tape, step)]
            microseconds, peak = number(quotient(step["seconds"], 1e-6)), number(mib(segment))
            rows.append((name if name == PEER else f"`{name}`", *ratios[:2], microseconds, ratios[2], peak))
        model["cells"] = [cell for cell in model.get("cells", ()) if cell["length"] == SHOWN]
    where = machine["processor"] if machine["device"] == "cpu" else machine["device"]
    caption = (
        f"{max(1, setting['slots'] // SHOWN):,} episodes of {SHOWN:,} slots, D = {setting['input_size']}, "
        f"H = {setting['hidden_size']}; {where}, {machine['threads']} threads, torch {machine['torch']}; "
        f"medians of {setting['rounds']} rounds."
    )
    table = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([caption, "", *table, "", *(f"- {note}" for note in notes_on(models))]).rstrip()


def number(value: float | None, digits: str = ".3g") -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if digits == ".3g" and abs(value) >= 100 else f"{value:{digits}}"


def write_table(numbers: Path, document: Path) -> None:
    """Write the table between its comments in a document. Raises UserError."""
    result = received.json_of(numbers)
    if SHOWN not in result.get("setting", {}).get("lengths", ()):
        raise UserError(f"{numbers}: not the numbers of `run.py memory` at the length {SHOWN}")
    document.write_text(with_part(document, "measured", f"{measured(result)}\n"), encoding="utf-8")


if __name__ == "__main__":
    try:
        write_table(*map(Path, sys.argv[1:]))
    except (UserError, OSError, ValueError, TypeError) as error:
        sys.exit(f"{error}; e.g. python -m benchmarks.memory bench-memory.json docs/memory.md")
