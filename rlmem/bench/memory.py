"""`rlmem bench memory`: time and memory of the options of conf/memory, beside `torch.nn.GRU`.

Every model reads 128 features and writes 256 (`hidden_size`); all other settings are those of its yaml. The slots of a
cell are episodes of T slots in one of two layouts: `segment`, a row for each, and `tape`, one after the other in a
single row with a start flag where each begins. `torch.nn.GRU` has no starts, and reads segments also beside a tape.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from rlmem.bench.peers import TorchGRU
from rlmem.bench.scan import SHAPES, ScanBench, Shape
from rlmem.bench.show import Column, Table, quotient
from rlmem.bench.skeleton import Bench, Result, check_names, progress
from rlmem.bench.timing import MIB, Run, Times, peak_bytes, using_threads, wait
from rlmem.config.catalog import catalog
from rlmem.config.compose import load
from rlmem.config.targets import build
from rlmem.conformance import facts
from rlmem.errors import one_line
from rlmem.memory.base import Memory
from rlmem.scan import chosen_engine

MODEL, PEER = "model", "torch.nn.GRU"
PEERS = {PEER: "rlmem.bench.peers.TorchGRU", "torch.nn.GRUCell": "rlmem.bench.peers.TorchGRUCell"}
SCHEMES = ("segment", "tape")
ROWS_ACTED = (1, 8)
STEPS, BLOCK = 1024, 64
"""The steps that latency is measured over (appendix G of FFM's paper), and the steps of one turn."""
LENGTHS = (128, 1024, 16384)

Row = dict[str, Any]
"""The numbers of a model, of one of its cells, or of its steps."""


@dataclass(frozen=True)
class Rows:
    """Episodes of `length` slots: a row for each (`segment`), or all in one row (`tape`)."""

    scheme: str
    episodes: int
    length: int

    def shorter(self, part: int) -> Rows:
        """The same number of episodes, each with one `part`-th of the length."""
        return replace(self, length=max(1, self.length // part))

    def batch(self, input_size: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """x [B, T, D] and start [B, T]."""
        E, T = self.episodes, self.length
        shape = (1, E * T) if self.scheme == "tape" else (E, T)
        x = torch.randn(*shape, input_size, generator=torch.Generator().manual_seed(1))
        start = torch.zeros(E * T, dtype=torch.bool)
        start[::T] = True
        return x.to(device), start.view(shape).to(device)


@dataclass
class MemoryBench(Bench):
    """Forward and backward, steps, memory and size of each model.

    models: options of conf/memory; all by default. A model that raises is reported, and the others are measured.
    lengths: slots of an episode, one cell for each; LENGTHS by default.
    slots: slots of a cell.
    input_size: features that a model reads.
    hidden_size: features that it writes.
    scans: shapes for `rlmem bench scan`, which is run too; by default its own, or none if models or lengths are given.
    """

    name = "memory"
    models: Sequence[str] | None = None
    lengths: Sequence[int] = ()
    slots: int = 16384
    input_size: int = 128
    hidden_size: int = 256
    scans: Sequence[Shape] | None = None

    def __post_init__(self) -> None:
        if self.scans is None:
            self.scans = () if self.models or self.lengths else SHAPES
        self.lengths = tuple(self.lengths or LENGTHS)

    def prepare(self) -> None:
        check_memories(self.models)

    def measure(self) -> Iterator[Result]:
        chosen_engine("auto", self.device)  # compiles the kernels, if need be, before anything is measured
        yield {"models": {}, "scans": []}
        for name in progress([PEER, *(self.models or catalog()["memory"])], "memories"):
            yield {"models": {name: self.model(name)}}
        yield from ScanBench(self.rounds, self.budget, device=self.device, shapes=tuple(self.scans or ())).measure()

    def node(self, name: str) -> dict[str, Any]:
        """`_target_` and arguments of an option of conf/memory, or of a peer."""
        if name in PEERS:
            return {"_target_": PEERS[name], "hidden_size": self.hidden_size}
        return load([f"memory={name}", f"memory.hidden_size={self.hidden_size}"]).values["memory"]

    def build(self, node: dict[str, Any]) -> Memory:
        """The model, with the same weights every time."""
        with torch.random.fork_rng():
            torch.manual_seed(0)
            return build(node, input_size=self.input_size).to(self.device)

    def rows(self, scheme: str, length: int) -> Rows:
        return Rows(scheme, max(1, self.slots // length), length)

    def model(self, name: str) -> Row:
        """Everything about one model; {"error": why} if it cannot be built or stepped."""
        try:
            node = self.node(name)
            memory, peer = self.build(node), self.build(self.node(PEER))
            result = facts(memory) | {"latency": self.latency(memory, peer)}
        except Exception as error:
            return {"error": one_line(error)}
        result["cells"] = [cell for T in self.lengths for cell in self.cells(node, memory, peer, T)]
        return result

    def latency(self, memory: Memory, peer: Memory) -> list[Row]:
        """Seconds per step of 1 and of 8 rows (the 8 of FFM's Figure 3), without autograd.

        It is the median of 16 blocks of 64 steps, in turns with the peer; on the CPU with one thread, as rlmem acts.
        """
        found = []
        for B in ROWS_ACTED:
            times = self.stepped({MODEL: self.steps(memory, B), PEER: self.steps(peer, B)})
            step, peer_step = (m and m / BLOCK for m in (times[MODEL].median, times[PEER].median))
            found.append({"rows": B, "seconds": step, "peer_seconds": peer_step, "note": times[MODEL].note})
        return found

    def stepped(self, contestants: dict[str, Run]) -> dict[str, Times]:
        with using_threads(1):
            return replace(self, rounds=STEPS // BLOCK).turns(contestants)

    def steps(self, memory: Memory, B: int) -> Run:
        x = torch.randn(B, self.input_size, generator=torch.Generator().manual_seed(1)).to(self.device)
        state, start = memory.initial_state(B), torch.full((B,), True, device=self.device)
        goes_on = ~start

        @torch.no_grad()
        def run() -> None:
            nonlocal state, start
            for _ in range(BLOCK):
                _, state = memory.step(x, state, start)
                start = goes_on
                wait(self.device)

        return run

    def cells(self, node: dict[str, Any], memory: Memory, peer: Memory, T: int) -> list[Row]:
        """Forward and backward of episodes of T slots in each layout, in turns with the peer, and their peak memory."""
        layouts = {s: self.rows(s, T) for s in (("segment",) if isinstance(memory, TorchGRU) else SCHEMES)}
        once = {s: rows for s, rows in layouts.items() if s == "segment" or rows.episodes > 1}
        notes = {scheme: self.why_not(memory, rows) for scheme, rows in once.items()}
        runs = {s: self.forward_backward(memory, rows) for s, rows in once.items() if not notes[s]}
        times = self.turns({PEER: self.forward_backward(peer, layouts["segment"])} | runs) if runs else {}
        del runs
        found = []
        for scheme, rows in once.items():
            time = times.get(scheme, Times(note=notes[scheme]))
            cell = {"scheme": scheme, "length": T, "episodes": rows.episodes, "seconds": time.median}
            cell |= {"peer_seconds": times[PEER].median if times else None, "rounds": len(time.seconds)}
            cell |= {"note": time.note, "peak_bytes": None}
            if time.seconds:
                try:
                    cell["peak_bytes"] = peak_bytes(small_and_whole, (self, node, rows), self.device)
                except Exception as error:
                    cell["note"] = f"peak memory: {one_line(error)}"
            found.append(cell)
        return found + [found[0] | {"scheme": scheme} for scheme in layouts if scheme not in once]

    def why_not(self, memory: Memory, rows: Rows) -> str:
        """What keeps a cell from being measured, or ""."""
        try:
            return self.why_too_long(lambda part: self.forward_backward(memory, rows.shorter(part)))
        except Exception as error:
            return one_line(error)

    def forward_backward(self, memory: Memory, rows: Rows) -> Run:
        """Outputs from the initial state, and the gradients of the weights and of the input."""
        x, start = rows.batch(self.input_size, self.device)
        leaves = [x.requires_grad_(), *(p for p in memory.parameters() if p.requires_grad)]
        cotangent = torch.ones(*start.shape, memory.output_size, device=x.device)

        def run() -> None:
            y, _ = memory(x, memory.initial_state(len(x)), start)
            torch.autograd.grad(y, leaves, cotangent, allow_unused=True)

        return run

    def tables(self, result: Result) -> Iterator[Table]:
        """A table of what does not depend on the length, a table for each length, then the scans."""
        models = built(result)
        rows: list[Any] = []
        for name, model in models.items():
            steps = [cell for row in model["latency"] for cell in (quotient(row["seconds"], 1e-6), ratio(row))]
            rows.append((name, model["engine"] or "", model["parameters"], model["state"], *steps))
        sizes = [Column(head, "numbers") for head in ("parameters", "state")]
        columns = [c for B in ROWS_ACTED for c in (Column(f"{B}", "microseconds per step"), ratio_column(f"{B}"))]
        title = "size; microseconds of a step of 1 and of 8 rows, and their ratio to torch.nn.GRU's"
        yield Table(title, ("memory", "engine", *sizes, *columns), rows)
        columns = [c for s in SCHEMES for c in (Column(s, "ms"), ratio_column(s), Column(f"{s}, MiB", "MiB"))]
        for T in self.lengths:
            rows = []
            for name, model in models.items():
                cells = [cell_of(model, scheme, T) for scheme in SCHEMES]
                rows.append((name, *(n for c in cells for n in (quotient(c["seconds"], 1e-3), ratio(c), mib(c)))))
            measures = "ms forward + backward, ratio to torch.nn.GRU's, MiB of live tensors at the peak"
            yield Table(f"{max(1, self.slots // T):,} x {T:,} slots: {measures}", ("memory", *columns), rows)
        if result["scans"]:
            yield from ScanBench().tables(result)

    def notes(self, result: Result) -> Iterable[str]:
        return notes_on(result["models"]) + ScanBench().notes(result)


def check_memories(models: Sequence[str] | None) -> None:
    """Raise UserError for names that are not options of conf/memory."""
    check_names("", "memory", models or (), catalog()["memory"])


def small_and_whole(bench: MemoryBench, node: dict[str, Any], rows: Rows) -> tuple[Run, Run]:
    """A forward and backward of a sixteenth of `rows`, and that of `rows`."""
    memory = bench.build(node)
    return bench.forward_backward(memory, rows.shorter(16)), bench.forward_backward(memory, rows)


def built(result: Result) -> dict[str, Row]:
    """The models that could be measured."""
    return {name: model for name, model in result["models"].items() if "error" not in model}


def cell_of(model: Row, scheme: str, length: int) -> Row:
    """The cell of a model, or an empty one."""
    found = (c for c in model.get("cells", ()) if (c["scheme"], c["length"]) == (scheme, length))
    return next(found, {"seconds": None, "peer_seconds": None, "peak_bytes": None})


def ratio(row: Row) -> float | None:
    """The seconds of a row, relative to the peer's."""
    return quotient(row["seconds"], row["peer_seconds"])


def ratio_column(head: str) -> Column:
    return Column(f"{head} / GRU", "time / torch.nn.GRU's")


def mib(row: Row) -> float | None:
    return quotient(row["peak_bytes"], MIB)


def notes_on(models: dict[str, Row]) -> list[str]:
    """A line for each number that is missing or was measured in another way."""
    lines = []
    for name, model in models.items():
        if "error" in model:
            lines.append(f"{name}: {model['error']}")
        for row in model.get("latency", []) + model.get("cells", []):
            where = f"{row['scheme']} {row['length']:,}" if "scheme" in row else f"step of {row['rows']} rows"
            if row["note"]:
                lines.append(f"{name}, {where}: {row['note']}")
    return lines
