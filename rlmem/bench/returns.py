"""`rlmem bench returns`: returns and advantages by scan, beside the loops that they replace.

Returns: Figure 5 (left) of Memoroids (Morad et al. 2024, arXiv:2402.09900) as its released returns.py measures it:
10 to 10,000 episodes in one row, lengths uniform in [1, longest), rewards uniform in [0, 1), gamma = 0.99.

    prefix: episodes    a Python loop over episodes, one cumulative sum each: the published "serial"
    prefix: scan        `rlmem.losses.returns.prefix_return`, the same quantity, as the published "parallel"
    return: steps       the textbook's loop from the last step to the first, on Python's numbers
    return: scan        `rlmem.losses.returns.discounted_return`, the same quantity: what an agent learns from

Advantages: GAE of 65,536 transitions as T steps of B environments; every loop computes its own temporal differences.

    python              a loop over environments and steps, on Python's numbers: from tensors, all converted beforehand
                        (`tolist`, many times faster than an `item()` each), to a tensor, as the scan
    lists               the same loop alone: from lists of numbers to lists
    numpy               a loop over steps on arrays of B, as Stable Baselines has it
    torch               a loop over steps on tensors of B, as CleanRL has it
    scan                `rlmem.losses.returns.gae`

`tests/test_bench.py` holds the methods to each other. Data are at hand in the form that each of them reads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from rlmem.bench import output
from rlmem.bench.output import number
from rlmem.bench.timing import CPU, in_turns
from rlmem.bench.train import threads as using_threads
from rlmem.losses.returns import discounted_return, gae, prefix_return
from rlmem.run.hardware import choose_device

EPISODES, LONGEST = (10, 50, 100, 500, 1000, 10_000), (10, 100, 1000)
SHAPES = ((128, 512), (1024, 64), (65536, 1))
"""[T, B]"""
GAMMA, LAMBDA = 0.99, 0.95

PREFIX, PREFIX_SCAN, RETURN, RETURN_SCAN = "prefix: episodes", "prefix: scan", "return: steps", "return: scan"
PYTHON, LISTS, NUMPY, TORCH, SCAN = "python", "lists", "numpy", "torch", "scan"
LOOPS = (PYTHON, LISTS, NUMPY, TORCH)

Methods = dict[str, Callable[[], Any]]


def main(
    rounds: int = 5,
    budget: float = 20.0,
    threads: int | None = None,
    device: str = "auto",
    json_path: Path = Path("bench-returns.json"),
    plot_path: Path = Path("bench-returns.png"),
    episodes: tuple[int, ...] = EPISODES,
    longest: tuple[int, ...] = LONGEST,
    shapes: tuple[tuple[int, int], ...] = SHAPES,
) -> dict[str, Any]:
    """Measure, print two tables, write the numbers and a plot, and return the numbers."""
    output.check(json_path, plot_path)
    where = choose_device(device)
    result: dict[str, Any] = {"setting": {"gamma": GAMMA, "lambda": LAMBDA, "rounds": rounds, "budget": budget}}
    with using_threads(threads or torch.get_num_threads()):
        result |= {"machine": output.machine(where), "returns": [], "gae": []}
        for count, most in output.progress([(count, most) for most in longest for count in episodes], "returns"):
            transitions, methods = return_methods(count, most, where)
            case = {"episodes": count, "longest": most, "transitions": transitions}
            result["returns"].append(case | measure(methods, rounds, budget, where))
        for T, B in output.progress(shapes, "advantages"):
            result["gae"].append({"T": T, "B": B} | measure(gae_methods(T, B, where), rounds, budget, where))
    output.write(result, json_path)
    report(result)
    plot(result, plot_path)
    Console().print(f"wrote {json_path} and {plot_path}")
    return result


def measure(methods: Methods, rounds: int, budget: float, device: torch.device = CPU) -> dict[str, Any]:
    """Seconds of each method, of measurements of 10 ms at least."""
    times = in_turns(methods, rounds, budget, device, at_least=0.01)
    return {
        "seconds": {name: time.median for name, time in times.items()},
        "notes": {name: time.note for name, time in times.items() if time.note},
    }


def cells(result: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Method -> `episodes x longest` -> milliseconds, for the returns."""
    found: dict[str, dict[str, float]] = {}
    for case in result["returns"]:
        for method, seconds in case["seconds"].items():
            if seconds is not None:
                found.setdefault(method, {})[f"{case['episodes']} x {case['longest']}"] = 1e3 * seconds
    return found


def return_methods(episodes: int, longest: int, device: torch.device = CPU) -> tuple[int, Methods]:
    """The number of transitions, and the methods. Each gives one number per transition, in order."""
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(1, longest, (episodes,), generator=generator)
    ends = lengths.cumsum(0)
    S = int(ends[-1])
    rewards = torch.rand(S, generator=generator)
    each = [part.tolist() for part in rewards.split(lengths.tolist())]
    rewards = rewards.to(device)
    parts, powers = rewards.split(lengths.tolist()), GAMMA ** torch.arange(longest, device=device)
    start = torch.zeros(1, S, dtype=torch.bool)
    start[0, 0] = True
    start[0, ends[:-1]] = True
    terminated = torch.cat([start[:, 1:], torch.ones(1, 1, dtype=torch.bool), torch.zeros(1, 1, dtype=torch.bool)], 1)
    mask = torch.arange(S + 1)[None] < S  # the slot rule: the last one is not acted in
    padded = torch.cat([rewards, rewards.new_zeros(1)])[None]
    start, terminated, mask = start.to(device), terminated.to(device), mask.to(device)

    def steps() -> list[float]:
        returns: list[float] = []
        for episode in each:
            G, backwards = 0.0, []
            for r in reversed(episode):
                G = r + GAMMA * G
                backwards.append(G)
            returns += reversed(backwards)
        return returns

    return S, {
        PREFIX: lambda: torch.cat([(part * powers[: len(part)]).cumsum(0) for part in parts]),
        PREFIX_SCAN: lambda: prefix_return(rewards[None], start, GAMMA)[0],
        RETURN: steps,
        RETURN_SCAN: lambda: discounted_return(padded, terminated, mask, GAMMA)[0, :-1],
    }


def gae_methods(T: int, B: int, device: torch.device = CPU) -> Methods:
    """Each gives the advantages of T steps of B environments, [T, B] or, by the scan, [B, T]."""
    generator = torch.Generator().manual_seed(0)
    reward = torch.rand(T, B, generator=generator)
    value = torch.randn(T + 1, B, generator=generator)
    done = torch.rand(T, B, generator=generator) < 0.01
    lists = [x.T.tolist() for x in (reward, value, done)]
    by_environment = [x.T.contiguous().to(device) for x in (reward, value, done)]
    arrays = [x.numpy() for x in (reward, value, 1 - done.float())]
    tensors = [x.to(device) for x in (reward, value, 1 - done.float())]
    row = lambda x: torch.cat([x, x.new_zeros(1, B)]).T.contiguous().to(device)  # noqa: E731
    rows = row(reward), value.T.contiguous().to(device), row(done), row(torch.ones_like(done))

    def numbers(data: list[list[list[Any]]]) -> list[list[float]]:
        advantages = []
        for rewards, values, dones in zip(*data, strict=True):
            A, backwards, v_next = 0.0, [], values[-1]
            for r, v, d in zip(reversed(rewards), reversed(values[:-1]), reversed(dones), strict=True):
                A = r - v if d else r + GAMMA * v_next - v + GAMMA * LAMBDA * A
                v_next = v
                backwards.append(A)
            advantages.append(backwards[::-1])
        return advantages

    def steps(data: Any, advantages: Any) -> Any:
        r, v, goes_on = data
        A = 0.0
        for t in reversed(range(T)):
            delta = r[t] + GAMMA * v[t + 1] * goes_on[t] - v[t]
            advantages[t] = A = delta + GAMMA * LAMBDA * goes_on[t] * A
        return advantages

    return {
        PYTHON: lambda: torch.tensor(numbers([x.tolist() for x in by_environment]), device=device),
        LISTS: lambda: numbers(lists),
        NUMPY: lambda: steps(arrays, np.empty((T, B), np.float32)),
        TORCH: lambda: steps(tensors, torch.empty(T, B, device=device)),
        SCAN: lambda: gae(*rows, GAMMA, LAMBDA)[:, :-1],
    }


def report(result: dict[str, Any]) -> None:
    console = Console()
    title = "discounted sums of episodes in one row (ms, and how many times faster the scan is)"
    table = output.table(title, "episodes", "longest", *("prefix", "scan", "gain"), *("return", "scan", "gain"), left=0)
    for case in result["returns"]:
        s = case["seconds"]
        pairs = [(s[loop], s[scan]) for loop, scan in ((PREFIX, PREFIX_SCAN), (RETURN, RETURN_SCAN))]
        texts = [text for loop, scan in pairs for text in (*ms(loop, scan), gain(loop, scan))]
        table.add_row(f"{case['episodes']:,}", f"{case['longest']:,}", *texts)
    console.print(table)
    title = "GAE (ms, and how many times faster the scan is; lists: python's loop without its conversions)"
    table = output.table(title, "T, B", *LOOPS, SCAN, left=0)
    for case in result["gae"]:
        s = case["seconds"]
        cells = [f"{ms(s[loop])[0]} {gain(s[loop], s[SCAN])}" for loop in LOOPS]
        table.add_row(f"{case['T']:,}, {case['B']}", *cells, *ms(s[SCAN]))
    console.print(table)
    for case in result["returns"] + result["gae"]:
        for name, note in case["notes"].items():
            where = ", ".join(f"{key} {case[key]:,}" for key in case if key not in ("seconds", "notes"))
            console.print(f"{name}, {where}: {note}", style="dim", highlight=False, markup=False, soft_wrap=True)


def ms(*seconds: float | None) -> list[str]:
    return [number(second and 1e3 * second) for second in seconds]


def gain(loop: float | None, scan: float | None) -> str:
    return f"{number(loop / scan)}x" if loop and scan else "-"


def plot(result: dict[str, Any], path: Path) -> None:
    """The lines of the paper's figure, by method (colour) and longest episode (style); bars of GAE, if measured."""
    panels = 2 if result["gae"] else 1
    figure = output.figure(6.5 * panels, 5)
    lines = figure.subplots(1, panels, squeeze=False)[0, 0]
    longest = list(dict.fromkeys(case["longest"] for case in result["returns"]))
    for k, method in enumerate((PREFIX, PREFIX_SCAN, RETURN, RETURN_SCAN)):
        for style, most in zip(("-", "--", ":"), longest, strict=False):
            cases = [case for case in result["returns"] if case["longest"] == most and case["seconds"][method]]
            times = [1e3 * case["seconds"][method] for case in cases]
            label = f"{method}, up to {most:,} steps"
            lines.plot([case["episodes"] for case in cases], times, style, marker=".", color=f"C{k}", label=label)
    lines.set(xscale="log", yscale="log", xlabel="episodes", ylabel="ms", title="discounted sums (Memoroids, figure 5)")
    lines.legend(fontsize="x-small", loc="upper left", bbox_to_anchor=(1, 1))
    if result["gae"]:
        _bars(figure.axes[1], result["gae"])
    figure.savefig(path, dpi=120)


def _bars(bars: Any, cases: Sequence[dict[str, Any]]) -> None:
    width = 0.16
    for k, method in enumerate((*LOOPS, SCAN)):
        heights = [1e3 * (case["seconds"][method] or 0) for case in cases]
        bars.bar([x + (k - 2) * width for x in range(len(heights))], heights, width, label=method)
    bars.set(yscale="log", ylabel="ms", title="GAE", xticks=range(len(cases)))
    bars.set_xticklabels([f"T = {case['T']:,}, B = {case['B']:,}" for case in cases])
    bars.legend()
