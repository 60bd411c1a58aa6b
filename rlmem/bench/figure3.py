"""`rlmem bench memory --figure3`: Figure 3 of FFM (Morad et al. 2023, arXiv:2310.04128) on this machine.

Its panels (appendix G and the released benchmark.py): time of 30 updates, each a forward, a backward and a step of Adam
on [8, 1024, 128]; latency of a step of 8 rows; memory at the peak of training; parameters. Its fifth panel,
the reward, is an experiment and not a speed. The paper stepped its GRU, LSTM and Elman networks in Python loops, on an
RTX 2080 Ti; here they are rlmem's, and torch's GRU is beside them in both forms: `torch.nn.GRU`, and the loop over
`torch.nn.GRUCell` that stands for the paper's.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from rlmem.bench import output
from rlmem.bench.memory import BLOCK, PEERS, STEPS, Rows, Setting, chosen, make, node, stream
from rlmem.bench.output import number
from rlmem.bench.timing import MIB, Measured, Run, in_turns, peak_bytes, reason, seconds, too_long
from rlmem.bench.train import threads as using_threads
from rlmem.conformance import facts
from rlmem.memory.base import Memory
from rlmem.run.hardware import choose_device

PAPER = {
    "MLP": "mlp",
    "PosMLP": "positional_mlp",
    "Stack": "frame_stack",
    "TCN": "tcn_popgym",
    "FART": "fart_popgym",
    "FWP": "fwp_popgym",
    "S4D": "s4d",
    "LMU": "lmu",
    "IndRNN": "indrnn",
    "Elman": "elman",
    "GRU": "gru",
    "LSTM": "lstm",
    "DNC": "dnc",
    "FFM": "ffm",
}
"""Its models, and the options of conf/memory that are these models; its Stack, TCN, FART and FWP know the time, too."""
ROWS, UPDATES = Rows("segment", 8, 1024), 30
LOOP = "torch.nn.GRUCell"


def main(
    models: Sequence[str] | None = None,
    rounds: int = 5,
    budget: float = 20.0,
    threads: int | None = None,
    device: str = "auto",
    json_path: Path = Path("bench-figure3.json"),
    plot_path: Path = Path("bench-figure3.png"),
    rows: Rows = ROWS,
) -> dict[str, Any]:
    """Measure, print a table, write the numbers and the figure, and return the numbers.

    models: options of conf/memory, by default the paper's fourteen. Where 30 updates, `rounds` times, take longer than
    `budget` seconds, fewer are measured and their time is scaled to 30.
    """
    output.check(json_path, plot_path)
    called = {name: label for label, name in PAPER.items()}
    labels = {called.get(name, name): name for name in chosen(models)} if models else PAPER
    setting = Setting(rounds=rounds, budget=budget, device=choose_device(device))
    with using_threads(threads or torch.get_num_threads()):
        result = {
            "setting": asdict(setting) | {"device": str(setting.device), "rows": asdict(rows), "updates": UPDATES},
            "machine": output.machine(setting.device),
            "models": measure({name: name for name in PEERS} | labels, rows, setting),
        }
    output.write(result, json_path)
    report(result["models"], rows)
    plot(result["models"], plot_path)
    Console().print(f"wrote {json_path} and {plot_path}")
    return result


def measure(labels: dict[str, str], rows: Rows, setting: Setting) -> dict[str, dict[str, Any]]:
    """Label -> option or peer; all take turns. {"error": why} for one that fails."""
    found: dict[str, dict[str, Any]] = {}
    training, stepping = {}, {}
    for label, name in output.progress(labels.items(), "peak memory"):
        try:
            of = node(name, setting)
            memory = make(of, setting)
            if note := too_slow(memory, rows, setting):
                found[label] = {"error": note}
                continue
            found[label] = facts(memory) | {"updates_measured": fitting(memory, rows, setting)}
            training[label] = updates(memory, rows, setting, found[label]["updates_measured"])
            stepping[label] = stream(make(of, setting), rows.episodes, setting)
            found[label]["peak_bytes"] = peak_bytes(small_and_whole, (of, rows, setting), setting.device)
        except Exception as error:
            found[label] = {"error": reason(error)}
    trained = in_turns(training, setting.rounds, setting.budget, setting.device)
    with using_threads(1):
        stepped = in_turns(stepping, STEPS // BLOCK, setting.budget, setting.device)
    for label, row in found.items():
        if "error" not in row:
            row |= epochs(trained[label], row["updates_measured"])
            step = stepped[label]
            row |= {"step_seconds": step.median and step.median / BLOCK, "step_note": step.note}
    return found


def too_slow(memory: Memory, rows: Rows, setting: Setting) -> str:
    return too_long(lambda part: updates(memory, rows.shorter(part), setting, 1), setting.budget, setting.device)


def fitting(memory: Memory, rows: Rows, setting: Setting) -> int:
    """How many updates fit into a round's part of the budget, at most all of them."""
    one = seconds(updates(memory, rows, setting, 1), setting.device)
    return max(1, min(UPDATES, int(setting.budget / setting.rounds / one)))


def epochs(time: Measured, measured: int) -> dict[str, Any]:
    """Seconds of 30 updates: mean and half its 95 % interval (normal approximation)."""
    each = [second * UPDATES / measured for second in time.seconds]
    half = 1.96 * statistics.stdev(each) / len(each) ** 0.5 if len(each) > 1 else None
    return {"train_seconds": statistics.mean(each) if each else None, "train_ci95": half, "note": time.note}


def updates(memory: Memory, rows: Rows, setting: Setting, count: int) -> Run:
    """`count` updates that lower the mean output, as the published benchmark's."""
    x, start = rows.batch(setting)
    optimiser = torch.optim.Adam(p for p in memory.parameters() if p.requires_grad)

    def run() -> None:
        for _ in range(count):
            optimiser.zero_grad()
            y, _ = memory(x, memory.initial_state(len(x)), start)
            y.mean().backward()
            optimiser.step()

    return run


def small_and_whole(of: dict[str, Any], rows: Rows, setting: Setting) -> tuple[Run, Run]:
    """An update on a sixteenth of the slots, and two on all: gradients and Adam's moments are part of the peak."""
    memory = make(of, setting)
    return updates(make(of, setting), rows.shorter(16), setting, 1), updates(memory, rows, setting, 2)


def report(models: dict[str, dict[str, Any]], rows: Rows) -> None:
    what = f"{UPDATES} updates on [{rows.episodes}, {rows.length}] slots (s), a step of {rows.episodes} rows (ms)"
    title = f"FFM's Figure 3: {what}, MiB of live tensors at the peak of training"
    table = output.table(title, "memory", "30 updates", "± 95 %", "step", "MiB", "parameters", "state")
    for label, row in fastest_first(models):
        numbers = (row["train_seconds"], row["train_ci95"], step_ms(row), row["peak_bytes"] / MIB)
        table.add_row(label, *map(number, numbers), f"{row['parameters']:,}", f"{row['state']:,}")
    console = Console()
    console.print(table)
    for label, row in models.items():
        for what, key in (("", "error"), (", 30 updates", "note"), (", step", "step_note")):
            if note := row.get(key):
                console.print(f"{label}{what}: {note}", style="dim", highlight=False, markup=False, soft_wrap=True)
    ffm, loop = (models.get(label, {}) for label in ("FFM", LOOP))
    if ffm.get("train_seconds") and loop.get("train_seconds"):
        gain = loop["train_seconds"] / ffm["train_seconds"]
        console.print(
            f"GRU stepped in Python / FFM: {gain:.1f}x (paper, on a GPU: nearly two orders of magnitude)",
            soft_wrap=True,
        )
    if step := ffm.get("step_seconds"):
        console.print(f"FFM, a step: {1e3 * step:.2f} ms (paper, on a CPU: below 1 ms)")


def cells(result: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Memory -> panel -> number, of those that could be measured."""
    models = result["models"]
    return {
        label: {
            "train_s": row["train_seconds"],
            "step_ms": 1e3 * row["step_seconds"],
            "memory_mib": row["peak_bytes"] / MIB,
            "parameters": row["parameters"],
        }
        for label, row in models.items()
        if row.get("train_seconds") and row.get("step_seconds")
    }


def step_ms(row: dict[str, Any]) -> float | None:
    return row["step_seconds"] and 1e3 * row["step_seconds"]


def fastest_first(models: dict[str, dict[str, Any]]) -> list[tuple[str, dict[str, Any]]]:
    done = [(label, row) for label, row in models.items() if row.get("train_seconds")]
    return sorted(done, key=lambda item: item[1]["train_seconds"])


def plot(models: dict[str, dict[str, Any]], path: Path) -> None:
    """The four panels, each sorted, FFM in orange."""
    from matplotlib.ticker import LogLocator

    panels = {
        "30 updates (s)": lambda row: row["train_seconds"],
        "step of 8 rows (ms)": step_ms,
        "live tensors at the peak (MiB)": lambda row: row["peak_bytes"] / MIB,
        "parameters": lambda row: row["parameters"],
    }
    figure = output.figure(16, 5)
    for axes, (title, value) in zip(figure.subplots(1, 4), panels.items(), strict=True):
        bars = sorted((width, label) for label, row in fastest_first(models) if (width := value(row)) is not None)
        colors = ["C1" if label == "FFM" else "C0" for _, label in bars]
        axes.barh([label for _, label in bars], [width for width, _ in bars], color=colors)
        axes.set(title=title)
        if value is panels["30 updates (s)"]:
            axes.set_xscale("log")
            axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))  # its own labels overlap within a decade or two
            axes.xaxis.set_major_formatter("{x:g}")
            axes.xaxis.set_minor_formatter("")
        axes.invert_yaxis()
    figure.savefig(path, dpi=120)
