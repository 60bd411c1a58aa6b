"""Comparing what a memory gives: numbers beside the largest value allowed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten

EXACT = {torch.float32: 1e-5, torch.float64: 1e-10}
"""What rounding may leave between two ways to compute the same thing, relative to max(1, |value|)."""
GRADIENT = 1e-9
"""The same for gradients in float64, relative to the largest entry, or to 1."""


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
    """Largest |difference| / max(1, |truth|) of two pytrees of tensors; infinite if they are not alike."""
    (a, ours_spec), (b, truth_spec) = tree_flatten(ours), tree_flatten(truth)
    if ours_spec != truth_spec or any(x.shape != y.shape for x, y in zip(a, b, strict=True)):
        return math.inf
    largest = 0.0
    for x, y in zip(a, b, strict=True):
        x, y = (z.detach().to(torch.complex128 if z.is_complex() else torch.float64) for z in (x, y))
        largest = max(largest, _largest(torch.where(x == y, 0, (x - y).abs() / y.abs().clamp(min=1))))
    return largest


def same_outputs(what: str, ours: Tensor, truth: Tensor, bound: float, start: Tensor | None = None) -> Measurement:
    """Two outputs [B, T, H]; says where they first differ."""
    value = distance(ours, truth)
    if value > bound and ours.shape == truth.shape:
        apart = ~((ours - truth).abs() <= bound * truth.abs().clamp(min=1)) & (ours != truth)
        t, row = min((t, row) for row, t in apart.any(-1).nonzero().tolist())
        flag = "" if start is None else " (a start)" if start[row, t] else " (no start)"
        what = f"{what}: first at row {row}, slot {t}{flag}"
    return Measurement(what, value, bound)


def same_gradients(what: str, ours: Sequence[Tensor], truth: Sequence[Tensor]) -> Measurement:
    """Two lists of gradients, in float64."""
    apart = [_largest(a - b) / max(1.0, _largest(b)) for a, b in zip(ours, truth, strict=True)]
    return Measurement(f"gradients {what}", max(apart, default=0.0), GRADIENT)


def zero(what: str, tensors: Sequence[Tensor]) -> Measurement:
    """What must be exactly zero: the largest entry."""
    return Measurement(what, max(map(_largest, tensors), default=0.0))


def finite(what: str, tensors: Sequence[Tensor]) -> Measurement:
    """What must hold neither inf nor NaN: how many there are."""
    return Measurement(f"inf or NaN in {what}", float(sum((~torch.isfinite(x)).sum().item() for x in tensors)))


def _largest(x: Tensor) -> float:
    return x.abs().nan_to_num(math.inf, math.inf).max().item() if x.numel() else 0.0
