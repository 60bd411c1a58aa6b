"""`rlmem bench memory`: time and memory of the options of conf/memory, beside `torch.nn.GRU`.

Every model reads 128 features and writes 256 (`hidden_size`); whatever else its yaml says holds. The slots of a cell
are episodes of T slots in one of two layouts: `segment`, a row each, and `tape`, one after the other in a single row,
with a start flag where each begins. `torch.nn.GRU` knows no starts; it reads the segments, also beside a tape.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

from rlmem.bench import memory_report, output, scan
from rlmem.bench.peers import TorchGRU
from rlmem.bench.timing import CPU, Measured, Run, in_turns, peak_bytes, reason, too_long, wait
from rlmem.bench.train import threads as using_threads
from rlmem.config.catalog import select
from rlmem.config.compose import load
from rlmem.config.messages import nearest, sentence
from rlmem.config.targets import build
from rlmem.conformance import facts
from rlmem.errors import UserError
from rlmem.memory.base import Memory
from rlmem.run.hardware import choose_device
from rlmem.scan import chosen_engine

MODEL, PEER = "model", "torch.nn.GRU"
PEERS = {PEER: "rlmem.bench.peers.TorchGRU", "torch.nn.GRUCell": "rlmem.bench.peers.TorchGRUCell"}
ROWS_ACTED = (1, 8)
STEPS, BLOCK = 1024, 64
"""Steps of which the latency is taken (appendix G of FFM's paper), and those between two turns."""


@dataclass(frozen=True)
class Setting:
    """What is measured, how often, and where."""

    lengths: tuple[int, ...] = (128, 1024, 16384)
    slots: int = 16384
    input_size: int = 128
    hidden_size: int = 256
    rounds: int = 5
    budget: float = 20.0
    device: torch.device = CPU

    def rows(self, scheme: str, length: int) -> Rows:
        return Rows(scheme, max(1, self.slots // length), length)


@dataclass(frozen=True)
class Rows:
    """Episodes of `length` slots: a row each, or all in one."""

    scheme: str
    episodes: int
    length: int

    def shorter(self, part: int) -> Rows:
        return replace(self, length=max(1, self.length // part))

    def batch(self, setting: Setting) -> tuple[Tensor, Tensor]:
        """x [B, T, D] and start [B, T]."""
        E, T = self.episodes, self.length
        shape = (1, E * T) if self.scheme == "tape" else (E, T)
        x = torch.randn(*shape, setting.input_size, generator=torch.Generator().manual_seed(1))
        start = torch.zeros(E * T, dtype=torch.bool)
        start[::T] = True
        return x.to(setting.device), start.view(shape).to(setting.device)


def main(
    models: Sequence[str] | None = None,
    lengths: Sequence[int] | None = None,
    slots: int = Setting.slots,
    rounds: int = 5,
    budget: float = 20.0,
    threads: int | None = None,
    device: str = "auto",
    json_path: Path = Path("bench-memory.json"),
    plot_path: Path = Path("bench-memory.png"),
    scans: scan.Shapes | None = None,
) -> dict[str, Any]:
    """Measure, print tables, write the numbers and a plot, and return the numbers.

    models: options of conf/memory, all by default. One that raises is reported as such, and the others go on.
    scans: shapes of `bench scan`, measured too: its own by default, none where models or lengths are chosen.
    """
    output.check(json_path, plot_path)
    names = chosen(models)
    if scans is None:
        scans = () if models or lengths else scan.SHAPES
    setting = Setting(
        tuple(lengths or Setting.lengths), slots, rounds=rounds, budget=budget, device=choose_device(device)
    )
    with using_threads(threads or torch.get_num_threads()):
        chosen_engine("auto", setting.device)  # compiled before anything is measured, if it never was
        result: dict[str, Any] = {
            "setting": asdict(setting) | {"device": str(setting.device)},
            "machine": output.machine(setting.device),
            "models": {},
            "scans": [],
        }
        for name in output.progress([PEER, *names], "memories"):
            result["models"][name] = measure(name, setting)
            output.write(result, json_path)
        result["scans"] = scan.measure(rounds, budget, setting.device, scans)
    output.write(result, json_path)
    memory_report.show(result)
    if result["scans"]:
        scan.report(result["scans"])
    memory_report.plot(result, plot_path)
    Console().print(f"wrote {json_path} and {plot_path}")
    return result


def chosen(models: Sequence[str] | None) -> list[str]:
    """The options of conf/memory, or those named; UserError for one that is none."""
    options = select("memory")["memory"]
    wrong = [name for name in models or () if name not in options]
    if wrong:
        say = lambda name: sentence(name, "no such memory", near=nearest(name, options), accepted=options)  # noqa: E731
        raise UserError(*map(say, wrong))
    return list(models or options)


def node(name: str, setting: Setting) -> dict[str, Any]:
    """`_target_` and arguments of an option of conf/memory, or of a peer."""
    if name in PEERS:
        return {"_target_": PEERS[name], "hidden_size": setting.hidden_size}
    return load([f"memory={name}", f"memory.hidden_size={setting.hidden_size}"]).values["memory"]


def make(node: dict[str, Any], setting: Setting) -> Memory:
    """The model, with the same weights every time."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return build(node, input_size=setting.input_size).to(setting.device)


def measure(name: str, setting: Setting) -> dict[str, Any]:
    """Everything about one model; {"error": why} if it cannot be built or stepped."""
    try:
        of = node(name, setting)
        memory, peer = make(of, setting), make(node(PEER, setting), setting)
        result = facts(memory) | {"latency": latency(memory, peer, setting)}
    except Exception as error:
        return {"error": reason(error)}
    result["cells"] = [cell for T in setting.lengths for cell in cells(of, memory, peer, T, setting)]
    return result


def latency(memory: Memory, peer: Memory, setting: Setting) -> list[dict[str, Any]]:
    """Seconds per step of 1 and of 8 rows (the 8 of FFM's Figure 3), without autograd.

    The median of 16 blocks of 64 steps, at which both take turns; on the CPU with one thread, as rlmem acts.
    """
    found = []
    with using_threads(1):
        for B in ROWS_ACTED:
            streams = {MODEL: stream(memory, B, setting), PEER: stream(peer, B, setting)}
            times = in_turns(streams, STEPS // BLOCK, setting.budget, setting.device)
            step, peer_step = (m and m / BLOCK for m in (times[MODEL].median, times[PEER].median))
            found.append({"rows": B, "seconds": step, "peer_seconds": peer_step, "note": times[MODEL].note})
    return found


def stream(memory: Memory, B: int, setting: Setting) -> Run:
    """The next 64 steps of B rows."""
    x = torch.randn(B, setting.input_size, generator=torch.Generator().manual_seed(1)).to(setting.device)
    state, start = memory.initial_state(B), torch.full((B,), True, device=setting.device)
    goes_on = ~start

    @torch.no_grad()
    def run() -> None:
        nonlocal state, start
        for _ in range(BLOCK):
            _, state = memory.step(x, state, start)
            start = goes_on
            wait(setting.device)

    return run


def cells(of: dict[str, Any], memory: Memory, peer: Memory, T: int, setting: Setting) -> list[dict[str, Any]]:
    """Forward and backward of episodes of T slots in each layout, in turns with the peer, and their peak memory."""
    runs = {PEER: forward_backward(peer, setting.rows("segment", T), setting)}
    notes = {}
    for scheme, rows in {scheme: setting.rows(scheme, T) for scheme in schemes(memory)}.items():
        if scheme == "tape" and rows.episodes == 1:
            continue
        notes[scheme] = why_not(memory, rows, setting)
        if not notes[scheme]:
            runs[scheme] = forward_backward(memory, rows, setting)
    times = in_turns(runs, setting.rounds, setting.budget, setting.device) if len(runs) > 1 else {}
    del runs
    found = []
    for scheme, note in notes.items():
        time, rows = times.get(scheme, Measured(note=note)), setting.rows(scheme, T)
        cell = {"scheme": scheme, "length": T, "episodes": rows.episodes, "seconds": time.median}
        cell |= {"peer_seconds": times[PEER].median if times else None, "rounds": len(time.seconds), "note": time.note}
        found.append(cell | (peak(of, rows, setting) if time.seconds else {"peak_bytes": None}))
    if "tape" in schemes(memory) and "tape" not in notes:
        found.append(found[0] | {"scheme": "tape"})  # one episode: the same row
    return found


def schemes(memory: Memory) -> tuple[str, ...]:
    return ("segment",) if isinstance(memory, TorchGRU) else ("segment", "tape")


def why_not(memory: Memory, rows: Rows, setting: Setting) -> str:
    """What keeps a cell from being measured, or ""."""
    try:
        shorter = lambda part: forward_backward(memory, rows.shorter(part), setting)  # noqa: E731
        return too_long(shorter, setting.budget, setting.device)
    except Exception as error:
        return reason(error)


def forward_backward(memory: Memory, rows: Rows, setting: Setting) -> Run:
    """Outputs from the initial state, and the gradients of the weights and of the input."""
    x, start = rows.batch(setting)
    leaves = [x.requires_grad_(), *(p for p in memory.parameters() if p.requires_grad)]
    cotangent = torch.ones(*start.shape, memory.output_size, device=x.device)

    def run() -> None:
        y, _ = memory(x, memory.initial_state(len(x)), start)
        torch.autograd.grad(y, leaves, cotangent, allow_unused=True)

    return run


def peak(of: dict[str, Any], rows: Rows, setting: Setting) -> dict[str, Any]:
    try:
        return {"peak_bytes": peak_bytes(small_and_whole, (of, rows, setting), setting.device)}
    except Exception as error:
        return {"peak_bytes": None, "note": f"peak memory: {reason(error)}"}


def small_and_whole(of: dict[str, Any], rows: Rows, setting: Setting) -> tuple[Run, Run]:
    """A forward and backward of a sixteenth of `rows`, and that of `rows`."""
    memory = make(of, setting)
    return forward_backward(memory, rows.shorter(16), setting), forward_backward(memory, rows, setting)
