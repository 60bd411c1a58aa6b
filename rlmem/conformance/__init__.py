"""The memory contract, measured: does a memory keep what `rlmem.memory.base.Memory` promises?

    results = check(lambda: FFM(input_size=6))
    assert all(result.ok for result in results)

`properties.py` holds the properties, one function each. Works on any `Memory`, wherever its parameters are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from rlmem.conformance.compare import Measurement
from rlmem.conformance.probe import Probe
from rlmem.conformance.properties import PROPERTIES
from rlmem.memory.base import Memory
from rlmem.scan import chosen_engine

__all__ = ["PROPERTIES", "Result", "check", "facts", "results"]


@dataclass(frozen=True)
class Result:
    """A property, whether it holds, and the measurement that came nearest to its bound or went furthest beyond."""

    property: str
    passed: bool
    measured: float
    bound: float
    detail: str
    published: str | None = None
    """Why it may fail: what the memory declares in `breaks`."""

    @property
    def ok(self) -> bool:
        return self.passed or self.published is not None

    def __str__(self) -> str:
        numbers = f"{self.measured:7.1e} {'<=' if self.measured <= self.bound else ' >'} {self.bound:7.1e}"
        verdict = "PASS" if self.passed else "FAIL"
        published = f" (published: {self.published})" if self.published else ""
        return f"{self.property:<26} {numbers}  {verdict}{published}  {self.detail}".rstrip()


def check(make: Callable[[], Memory], **sizes: Any) -> list[Result]:
    """Every property of the memory that `make` builds; the keywords are those of `results`."""
    return list(results(make, **sizes))


def results(
    make: Callable[[], Memory],
    slots: int = 72,
    long: Sequence[int] = (1_000, 16_384),
    only: Collection[str] = (),
    seed: int = 0,
) -> Iterator[Result]:
    """The properties one by one, as they are measured. `make` is called once; global generators are left as they were.

    slots: length of the rows that most properties use;  long: lengths that gradients must survive
    only: these properties alone
    """
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        probe = Probe(make(), slots, long, seed)
        breaks = dict(getattr(probe.pristine, "breaks", {}))
        for name, measure in PROPERTIES.items():
            if not only or name in only:
                yield _judge(name, _measured(measure, probe), breaks.pop(name, None))
            else:
                breaks.pop(name, None)
    for name in breaks:
        yield Result(name, False, math.nan, 0.0, f"declared in `breaks`, but no such property: {', '.join(PROPERTIES)}")


def facts(memory: Memory) -> dict[str, Any]:
    """What the head of a report says."""
    leaves = tree_leaves(memory.initial_state(1))
    engine = getattr(memory, "engine", None)
    return {
        "class": f"{type(memory).__module__}.{type(memory).__qualname__}",
        "parameters": sum(p.numel() for p in memory.parameters()),
        "state": sum(leaf.numel() * (2 if leaf.is_complex() else 1) for leaf in leaves),
        "engine": engine and chosen_engine(engine, _like(memory).device),
    }


def _measured(measure: Callable[[Probe], Iterator[Measurement]], probe: Probe) -> list[Measurement]:
    try:
        return list(measure(probe))
    except Exception as error:  # the memory is anybody's code
        return [Measurement(f"raised {type(error).__name__}: {' '.join(str(error).split())[:200]}", math.nan)]


def _judge(name: str, measurements: list[Measurement], published: str | None) -> Result:
    worst = max(measurements, key=lambda m: m.excess, default=Measurement("nothing to compare", 0.0))
    passed = worst.excess <= 1
    if passed and published is not None:
        detail = "declared in `breaks`, but it holds; declare nothing"
        return Result(name, False, worst.value, worst.bound, detail)
    return Result(name, passed, worst.value, worst.bound, worst.what, None if passed else published)


