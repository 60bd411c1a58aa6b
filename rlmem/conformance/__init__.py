"""The memory contract, measured: does a memory keep what `rlmem.memory.base.Memory` promises?

    assert all(result.ok for result in check(lambda: FFM(input_size=6)))

Each property is one function of `influence.py` or `calls.py`; it yields what it measured beside the largest value that
is allowed. A published option may break one on purpose: the memory's attribute `breaks` says {property: reason}.
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from rlmem.conformance import calls, influence
from rlmem.conformance.compare import Measurement
from rlmem.conformance.probe import Probe, parameter_of
from rlmem.core.errors import one_line
from rlmem.memory.base import Memory

__all__ = ["PROPERTIES", "Result", "check", "facts", "results"]

Property = Callable[[Probe], Iterator[Measurement]]

ORDER: tuple[Property, ...] = (
    calls.step_equals_forward, calls.one_slot, calls.parameters_take_effect,
    influence.starts_separate_episodes, influence.no_gradient_across_start, influence.start_clears_nonfinite,
    influence.tape_equals_segments, influence.padding_changes_nothing, influence.no_future,
    influence.rows_independent, calls.no_global_randomness, calls.state_round_trips, calls.symbols_round_trip,
    calls.engines_agree, calls.float32_suffices, calls.finite_gradients,
)  # fmt: skip
PROPERTIES: Mapping[str, Property] = {measure.__name__: measure for measure in ORDER}
"""The properties by name, in the order of the report."""


@dataclass(frozen=True)
class PropertyResult:
    """A property, whether it holds, and the measurement that came nearest to its bound or went furthest beyond."""

    name: str
    passed: bool
    measured: float
    bound: float
    detail: str
    published: str | None = None
    """Why a failure is intended, as the memory declares in `breaks`."""

    @property
    def ok(self) -> bool:
        return self.passed or self.published is not None

    def __str__(self) -> str:
        numbers = f"{self.measured:7.1e} {'<=' if self.measured <= self.bound else ' >'} {self.bound:7.1e}"
        published = f" (published: {self.published})" if self.published else ""
        return f"{self.name:<24}  {numbers}  {'PASS' if self.passed else 'FAIL'}{published}  {self.detail}"

    def as_json(self) -> dict[str, Any]:
        """For `json.dumps`, which has no inf and no NaN: a number that is not finite becomes null."""
        return vars(self) | {"measured": self.measured if math.isfinite(self.measured) else None}


def check(make: Callable[[], Memory], **options: Any) -> list[PropertyResult]:
    """Every property of the memory that `make` builds; the options are those of `results`."""
    return list(results(make, **options))


def results(
    make: Callable[[], Memory],
    slots: int = 100,
    long: Sequence[int] = (1_000, 16_384),
    only: Collection[str] = tuple(PROPERTIES),
    seed: int = 0,
    reraise: bool = False,
) -> Iterator[PropertyResult]:
    """The properties one by one, as they are measured. `make` is called once; torch's generators are left as they were.

    make: builds the memory
    slots: length of the rows that most properties use, at least 9
    long: lengths of episodes through which gradients must stay finite
    only: the names of the properties to measure
    seed: seeds the inputs and the memory's parameters
    reraise: let through what the memory raises, instead of reporting it
    """
    with _own_generators(seed):
        probe = Probe(make(), slots, long, seed)
    breaks = dict(getattr(probe.pristine, "breaks", {}))
    for name in breaks.keys() - PROPERTIES.keys():
        yield PropertyResult(
            name, False, math.nan, 0.0, f"`breaks` names no property; accepted: {', '.join(PROPERTIES)}"
        )
    for name in (name for name in PROPERTIES if name in only):
        try:
            with _own_generators(seed):
                measurements = list(PROPERTIES[name](probe))
        except Exception as error:  # the memory may be third-party code
            if reraise:
                raise
            measurements = [Measurement(f"raised {one_line(error)}", math.nan)]
        worst = max(measurements, key=lambda m: m.excess, default=Measurement("nothing to compare", 0.0))
        passed, detail, published = worst.excess <= 1, worst.what, breaks.get(name)
        if passed and published is not None:
            passed, detail, published = False, f"declared in `breaks`, but it holds: {published}", None
        yield PropertyResult(name, passed, worst.value, worst.bound, detail, published)


def facts(memory: Memory) -> dict[str, Any]:
    """Class, number of parameters, size of the state and scan engines of a memory, for the head of a report."""
    leaves = tree_leaves(memory.initial_state(1))
    device = parameter_of(memory).device
    engines = dict.fromkeys(part.runs_on(device) for part in memory.scanning())
    return {
        "class": f"{type(memory).__module__}.{type(memory).__qualname__}",
        "parameters": sum(parameter.numel() for parameter in memory.parameters()),
        "state": sum(leaf.numel() * (2 if leaf.is_complex() else 1) for leaf in leaves),
        "engine": ", ".join(engines) or None,
    }


@contextmanager
def _own_generators(seed: int) -> Iterator[None]:
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        yield
