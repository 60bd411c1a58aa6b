"""The selective scan of S6: h_t = exp(dt_t A) h_{t-1} + d_t u_t B_t^T, read by C_t, with resets.

The native engine walks the channels of a row in one kernel each way, which stores h every few slots only. Everything
else is `linear_scan` over the states of all slots, in pieces that are recomputed in the backward pass.
"""

from math import ceil, sqrt

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from rlmem.scan import native
from rlmem.scan.linear import linear_scan
from rlmem.scan.native import Engine, check_flags, chosen_engine
from rlmem.scan.walk import Walk

STATES_AT_ONCE = {"cpu": 2**20, "cuda": 2**24}
"""Numbers of h that are held at once where there is no kernel. On a CPU that is also faster than holding all, since a
piece stays in the cache."""
KEPT = 1 << 15
"""Numbers of h of a block of channels that the slots of a piece may hold while the kernel walks them again."""
BLOCK = 32
"""Channels that the kernel walks side by side (W of selective.cpp)."""


def selective_scan(
    dt: Tensor,
    u: Tensor,
    B: Tensor,
    C: Tensor,
    A: Tensor,
    h0: Tensor,
    start: Tensor,
    zero_order_hold: bool = True,
    engine: Engine = "auto",
) -> tuple[Tensor, Tensor]:
    """y_t = h_t C_t [B, T, E] and the final h of h_t = exp(dt_t A) * (0 if start_t else h_{t-1}) + d_t * (u_t B_t^T).

    dt, u: [B, T, E], T >= 1; dt at least zero
    B, C: [B, T, N]
    A: [E, N], below zero
    h0: [B, E, N]
    start: [B, T] bool
    zero_order_hold: d = (exp(dt A) - 1) / A; otherwise d = dt

    A start selects zero, so an inf or NaN before it does not reach outputs after it.
    Gradients flow to all but start; none crosses a start. Memory for h is bounded by pieces of about sqrt(T) slots.
    """
    (rows, T, E), N = u.shape, A.shape[1]
    check_flags(start, rows, T)
    tensors = dt, u, B, C, A, h0
    expected = [(rows, T, E)] * 2 + [(rows, T, N)] * 2 + [(E, N), (rows, E, N)]
    if (shapes := [tuple(x.shape) for x in tensors]) != expected:
        raise ValueError(f"dt, u, B, C, A, h0: expected shapes {expected}, got {shapes}")
    if chosen_engine(engine, u.device) == "native" and native.takes(*tensors) and h0.numel() > 0 and T > 0:
        every = min(T, max(ceil(sqrt(T)), min(64, KEPT // (N * BLOCK))))
        return Walk.apply("selective", (E, N), every, (zero_order_hold,), 1, 4, *tensors, start)
    return _in_pieces(dt, u, B, C, A, h0, start, zero_order_hold, engine)


def _in_pieces(
    dt: Tensor, u: Tensor, B: Tensor, C: Tensor, A: Tensor, h: Tensor, start: Tensor, hold: bool, engine: Engine
) -> tuple[Tensor, Tensor]:
    """`_at_once`, a few rows and slots at a time (STATES_AT_ONCE)."""
    T, at_once = start.shape[1], STATES_AT_ONCE.get(h.device.type, 2**20)
    if T == 1:  # the states are no larger than the one before
        return _at_once(dt, u, B, C, A, h, start, hold, engine)
    rows = max(1, at_once // max(1, ceil(sqrt(T)) * h.shape[1:].numel()))
    if len(h) > rows:
        groups = zip(*(x.split(rows) for x in (dt, u, B, C, h, start)), strict=True)
        results = [_in_pieces(dt, u, B, C, A, h, start, hold, engine) for dt, u, B, C, h, start in groups]
        outputs, states = zip(*results, strict=True)
        return torch.cat(outputs), torch.cat(states)
    slots = max(at_once // max(1, h.numel()), ceil(sqrt(T)))  # the states between pieces are kept, too
    if slots >= T:
        return _at_once(dt, u, B, C, A, h, start, hold, engine)
    pieces = []
    for *inputs, starts in zip(*(x.split(slots, 1) for x in (dt, u, B, C, start)), strict=True):
        arguments = *inputs, A, h, starts, hold, engine
        y, h = checkpoint(_at_once, *arguments, use_reentrant=False, preserve_rng_state=False)
        pieces.append(y)
    return torch.cat(pieces, 1), h


def _at_once(
    dt: Tensor, u: Tensor, B: Tensor, C: Tensor, A: Tensor, h: Tensor, start: Tensor, hold: bool, engine: Engine
) -> tuple[Tensor, Tensor]:
    growth = torch.expm1(dt[..., None] * A)  # exp(dt A) - 1, without the cancellation
    drive = u[..., None] * (growth / A) if hold else (dt * u)[..., None]
    states = linear_scan(growth + 1, drive * B[..., None, :], h, start, engine)
    return (states @ C[..., None]).squeeze(-1), states[:, -1].clone()  # not a view, which would keep all states
