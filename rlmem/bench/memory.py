"""`rlmem bench memory`: time and memory of the options of conf/memory, beside `torch.nn.GRU`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from rlmem.bench.peers import TorchGRU
from rlmem.bench.scan import SHAPES, ScanBench, Shape
from rlmem.bench.skeleton import Bench, Numbers, Table, check_names, progress, quotient
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


@dataclass(frozen=True)
class Rows:
    """Episodes of `length` slots: a row for each (`segment`), or all in one row (`tape`)."""

    scheme: str
    episodes: int
    length: int

    def shorter(self, part: int) -> "Rows":
        """The same number of episodes, each with one `part`-th of the length."""
        return replace(self, length=max(1, self.length // part))

    def batch(self, input_size: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """x [B, T, D] and start [B, T]."""
        E, T = self.episodes, self.length
        shape = (1, E * T) if self.scheme == "tape" else (E, T)
        x = torch.randn(*shape, input_size, generator=torch.Generator().manual_seed(1))
        start = torch.arange(E * T) % T == 0
        return x.to(device), start.view(shape).to(device)


@dataclass
class MemoryBench(Bench):
    """Forward and backward, steps, memory and size of each model, from `input_size` to `hidden_size` features.

    models: options of conf/memory; all by default; one that raises is reported, and the others are measured
    lengths: slots of an episode, one cell of `slots` for each; 128, 1,024 and 16,384 by default
    scans: shapes for `rlmem bench scan`, which is run too; by default its own, or none if models or lengths are given
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
        self.lengths = tuple(self.lengths or (128, 1024, 16384))
        check_names("", "memory", self.models or (), catalog()["memory"])

    def measure(self, result: Numbers) -> Iterator[None]:
        chosen_engine("auto", self.device)  # compiles the kernels, if need be, before anything is measured
        result["models"] = {}
        for name in progress([PEER, *(self.models or catalog()["memory"])], "memories"):
            result["models"][name] = self.model(name)
            yield
        scans = ScanBench(self.rounds, self.budget, self.device, shapes=tuple(self.scans or ()))
        yield from scans.measure(result)

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

    def model(self, name: str) -> Numbers:
        """Everything about one model; {"error": why} if it cannot be built or stepped."""
        try:
            node = self.node(name)
            memory, peer = self.build(node), self.build(self.node(PEER))
            found = facts(memory) | {"latency": []}
            for B in ROWS_ACTED:
                step, peer_step = self.latency({MODEL: memory, PEER: peer}, B).values()
                row = {"rows": B, "seconds": step.median, "peer_seconds": peer_step.median, "note": step.note}
                found["latency"].append(row)
        except Exception as error:
            return {"error": one_line(error)}
        return found | {"cells": [cell for T in self.lengths for cell in self.cells(node, memory, peer, T)]}

    def latency(self, memories: dict[str, Memory], B: int) -> dict[str, Times]:
        """The times of a step of B rows, from blocks of steps that take turns, with one thread, as rlmem acts."""
        with using_threads(1):
            blocks = {name: self.steps(memory, B) for name, memory in memories.items()}
            times = replace(self, rounds=STEPS // BLOCK).turns(blocks)
        return {name: Times([block / BLOCK for block in time.seconds], time.note) for name, time in times.items()}

    def steps(self, memory: Memory, B: int) -> Run:
        """A block of steps of B rows without autograd."""
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
        found = []
        for scheme, rows in layouts.items():
            time, peak = times[scheme], None
            if time.seconds:
                try:
                    peak = peak_bytes(self.small_and_whole, (node, rows), self.device)
                except Exception as error:
                    time.note = f"peak memory: {one_line(error)}"
            cell = {"scheme": scheme, "length": T, "episodes": episodes, "seconds": time.median, "note": time.note}
            cell |= {"peer_seconds": times[PEER].median, "rounds": len(time.seconds), "peak_bytes": peak}
            found.append(cell)
        return found + [found[0] | {"scheme": scheme} for scheme in schemes if scheme not in layouts]

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

    def tables(self, result: Numbers) -> Iterator[Table]:
        """A table of what does not depend on the length, a table for each length, then the scans."""
        models = {name: model for name, model in result["models"].items() if "error" not in model}
        rows: list[Any] = []
        for name, model in models.items():
            steps = [cell for row in model["latency"] for cell in (quotient(row["seconds"], 1e-6), ratio(row))]
            rows.append((name, model["engine"] or "", model["parameters"], model["state"], *steps))
        columns = {"parameters": "numbers", "state": "numbers"}
        for B in ROWS_ACTED:
            columns |= {f"{B}": "microseconds per step", f"{B} / GRU": "time / torch.nn.GRU's"}
        title = "size; microseconds of a step of 1 and of 8 rows, and their ratio to torch.nn.GRU's"
        yield Table(title, ("memory", "engine"), columns, rows)
        columns = {}
        for scheme in SCHEMES:
            columns |= {scheme: "ms", f"{scheme} / GRU": "time / torch.nn.GRU's", f"{scheme}, MiB": "MiB"}
        for T in self.lengths:
            rows = []
            for name, model in models.items():
                cells = [cell_of(model, scheme, T) for scheme in SCHEMES]
                rows.append((name, *(n for c in cells for n in (quotient(c["seconds"], 1e-3), ratio(c), mib(c)))))
            measures = "ms forward + backward, ratio to torch.nn.GRU's, MiB of live tensors at the peak"
            yield Table(f"{max(1, self.slots // T):,} x {T:,} slots: {measures}", ["memory"], columns, rows)
        if result["scans"]:
            yield from ScanBench().tables(result)

    def notes(self, result: Numbers) -> Iterator[str]:
        yield from notes_on(result["models"])
        yield from ScanBench().notes(result)


def cell_of(model: Numbers, scheme: str, length: int) -> Numbers:
    """The cell of a model, or an empty one."""
    found = (c for c in model.get("cells", ()) if (c["scheme"], c["length"]) == (scheme, length))
    return next(found, {"seconds": None, "peer_seconds": None, "peak_bytes": None})


def ratio(row: Numbers) -> float | None:
    """The seconds of a row, relative to the peer's."""
    return quotient(row["seconds"], row["peer_seconds"])


def mib(row: Numbers) -> float | None:
    return quotient(row["peak_bytes"], MIB)


def notes_on(models: dict[str, Numbers]) -> Iterator[str]:
    for name, model in models.items():
        if "error" in model:
            yield f"{name}: {model['error']}"
        for row in model.get("latency", []) + model.get("cells", []):
            where = f"{row['scheme']} {row['length']:,}" if "scheme" in row else f"step of {row['rows']} rows"
            if row["note"]:
                yield f"{name}, {where}: {row['note']}"
