"""The linear recurrence h_t = a_t * h_{t-1} + b_t with resets, real or complex, differentiable, on several engines.

All but `loop` share one hand-written backward rule: dL/db_t = g_t and dL/da_t = g_t * conj(h_{t-1}), where
g_t = dL/dh_t + conj(a_{t+1}) g_{t+1} is the same recurrence in reversed time, cut where slot t+1 is a start.
"""

from types import ModuleType

import torch
from torch import Tensor

from rlmem.core.types import where_start
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
