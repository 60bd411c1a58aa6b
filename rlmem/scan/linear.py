"""The linear recurrence h_t = a_t * h_{t-1} + b_t with resets, real or complex, differentiable, on several engines.

All but `loop` share one hand-written backward rule: dL/db_t = g_t and dL/da_t = g_t * conj(h_{t-1}), where
g_t = dL/dh_t + conj(a_{t+1}) g_{t+1} is the same recurrence in reversed time, cut where slot t+1 is a start.

Also the scan of any monoid with resets: h_t = h_{t-1} . e_t, where `.` is associative and has an identity.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from rlmem.core.types import broadcastable, where_start
from rlmem.scan import chunked, native, triton_scan
from rlmem.scan.native import MOST_SHARED, Engine, addressable, check_flags, chosen_engine

COMPILED = (torch.float32, torch.float64, torch.complex64, torch.complex128)
"""Types that native and triton have kernels for; others, such as bfloat16, are scanned in chunks."""
_ENGINES: dict[str, ModuleType] = {"chunked": chunked, "native": native, "triton": triton_scan}


def linear_scan(
    a: Tensor, b: Tensor, h0: Tensor, start: Tensor, engine: Engine = "auto", reverse: bool = False
) -> Tensor:
    """All states h [B, T, *F] of h_t = a_t * (0 if start_t else h_{t-1}) + b_t.

    a: [B, T, *F] or, for a decay that does not change with time, [*F]; dimensions of size 1 broadcast
    b: [B, T, *F], T >= 1; dimensions of size 1 broadcast; a real b may drive complex states
    h0: [B, *F] state before slot 0, real or complex, in the type of a
    start: [B, T] bool
    reverse: run from the last slot to the first: h_t = a_t * (0 if start_t else h_{t+1}) + b_t, h0 after the last

    A start selects zero instead of multiplying by it: an inf in h0 or in an earlier slot does not survive.
    Gradients flow to a, b and h0; none crosses a start. Only `loop` can be differentiated twice. `chunked` multiplies
    the decays of a chunk, which overflows where |a| > 1 for long.
    """
    B, T = start.shape
    check_flags(start, h0.shape[0], T)
    if (a.is_complex() or b.is_complex()) and not h0.is_complex():
        raise ValueError(f"h0 is {h0.dtype}, but a is {a.dtype} and b {b.dtype}: a complex scan has complex states")
    features = h0.shape[1:]
    a = a.to(h0.dtype)
    constant = a.dim() <= len(features)
    chosen = chosen_engine(engine, h0.device)
    if T == 1 or chosen == "loop" or h0.numel() == 0:
        return naive_scan(a.expand(B, T, *features), b.expand(B, T, *features), h0, start, reverse)
    a = a.expand(features).reshape(-1) if constant else a.expand(B, T, *features).reshape(B, T, -1)
    several = features[-1:] > (1,) and b.shape[-1] == 1 and features[-1] <= MOST_SHARED
    shared = constant and several and h0.is_complex() and not b.is_complex()
    if shared:  # u_t drives all of a row of complex states, as in FFM: never expanded over it
        b = b.expand(B, T, *features[:-1], 1).reshape(B, T, -1).to(h0.dtype.to_real())
    else:
        b = b.expand(B, T, *features).reshape(B, T, -1).to(h0.dtype)
    module = _ENGINES[chosen] if h0.dtype in COMPILED else chunked
    h = _Scan.apply(a, b, h0.reshape(B, -1), start, module, reverse)
    return h.view(B, T, *features)


def naive_scan(a: Tensor, b: Tensor, h0: Tensor, start: Tensor, reverse: bool) -> Tensor:
    """The definition of `linear_scan`, one slot after the other, for a and b [B, T, *F]."""
    h, states, zero = h0, [], torch.zeros_like(h0)
    steps = list(zip(a.unbind(1), b.unbind(1), start.unbind(1), strict=True))
    for a_t, b_t, start_t in reversed(steps) if reverse else steps:
        h = a_t * where_start(start_t, zero, h) + b_t
        states.append(h)
    return torch.stack(states[::-1] if reverse else states, 1)


class _Scan(torch.autograd.Function):
    """The scan of N = prod(F) channels: a is [B, T, N] or [N], b [B, T, N], or [B, T, N / n] if n channels share it."""

    @staticmethod
    def forward(ctx, a: Tensor, b: Tensor, h0: Tensor, start: Tensor, engine: ModuleType, reverse: bool) -> Tensor:
        a, b, h0, start = map(addressable, (a, b, h0, start))
        h = engine.forward(a, b, h0, start, reverse)
        ctx.save_for_backward(a, h, h0, start)
        ctx.engine, ctx.reverse, ctx.drivers = engine, reverse, b.shape[2]
        return h

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad_h: Tensor):
        a, h, h0, start = ctx.saved_tensors
        grad_h = addressable(grad_h)
        needs_a = ctx.needs_input_grad[0]
        grads = ctx.engine.backward(a, h, h0, start, grad_h, ctx.drivers, needs_a, ctx.reverse)
        return *grads, None, None, None


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
