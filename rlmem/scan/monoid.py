"""The scan of any monoid with resets: h_t = h_{t-1} . e_t, where `.` is associative and has an identity."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from rlmem.core.types import broadcastable, where_start
from rlmem.scan.native import Engine

Element = Any
"""A pytree of tensors with leading dimensions [B] or [B, T]."""
Combine = Callable[[Element, Element], Element]
"""(earlier, later) -> both, elementwise over the leading dimensions."""
Flagged = tuple[Tensor, Element]
Operate = Callable[[Flagged, Flagged], Flagged]


def resettable(combine: Combine, identity: Element) -> Operate:
    """The monoid on (start flag, element) whose right operand, if it starts, forgets the left one.

    (f, A) o (f', A') = (f or f', (identity if f' else A) . A')   (Morad et al. 2024, arXiv:2402.09900, theorem 4.2)

    Associative for every monoid. It selects the identity, so what is not finite on the left does not survive.
    identity: leaves of the shape of one element, which broadcast.
    """

    def operate(left: Flagged, right: Flagged) -> Flagged:
        (flag, earlier), (reset, later) = left, right
        since_reset = tree_map(lambda e, x: torch.where(broadcastable(reset, x), e, x), identity, earlier)
        return flag | reset, combine(since_reset, later)

    return operate


def monoid_scan(
    combine: Combine, identity: Element, elements: Element, first: Element, start: Tensor, engine: Engine = "auto"
) -> Element:
    """All h [B, T, ...] of h_t = (identity if start_t else h_{t-1}) . e_t, with h_{-1} = first [B, ...].

    elements: e [B, T, ...]
    start: [B, T] bool
    engine: "loop" is the definition, one slot after the other; all others work in O(log T) steps and O(T) operations
    """
    identity = tree_map(lambda e, x: torch.as_tensor(e, dtype=x.dtype, device=x.device), identity, first)
    operate = resettable(combine, identity)
    before = where_start(start[:, 0], tree_map(lambda e, x: e.expand_as(x), identity, first), first)
    entering = combine(before, tree_map(lambda e: e[:, 0], elements))
    elements = tree_map(lambda h, e: torch.cat([h[:, None], e[:, 1:]], 1), entering, elements)
    scan = _one_by_one if engine == "loop" else _in_parallel
    return scan(operate, (start, elements))[1]


def _one_by_one(operate: Operate, x: Flagged) -> Flagged:
    leaves, spec = tree_flatten(x)
    slots = [tree_unflatten(list(slot), spec) for slot in zip(*(leaf.unbind(1) for leaf in leaves), strict=True)]
    states = slots[:1]
    for slot in slots[1:]:
        states.append(operate(states[-1], slot))
    return tree_map(lambda *parts: torch.stack(parts, 1), *states)


def _in_parallel(operate: Operate, x: Flagged) -> Flagged:
    """Scan neighbours' combinations, half as many, and fill in between (Blelloch 1990)."""
    T = x[0].shape[1]
    if T == 1:
        return x
    even, odd = (tree_map(lambda leaf, k=k: leaf[:, k::2], x) for k in (0, 1))
    pairs = operate(tree_map(lambda leaf: leaf[:, : T // 2], even), odd)
    at_odd = _in_parallel(operate, pairs)
    if T > 2:
        later = tree_map(lambda leaf: leaf[:, 1:], even)
        filled = operate(tree_map(lambda leaf, n=later[0].shape[1]: leaf[:, :n], at_odd), later)
        at_even = tree_map(lambda first, rest: torch.cat([first[:, :1], rest], 1), even, filled)
    else:
        at_even = even

    def interleave(a: Tensor, b: Tensor) -> Tensor:
        both = torch.stack([a[:, : T // 2], b], 2).flatten(1, 2)
        return torch.cat([both, a[:, T // 2 :]], 1)

    return tree_map(interleave, at_even, at_odd)
