"""Measurements: numbers beside the largest value allowed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten

EXACT = {torch.float32: 1e-5, torch.float64: 1e-10}
"""Bounds on the rounding between two ways to compute the same, relative to a tensor's largest entry or to 1."""
GRADIENT = 1e-9
"""The same for gradients in float64."""


@dataclass(frozen=True)
class Measurement:
    """One number of a property, the bound it must not exceed, and what it is."""

    what: str
    value: float
    bound: float = 0.0

    @property
    def excess(self) -> float:
        """At most 1 if the bound holds; NaN counts as infinite."""
        if math.isnan(self.value):
            return math.inf
        return self.value / self.bound if self.bound else (math.inf if self.value else 0.0)


def distance(ours: Any, truth: Any) -> float:
    """Largest relative difference of two pytrees of tensors; infinite if they are not alike."""
    (a, ours_spec), (b, truth_spec) = tree_flatten(ours), tree_flatten(truth)
    if ours_spec != truth_spec or any(x.shape != y.shape for x, y in zip(a, b, strict=True)):
        return math.inf
    return max((_largest(_difference(x, y)) for x, y in zip(a, b, strict=True)), default=0.0)


def same_outputs(
    name: str, ours: Tensor, truth: Tensor, start: Tensor | None = None, bound: float = EXACT[torch.float64]
) -> Measurement:
    """The distance of two outputs [B, T, H], and where they first differ."""
    value = distance(ours, truth)
    if value > bound and ours.shape == truth.shape:
        apart = ~(_difference(ours, truth) <= bound)  # a NaN is apart
        t, row = min((t, row) for row, t in apart.any(-1).nonzero().tolist())
        flag = "" if start is None else " (a start)" if start[row, t] else " (no start)"
        name = f"{name}: first at row {row}, slot {t}{flag}"
    return Measurement(name, value, bound)


def same_gradients(name: str, ours: Sequence[Tensor], truth: Sequence[Tensor]) -> Measurement:
    """The distance of two lists of gradients in float64."""
    return Measurement(f"gradients {name}", distance(list(ours), list(truth)), GRADIENT)


def zero(name: str, tensors: Sequence[Tensor]) -> Measurement:
    """The largest entry of tensors that must be exactly zero."""
    return Measurement(name, max(map(_largest, tensors), default=0.0))


def finite(name: str, tensors: Sequence[Tensor]) -> Measurement:
    """How many inf and NaN there are in tensors that must have none."""
    return Measurement(f"inf or NaN in {name}", float(sum((~torch.isfinite(x)).sum().item() for x in tensors)))


def _difference(ours: Tensor, truth: Tensor) -> Tensor:
    """|ours - truth| relative to the largest finite entry of `truth`, or to 1; zero where both are the same inf."""
    x, y = (z.detach().to(torch.complex128 if z.is_complex() else torch.float64) for z in (ours, truth))
    return torch.where(x == y, 0, (x - y).abs() / max(1.0, _largest(y[y.isfinite()])))


def _largest(x: Tensor) -> float:
    return x.abs().nan_to_num(math.inf, math.inf).max().item() if x.numel() else 0.0
