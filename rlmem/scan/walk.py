"""Native kernels that walk each row slot by slot, and keep its state every few slots, from which they walk it again;
and two scans with such kernels, of Stable Hadamard Memory and of S6, which do not store the states of all slots.

Without a kernel, pieces of rows are scanned one after the other and recomputed on the way back. On the way back, triton
holds the matrices of 16 slots of SHM, and sums the gradients of c, key and query from parts, one for every 1024 numbers
of M, each [T, H].
"""

from collections.abc import Callable
from math import ceil, sqrt
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from rlmem.scan import native
from rlmem.scan.linear import linear_scan
from rlmem.scan.native import Engine, check_flags, chosen_engine
from rlmem.scan.triton_matrix import matrix_scan

CELLS = 1 << 19
"""Numbers [B, K, H, H] that a chunk of K slots of SHM may hold at a time."""
STATES_AT_ONCE = {"cpu": 2**20, "cuda": 2**24}
"""Numbers of h of S6 that are held at once where there is no kernel. On a CPU that is also faster than holding all: a
piece stays in the cache."""
KEPT = 1 << 15
"""Numbers of h of a block of channels that the slots of a piece may hold while the kernel walks them again."""
BLOCK = 32
"""Channels that the kernel walks side by side (W of selective.cpp)."""


class Walk(torch.autograd.Function):
    """y [B, T, ...] and the last state of the kernels NAME_forward and NAME_backward.

    name: of the kernels
    widths: the kernel's integers after T
    every: slots from one state that is kept to the next
    options: numbers that the kernels take behind the inputs
    values: the position of the input whose shape y has
    shared: the position of the input that all rows share, which gets a gradient from each; None: there is none
    inputs: five tensors, the first state and the start flags
    """

    @staticmethod
    def forward(
        ctx: Any,
        name: str,
        widths: tuple[int, ...],
        every: int,
        options: tuple[float, ...],
        values: int,
        shared: int | None,
        *inputs: Tensor,
    ) -> tuple[Tensor, Tensor]:
        *five, first, start = map(native.addressable, inputs)
        B, T = start.shape
        y, last = torch.empty_like(five[values]), torch.empty_like(first)
        states = first.new_empty(B, -(-T // every), *first.shape[1:]) if any(ctx.needs_input_grad) else None
        ctx.name, ctx.sizes, ctx.options, ctx.shared = name, (T, *widths, every), options, shared
        tensors = *five, first, start, *options, y, last, states
        native.run_rows(f"{name}_forward", tensors, ctx.sizes, B, T * first[0].numel())
        ctx.save_for_backward(*five, start, states)
        return y, last

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_y: Tensor, grad_last: Tensor) -> tuple[Tensor | None, ...]:
        *five, start, states = ctx.saved_tensors
        B, T = start.shape
        gradients = native.addressable(grad_y), native.addressable(grad_last)
        shapes = [(B, *x.shape) if i == ctx.shared else x.shape for i, x in enumerate(five)]
        grads = [*(x.new_zeros(shape) for x, shape in zip(five, shapes, strict=True)), torch.empty_like(gradients[1])]
        tensors = *five, start, *ctx.options, states, *gradients, *grads
        native.run_rows(f"{ctx.name}_backward", tensors, ctx.sizes, B, T * gradients[1][0].numel())
        if ctx.shared is not None:
            grads[ctx.shared] = grads[ctx.shared].sum(0)
        return *[None] * 6, *grads, None


def tanh_calibration(theta: Tensor, c: Tensor) -> Tensor:
    """C_t = 1 + tanh(theta_t c_t^T) [..., H, H] from theta and c [..., H]."""
    return 1 + torch.tanh(theta[..., :, None] * c[..., None, :])


def hadamard_scan(
    theta: Tensor,
    c: Tensor,
    v: Tensor,
    key: Tensor,
    query: Tensor,
    M0: Tensor,
    start: Tensor,
    limit: float | None = None,
    engine: Engine = "auto",
    calibration: Callable[[Tensor, Tensor], Tensor] = tanh_calibration,
) -> tuple[Tensor, Tensor]:
    """The reads y_t = M_t query_t [B, T, H] and the final M [B, H, H] (value row, key column) of
    M_t = M_{t-1} * C_t + v_t key_t^T.

    theta, c, v, key, query: [B, T, H]
    M0: [B, H, H]
    start: [B, T] bool, M is zero before such a slot is read
    limit: M is clamped to [-limit, limit] after every slot; no gradient passes a cell that is clamped
    calibration: gives C [B, K, H, H] of K slots from their theta and c; only the default needs these two to have H
        columns
    """
    B, T, H = v.shape
    check_flags(start, B, T)
    chosen = chosen_engine(engine, v.device)
    supported = v.dtype in (torch.float32, torch.float64) and v.numel() > 0
    if chosen in ("native", "triton") and calibration is tanh_calibration and supported:
        theta, c, key, query = (x.to(v.dtype).expand(B, T, H) for x in (theta, c, key, query))
        M0, bound = M0.to(v.dtype).expand(B, H, H), float(limit or 0)
        if chosen == "triton":
            return matrix_scan("hadamard", theta, c, v, key, query, M0, start, bound)
        every = max(4, min(64, (1 << 15) // (H * H)))  # the recomputed slots fit the second-level cache
        return Walk.apply("shm", (H,), every, (bound,), 2, None, theta, c, v, key, query, M0, start)
    K = 1 if chosen == "loop" else max(1, CELLS // max(B * H * H, 1))
    scanned = [x.split(K, 1) for x in (theta, c, v, key, query, start)]
    M, outputs = M0, []
    for chunk in zip(*scanned, strict=True):
        y, M = checkpoint(_chunk, *chunk, M, limit, chosen, calibration, use_reentrant=False, preserve_rng_state=False)
        outputs.append(y)
    return torch.cat(outputs, 1), M


def _chunk(theta, c, v, key, query, start, M, limit, engine, calibration) -> tuple[Tensor, Tensor]:
    C = calibration(theta, c)
    U = v[..., :, None] * key[..., None, :]
    if limit is None:
        Ms = linear_scan(C, U, M, start, engine)
    else:  # a limited recurrence is not linear
        states = []
        for C_t, U_t, start_t in zip(C.unbind(1), U.unbind(1), start.unbind(1), strict=True):
            M = (torch.where(start_t[:, None, None], 0, M) * C_t + U_t).clamp(-limit, limit)
            states.append(M)
        Ms = torch.stack(states, 1)
    return (Ms @ query[..., None])[..., 0], Ms[:, -1].clone()  # not a view, which would keep Ms


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
