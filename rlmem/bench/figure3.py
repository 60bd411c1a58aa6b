"""`rlmem bench memory --figure3`: Figure 3 of FFM (Morad et al. 2023, arXiv:2310.04128) on this machine."""

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

import torch

from rlmem.bench.memory import PEERS, MemoryBench, Rows, mib
from rlmem.bench.skeleton import Numbers, Table, progress, quotient
from rlmem.bench.timing import MIB, Run, peak_bytes
from rlmem.conformance import facts
from rlmem.errors import one_line
from rlmem.memory.base import Memory

PAPER = {
    "MLP": "mlp", "PosMLP": "positional_mlp", "Stack": "frame_stack", "TCN": "tcn_popgym", "FART": "fart_popgym",
    "FWP": "fwp_popgym", "S4D": "s4d", "LMU": "lmu", "IndRNN": "indrnn", "Elman": "elman", "GRU": "gru", "LSTM": "lstm",
    "DNC": "dnc", "FFM": "ffm",
}  # fmt: skip
"""The paper's models -> options of conf/memory; its Stack, TCN, FART and FWP also read the time."""
LABELS = {option: label for label, option in PAPER.items()}
ROWS, UPDATES = Rows("segment", 8, 1024), 30


@dataclass
class Figure3Bench(MemoryBench):
    """Figure 3 for the paper's fourteen models by default, which take turns at updates on `rows`.

    Where `rounds` times 30 updates take longer than `budget` seconds, fewer are measured and their time is scaled.
    """

    name = "figure3"
    refused = frozenset({"lengths", "slots"})
    rows: Rows = ROWS

    def measure(self, result: Numbers) -> Iterator[None]:
        result["setting"]["updates"] = UPDATES
        found: dict[str, Numbers] = {}
        updates, stepped = dict[str, Run](), dict[str, Memory]()
        for name in progress([*PEERS, *(self.models or PAPER.values())], "peak memory"):
            label = LABELS.get(name, name)
            try:
                node = self.node(name)
                memory = self.build(node)
                part = lambda part, memory=memory: self.updates(memory, self.rows.shorter(part), 1)  # noqa: E731
                if note := self.why_not(part):
                    found[label] = {"error": note}
                    continue
                one = self.seconds(self.updates(memory, self.rows, 1))
                count = max(1, min(UPDATES, int(self.budget / self.rounds / one)))  # what fits into a round's budget
                found[label] = facts(memory) | {"updates_measured": count}
                updates[label] = self.updates(memory, self.rows, count)
                stepped[label] = self.build(node)
                found[label]["peak_bytes"] = peak_bytes(self.one_and_two_updates, (node,), self.device)
            except Exception as error:
                found[label] = {"error": one_line(error)}
        update_times, step_times = self.turns(updates), self.latency(stepped, self.rows.episodes)
        for label, row in found.items():
            if "error" not in row:
                step = step_times[label]
                each = [second * UPDATES / row["updates_measured"] for second in update_times[label].seconds]
                half = 1.96 * stdev(each) / len(each) ** 0.5 if len(each) > 1 else None  # the interval of 95 %
                row |= {"train_seconds": mean(each) if each else None, "train_ci95": half}
                row |= {"note": update_times[label].note, "step_seconds": step.median, "step_note": step.note}
        result["models"] = found
        yield

    def updates(self, memory: Memory, rows: Rows, count: int) -> Run:
        """`count` updates that minimise the mean output, as in the published benchmark."""
        x, start = rows.batch(self.input_size, self.device)
        optimiser = torch.optim.Adam(p for p in memory.parameters() if p.requires_grad)

        def run() -> None:
            for _ in range(count):
                optimiser.zero_grad()
                y, _ = memory(x, memory.initial_state(len(x)), start)
                y.mean().backward()
                optimiser.step()

        return run

    def one_and_two_updates(self, node: dict[str, Any]) -> tuple[Run, Run]:
        """An update on a sixteenth of the slots, and two on all, which include gradients and Adam's moments."""
        small = self.updates(self.build(node), self.rows.shorter(16), 1)
        return small, self.updates(self.build(node), self.rows, 2)

    def tables(self, result: Numbers) -> Iterator[Table]:
        """The four panels of the figure, the fastest model first."""
        B, T = self.rows.episodes, self.rows.length
        size = f"{UPDATES} updates on [{B}, {T}] slots (s), a step of {B} rows (ms)"
        title = f"FFM's Figure 3: {size}, MiB of live tensors at the peak of training"
        rows = []
        for label, row in result["models"].items():
            if row.get("train_seconds"):
                times = row["train_seconds"], row["train_ci95"], quotient(row["step_seconds"], 1e-3)
                rows.append((label, *times, mib(row), row["parameters"], row["state"]))
        rows.sort(key=lambda row: row[1])
        columns = {"30 updates": "30 updates (s)", "± 95 %": "", "step": "step (ms)"}
        columns |= {"MiB": "live tensors at the peak (MiB)", "parameters": "parameters", "state": ""}
        yield Table(title, ["memory"], columns, rows)

    def notes(self, result: Numbers) -> Iterator[str]:
        for label, row in result["models"].items():
            for what, key in (("", "error"), (", 30 updates", "note"), (", step", "step_note")):
                if note := row.get(key):
                    yield f"{label}{what}: {note}"

    def verdicts(self, result: Numbers) -> Iterator[str]:
        ffm, loop = (result["models"].get(label, {}) for label in ("FFM", "torch.nn.GRUCell"))
        if gain := quotient(loop.get("train_seconds"), ffm.get("train_seconds")):
            yield f"GRU stepped in Python / FFM: {gain:.1f}x (paper, on a GPU: nearly two orders of magnitude)"
        if step := ffm.get("step_seconds"):
            yield f"FFM, a step: {1e3 * step:.2f} ms (paper, on a CPU: below 1 ms)"


def by_model(result: Numbers) -> dict[str, dict[str, float]]:
    """Option of conf/memory or peer -> panel -> number, for the models that could be measured."""
    found = {}
    for label, row in result["models"].items():
        if row.get("train_seconds") and row["step_seconds"]:
            speeds = {"train_s": row["train_seconds"], "step_ms": 1e3 * row["step_seconds"]}
            sizes = {"memory_mib": row["peak_bytes"] / MIB, "parameters": row["parameters"]}
            found[PAPER.get(label, label)] = speeds | sizes
    return found
