"""The memories as they are timed, and Figure 3 of FFM (Morad et al. 2023, arXiv:2310.04128) on this machine."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
from torch import Tensor, nn

from rlmem.config.catalog import catalog
from rlmem.config.compose import load
from rlmem.config.targets import build
from rlmem.conformance import facts
from rlmem.core.errors import one_line
from rlmem.evidence.bench.skeleton import Bench, Numbers, PlottedTable, check_names, progress, quotient
from rlmem.evidence.bench.timing import MIB, Run, Times, peak_bytes, using_threads, wait
from rlmem.memory.base import Memory

PEER = "torch.nn.GRU"
PEERS = {PEER: "rlmem.evidence.bench.figure3.TorchGRU", "torch.nn.GRUCell": "rlmem.evidence.bench.figure3.TorchGRUCell"}
STEPS, BLOCK = 1024, 64
"""The steps that latency is measured over (appendix G of FFM's paper), and the steps of one turn."""
PAPER = {
    "MLP": "mlp", "PosMLP": "positional_mlp", "Stack": "frame_stack", "TCN": "tcn_popgym", "FART": "fart_popgym",
    "FWP": "fwp_popgym", "S4D": "s4d", "LMU": "lmu", "IndRNN": "indrnn", "Elman": "elman", "GRU": "gru", "LSTM": "lstm",
    "DNC": "dnc", "FFM": "ffm",
}  # fmt: skip
"""The paper's models -> options of conf/memory; its Stack, TCN, FART and FWP also read the time."""
LABELS = {option: label for label, option in PAPER.items()}
UPDATES = 30


class TorchGRU(Memory):
    """`torch.nn.GRU`. It ignores starts: every row is one episode."""

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__()
        self.input_size, self.output_size = input_size, hidden_size
        self.rnn: Any = nn.GRU(input_size, hidden_size, batch_first=True)

    def initial_state(self, batch_size: int) -> Tensor:
        return self._like_parameters().new_zeros(batch_size, self.output_size)

    def forward(self, x: Tensor, state: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
        y, h = self.rnn(x, state[None])
        return y, h[0]


class TorchGRUCell(TorchGRU):
    """`torch.nn.GRUCell` in a Python loop, the form in which FFM's Figure 3 runs its recurrent networks."""

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__(input_size, hidden_size)
        self.rnn = nn.GRUCell(input_size, hidden_size)

    def forward(self, x: Tensor, state: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
        outputs = []
        for x_t in x.unbind(1):
            state = self.rnn(x_t, state)
            outputs.append(state)
        return torch.stack(outputs, 1), state


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
class Memories(Bench):
    """A benchmark of memories that read `input_size` features and write `hidden_size`.

    models: options of conf/memory; one that raises is reported, and the others are measured
    """

    models: Sequence[str] | None = None
    input_size: int = 128
    hidden_size: int = 256

    def __post_init__(self) -> None:
        check_names("", "memory", self.models or (), catalog()["memory"])

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
        later = ~start

        @torch.no_grad()
        def run() -> None:
            nonlocal state, start
            for _ in range(BLOCK):
                _, state = memory.step(x, state, start)
                start = later
                wait(self.device)

        return run


@dataclass
class Figure3Bench(Memories):
    """Figure 3 for the paper's fourteen models by default, which take turns at updates on `rows`.

    Where `rounds` times 30 updates take longer than `budget` seconds, fewer are measured and their time is scaled.
    """

    name = "figure3"
    rows: Rows = Rows("segment", 8, 1024)

    def measure(self, result: Numbers) -> Iterator[None]:
        result["setting"]["updates"] = UPDATES
        models: dict[str, Numbers] = {}
        updates, stepped = dict[str, Run](), dict[str, Memory]()
        for name in progress([*PEERS, *(self.models or PAPER.values())], "peak memory"):
            label = LABELS.get(name, name)
            try:
                node = self.node(name)
                memory = self.build(node)
                part = lambda part, memory=memory: self.updates(memory, self.rows.shorter(part), 1)  # noqa: E731
                if note := self.why_not(part):
                    models[label] = {"error": note}
                    continue
                one = self.seconds(self.updates(memory, self.rows, 1))
                count = max(1, min(UPDATES, int(self.budget / self.rounds / one)))  # what fits into a round's budget
                models[label] = facts(memory) | {"updates_measured": count}
                updates[label] = self.updates(memory, self.rows, count)
                stepped[label] = self.build(node)
                models[label]["peak_bytes"] = peak_bytes(self.one_and_two_updates, (node,), self.device)
            except Exception as error:
                models[label] = {"error": one_line(error)}
        update_times, step_times = self.turns(updates), self.latency(stepped, self.rows.episodes)
        for label, row in models.items():
            if "error" not in row:
                step = step_times[label]
                each = [second * UPDATES / row["updates_measured"] for second in update_times[label].seconds]
                half = 1.96 * stdev(each) / len(each) ** 0.5 if len(each) > 1 else None  # the interval of 95 %
                row |= {"train_seconds": mean(each) if each else None, "train_ci95": half}
                row |= {"note": update_times[label].note, "step_seconds": step.median, "step_note": step.note}
        result["models"] = models
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

    def tables(self, result: Numbers) -> Iterator[PlottedTable]:
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
        yield PlottedTable(title, ["memory"], columns, rows)

    def notes(self, result: Numbers) -> Iterator[str]:
        for label, row in result["models"].items():
            for part, key in (("", "error"), (", 30 updates", "note"), (", step", "step_note")):
                if note := row.get(key):
                    yield f"{label}{part}: {note}"


def mib(row: Numbers) -> float | None:
    return quotient(row["peak_bytes"], MIB)


def values(path: Path, rows: Sequence[str], **options: Any) -> dict[str, dict[str, float]]:
    """Option of conf/memory or peer -> panel -> number, for the models that could be measured."""
    models = [row for row in rows if row not in PEERS]
    result = Figure3Bench.run(path.with_suffix(".json"), path.with_suffix(".png"), models=models, **options)
    numbers = {}
    for label, row in result["models"].items():
        if row.get("train_seconds") and row["step_seconds"]:
            speeds = {"train_s": row["train_seconds"], "step_ms": 1e3 * row["step_seconds"]}
            sizes = {"memory_mib": row["peak_bytes"] / MIB, "parameters": row["parameters"]}
            numbers[PAPER.get(label, label)] = speeds | sizes
    return numbers
