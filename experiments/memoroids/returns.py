"""Returns and advantages by scan, compared with the loops that they replace."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch

from rlmem.evidence.bench.skeleton import Bench, Numbers, PlottedTable, progress, quotient
from rlmem.evidence.bench.timing import CPU, Run
from rlmem.losses.on_policy import discounted_return, gae, prefix_return

GAMMA, LAMBDA = 0.99, 0.95
PREFIX, PREFIX_SCAN, RETURN, RETURN_SCAN = "prefix: episodes", "prefix: scan", "return: steps", "return: scan"
LOOP, SCAN = "torch", "scan"


@dataclass
class ReturnsBench(Bench):
    """Discounted sums of `episodes` shorter than `longest`, for every pair of them; advantages of `shapes` [T, B]."""

    name = "returns"
    episodes: Sequence[int] = (10, 50, 100, 500, 1000, 10_000)
    longest: Sequence[int] = (10, 100, 1000)
    shapes: Sequence[Sequence[int]] = ((128, 512), (1024, 64), (65536, 1))

    def measure(self, result: Numbers) -> Iterator[None]:
        result["setting"] |= {"gamma": GAMMA, "lambda": LAMBDA}
        result |= {"returns": [], "gae": []}
        yield
        for most, count in progress([*product(self.longest, self.episodes)], "returns"):
            transitions, methods = return_methods(count, most, self.device)
            case = {"episodes": count, "longest": most, "transitions": transitions}
            result["returns"].append(case | self.times(methods))
            yield
        for T, B in progress(self.shapes, "advantages"):
            result["gae"].append({"T": T, "B": B} | self.times(gae_methods(T, B, self.device)))
            yield

    def times(self, methods: dict[str, Run]) -> dict[str, Any]:
        times = self.turns(methods, at_least=0.01)
        notes = {name: time.note for name, time in times.items() if time.note}
        return {"seconds": {name: time.median for name, time in times.items()}, "notes": notes}

    def tables(self, result: Numbers) -> Iterator[PlottedTable]:
        title = "discounted sums of episodes in one row (ms, and how many times faster the scan is)"
        yield table(title, ("episodes", "longest"), {PREFIX: PREFIX_SCAN, RETURN: RETURN_SCAN}, result["returns"])
        title = "GAE (ms, and how many times faster the scan is)"
        yield table(title, ("T", "B"), {LOOP: SCAN}, result["gae"])

    def notes(self, result: Numbers) -> Iterator[str]:
        for case in result["returns"] + result["gae"]:
            where = ", ".join(f"{key} {case[key]:,}" for key in case if key not in ("seconds", "notes"))
            yield from (f"{name}, {where}: {note}" for name, note in case["notes"].items())


def table(title: str, keys: Sequence[str], scans: dict[str, str], cases: list[Any]) -> PlottedTable:
    """The milliseconds of every method, and the speedup of the scan that replaces each loop (`scans`: loop -> scan)."""
    rows, methods = [], dict.fromkeys([*scans, *scans.values()], "ms")
    for case in cases:
        s = case["seconds"]
        gains = [quotient(s[loop], s[scan]) for loop, scan in scans.items()]
        rows.append((*(f"{case[key]:,}" for key in keys), *(quotient(s[method], 1e-3) for method in methods), *gains))
    return PlottedTable(title, keys, methods | dict.fromkeys((f"{loop} / scan" for loop in scans), ""), rows)


def values(path: Path, rows: Sequence[str], **options: Any) -> dict[str, dict[str, float]]:
    """Method -> `episodes x longest` -> milliseconds, for the returns."""
    result = ReturnsBench.run(path.with_suffix(".json"), path.with_suffix(".png"), **options)
    milliseconds: dict[str, dict[str, float]] = {}
    for case in result["returns"]:
        for method, seconds in case["seconds"].items():
            if seconds is not None:
                milliseconds.setdefault(method, {})[f"{case['episodes']} x {case['longest']}"] = 1e3 * seconds
    return milliseconds


def return_methods(episodes: int, longest: int, device: torch.device = CPU) -> tuple[int, dict[str, Run]]:
    """The number of transitions, and the methods. Each gives one number per transition, in order."""
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(1, longest, (episodes,), generator=generator)
    ends = lengths.cumsum(0)
    S = int(ends[-1])
    rewards = torch.rand(S, generator=generator)
    each = [part.tolist() for part in rewards.split(lengths.tolist())]
    rewards = rewards.to(device)
    parts, powers = rewards.split(lengths.tolist()), GAMMA ** torch.arange(longest, device=device)
    start, terminated = (torch.zeros(1, slots, dtype=torch.bool, device=device) for slots in (S, S + 1))
    start[0, ends - lengths] = terminated[0, ends - 1] = True
    mask = torch.arange(S + 1, device=device)[None] < S  # the slot rule: the agent does not act in the last one
    padded = torch.cat([rewards, rewards.new_zeros(1)])[None]

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


def gae_methods(T: int, B: int, device: torch.device = CPU) -> dict[str, Run]:
    """Methods that compute the advantages of T steps of B environments, [T, B], or [B, T] for the scan."""
    generator = torch.Generator().manual_seed(0)
    reward = torch.rand(T, B, generator=generator).to(device)
    value = torch.randn(T + 1, B, generator=generator).to(device)
    done = (torch.rand(T, B, generator=generator) < 0.01).to(device)
    goes_on = 1 - done.float()
    row = lambda x: torch.cat([x, x.new_zeros(1, B)]).T.contiguous()  # noqa: E731
    rows = row(reward), value.T.contiguous(), row(done), row(torch.ones_like(done))

    def steps() -> torch.Tensor:
        advantages, A = torch.empty(T, B, device=device), torch.zeros(B, device=device)
        for t in reversed(range(T)):
            delta = reward[t] + GAMMA * value[t + 1] * goes_on[t] - value[t]
            advantages[t] = A = delta + GAMMA * LAMBDA * goes_on[t] * A
        return advantages

    return {LOOP: steps, SCAN: lambda: gae(*rows, GAMMA, LAMBDA)[:, :-1]}
