"""The kernels of the `triton` engine.

The linear recurrence and its adjoint have the order and layout of `linear.cpp`. The loads of AHEAD slots are issued
before the first of them is used, so that a walk waits for memory once for all of them. Numbers do not depend on AHEAD.

The gates around FFM's scan have a program for each slot, as in `ffm.cpp`. Rows of p are the projections
value [m] | skip [H] | gate_in [m] | gate_out [H]; dp is laid out likewise.

Scans whose state is a matrix have three rules and one walk each way. A program has the rows `i` of M [V, K] of one row
of the batch, value by key, in registers. What a slot does to M is independent of other rows of M. Sums over them
are left to the caller, as parts.
"""

import triton
import triton.language as tl
from triton.language import constexpr


@triton.jit
def load(x, at, live, COMPLEX: constexpr):
    """The real and the imaginary parts at `at`; of a real x the same numbers twice."""
    if COMPLEX:
        re = tl.load(x + 2 * at, live, 0.0)
        im = tl.load(x + 2 * at + 1, live, 0.0)
    else:
        re = tl.load(x + at, live, 0.0)
        im = re
    return re, im


@triton.jit
def store(x, at, re, im, live, COMPLEX: constexpr):
    if COMPLEX:
        tl.store(x + 2 * at, re, live)
        tl.store(x + 2 * at + 1, im, live)
    else:
        tl.store(x + at, re, live)


@triton.jit
def forward(
    a, b, h0, start, h, T, N,
    EACH: constexpr, CONSTANT: constexpr, COMPLEX: constexpr, REVERSE: constexpr, BLOCK: constexpr, AHEAD: constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    live = n < N
    re, im = load(h0, row * N + n, live, COMPLEX)
    if CONSTANT:
        a_re, a_im = load(a, n, live, COMPLEX)
    for first in range(0, T, AHEAD):
        loaded = ()
        for i in tl.static_range(AHEAD):
            k = first + i
            slot = row * T + (T - 1 - k if REVERSE else k)
            inside = live & (k + 0 * n < T)
            fresh = tl.load(start + slot, k < T, 0) != 0
            if not CONSTANT:
                a_re, a_im = load(a, slot * N + n, inside, COMPLEX)
            if EACH > 1:
                b_re = tl.load(b + slot * (N // EACH) + n // EACH, inside, 0.0)
                b_im = tl.zeros_like(b_re)
            else:
                b_re, b_im = load(b, slot * N + n, inside, COMPLEX)
            loaded = loaded + ((fresh, a_re, a_im, b_re, b_im),)  # type: ignore[assignment]  # noqa: RUF005
        for i in tl.static_range(AHEAD):
            k = first + i
            slot = row * T + (T - 1 - k if REVERSE else k)
            fresh, a_re, a_im, b_re, b_im = loaded[i]
            before, before_im = tl.where(fresh, 0.0, re), tl.where(fresh, 0.0, im)
            if COMPLEX:
                re = a_re * before - a_im * before_im + b_re
                im = a_re * before_im + a_im * before + b_im
            else:
                re = a_re * before + b_re
            store(h, slot * N + n, re, im, live & (k + 0 * n < T), COMPLEX)


@triton.jit
def backward(
    a, h, h0, grad_h, grad_a, grad_b, grad_h0, start, T, N, NEEDS_A: constexpr,
    EACH: constexpr, CONSTANT: constexpr, COMPLEX: constexpr, REVERSE: constexpr, BLOCK: constexpr, AHEAD: constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    live = n < N
    at_first = row * N + n
    h0_re, h0_im = load(h0, at_first, live, COMPLEX)
    zero = tl.where(h0_re * 0 == 0, h0_re * 0, 0.0)
    c_re, c_im, sum_re, sum_im = zero, zero, zero, zero  # the adjoint that flows backwards; sums for a constant a
    if CONSTANT:
        a_re, a_im = load(a, n, live, COMPLEX)
    for first in range(0, T, AHEAD):
        loaded = ()
        for i in tl.static_range(AHEAD):
            k = first + i
            slot = row * T + (k if REVERSE else T - 1 - k)
            fresh = tl.load(start + slot, k < T, 0) != 0
            has_before = live & (k + 0 * n < T - 1)  # else the slot before is h0
            h_re, h_im = load(h, (slot + 1 if REVERSE else slot - 1) * N + n, has_before, COMPLEX)
            inside = live & (k + 0 * n < T)
            g_re, g_im = load(grad_h, slot * N + n, inside, COMPLEX)
            if not CONSTANT:
                a_re, a_im = load(a, slot * N + n, inside, COMPLEX)
            loaded = loaded + ((fresh, h_re, h_im, g_re, g_im, a_re, a_im),)  # type: ignore[assignment]  # noqa: RUF005
        for i in tl.static_range(AHEAD):
            k = first + i
            slot = row * T + (k if REVERSE else T - 1 - k)
            fresh, h_re, h_im, g_re, g_im, a_re, a_im = loaded[i]
            is_last, inside = k + 0 * n == T - 1, k + 0 * n < T
            h_re, h_im = tl.where(is_last, h0_re, h_re), tl.where(is_last, h0_im, h_im)
            h_re, h_im = tl.where(fresh, 0.0, h_re), tl.where(fresh, 0.0, h_im)
            g_re, g_im = g_re + c_re, g_im + c_im
            store(grad_b, slot * N + n, g_re, g_im, live & inside, COMPLEX)
            if COMPLEX:
                d_re, d_im = g_re * h_re + g_im * h_im, g_im * h_re - g_re * h_im
                next_re, next_im = a_re * g_re + a_im * g_im, a_re * g_im - a_im * g_re
            else:
                d_re, d_im = g_re * h_re, zero
                next_re, next_im = a_re * g_re, zero
            next_re, next_im = tl.where(fresh, 0.0, next_re), tl.where(fresh, 0.0, next_im)
            c_re, c_im = tl.where(inside, next_re, c_re), tl.where(inside, next_im, c_im)
            if NEEDS_A:
                if CONSTANT:
                    sum_re = tl.where(inside, sum_re + d_re, sum_re)
                    sum_im = tl.where(inside, sum_im + d_im, sum_im)
                else:
                    store(grad_a, slot * N + n, d_re, d_im, live & inside, COMPLEX)
    store(grad_h0, at_first, c_re, c_im, live, COMPLEX)
    if NEEDS_A and CONSTANT:
        store(grad_a, at_first, sum_re, sum_im, live, COMPLEX)


@triton.jit
def sigmoid(x):
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def ffm_in_forward(p, u, m, H, BLOCK: constexpr):
    row, j = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    live, value = j < m, p + row * 2 * (m + H) + j
    gate = sigmoid(tl.load(value + m + H, live, 0.0))
    tl.store(u + row * m + j, tl.load(value, live, 0.0) * gate, live)


@triton.jit
def ffm_in_backward(p, du, dp, m, H, BLOCK: constexpr):
    row, j = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    live, at = j < m, row * 2 * (m + H) + j
    d, value = tl.load(du + row * m + j, live, 0.0), tl.load(p + at, live, 0.0)
    gate = sigmoid(tl.load(p + at + m + H, live, 0.0))
    tl.store(dp + at, d * gate, live)
    tl.store(dp + at + m + H, d * value * gate * (1.0 - gate), live)


@triton.jit
def ffm_step(p, gamma, state, start, h, c, m, H, BLOCK: constexpr):
    """One slot: h = gamma * state + u, or u where start; gamma [m c] and state [rows, m c] are complex."""
    row, n = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    live, value, at = n < m * c, p + row * 2 * (m + H) + n // c, 2 * (row * m * c + n)
    u = tl.load(value, live, 0.0) * sigmoid(tl.load(value + m + H, live, 0.0))
    fresh = tl.load(start + row) != 0
    re = tl.where(fresh, 0.0, tl.load(state + at, live, 0.0))
    im = tl.where(fresh, 0.0, tl.load(state + at + 1, live, 0.0))
    g_re, g_im = tl.load(gamma + 2 * n, live, 0.0), tl.load(gamma + 2 * n + 1, live, 0.0)
    tl.store(h + at, g_re * re - g_im * im + u, live)
    tl.store(h + at + 1, g_re * im + g_im * re, live)


@triton.jit
def normal(z, row, j, live, H):
    """A row of z less its mean, in units of its standard deviation, as layer norm takes them; and 1 over the latter."""
    x = tl.load(z + row * H + j, live, 0.0)
    x = tl.where(live, x - tl.sum(x, 0) / H, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(x * x, 0) / H + 1e-5)
    return x * scale, scale


@triton.jit
def ffm_out_forward(p, z, y, m, H, BLOCK: constexpr):
    """y = LN(z) g + skip (1 - g), g = sigmoid(gate_out)."""
    row, j = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    live, skip_at = j < H, p + row * 2 * (m + H) + m + j
    x, _ = normal(z, row, j, live, H)
    skip, gate = tl.load(skip_at, live, 0.0), sigmoid(tl.load(skip_at + H + m, live, 0.0))
    tl.store(y + row * H + j, skip + gate * (x - skip), live)


@triton.jit
def ffm_out_backward(p, z, dy, dz, dp, m, H, BLOCK: constexpr):
    row, j = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    live, at = j < H, row * 2 * (m + H) + m + j
    x, scale = normal(z, row, j, live, H)
    skip, gate = tl.load(p + at, live, 0.0), sigmoid(tl.load(p + at + H + m, live, 0.0))
    d = tl.load(dy + row * H + j, live, 0.0)
    dx = d * gate
    tl.store(dp + at, d - dx, live)
    tl.store(dp + at + H + m, dx * (1.0 - gate) * (x - skip), live)
    mean, slope = tl.sum(dx, 0) / H, tl.sum(dx * x, 0) / H
    tl.store(dz + row * H + j, scale * (dx - mean - x * slope), live)


@triton.jit
def advance(M, a, c, v, key, slot, i, j, V, K, LIMIT: constexpr, RULE: constexpr):
    """M after a slot, from the M that it reads."""
    value = tl.load(v + slot * V + i, i < V, 0.0)[:, None]
    column = tl.load(key + slot * K + j, j < K, 0.0)[None, :]
    if RULE == "hadamard":
        M = M * calibration(a, c, slot, i, j, V, K) + value * column
    elif RULE == "delta":
        M = tl.load(c + slot) * M
        M = M + tl.load(a + slot) * (value - tl.sum(M * column, 1)[:, None]) * column
    else:
        M = tl.load(a + slot) * M + value * column
    if LIMIT > 0:
        M = tl.where(M > LIMIT, LIMIT, tl.where(M < -LIMIT, -LIMIT, M))  # NaN stays
    return M


@triton.jit
def calibration(theta, c, slot, i, j, V, K):
    """1 + tanh(theta c^T)."""
    x = tl.load(theta + slot * V + i, i < V, 0.0)[:, None] * tl.load(c + slot * K + j, j < K, 0.0)[None, :]
    return 2.0 / (1.0 + tl.exp(-2.0 * x))


@triton.jit
def matrix_forward(
    a, c, v, key, q, M0, start, y, last, saved, T, V, K,
    LIMIT: constexpr, RULE: constexpr, KEEP: constexpr, EVERY: constexpr, I: constexpr, J: constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    i, j = tl.program_id(1) * I + tl.arange(0, I), tl.arange(0, J)
    cells, live = i[:, None].to(tl.int64) * K + j[None, :], (i < V)[:, None] & (j < K)[None, :]
    M = tl.load(M0 + row * V * K + cells, live, 0.0)
    for t in range(T):
        slot = row * T + t
        if KEEP:  # noqa: SIM102  known when this is compiled
            if t % EVERY == 0:
                tl.store(saved + (row * tl.cdiv(T, EVERY) + t // EVERY) * V * K + cells, M, live)
        M = tl.where(tl.load(start + slot) != 0, 0.0, M)
        M = advance(M, a, c, v, key, slot, i, j, V, K, LIMIT, RULE)
        query = tl.load(q + slot * K + j, j < K, 0.0)[None, :]
        tl.store(y + slot * V + i, tl.sum(M * query, 1), i < V)
    tl.store(last + row * V * K + cells, M, live)


@triton.jit
def matrix_backward(
    a, c, v, key, q, start, saved, walked, grad_y, grad_last, grad_a, grad_c, grad_v, grad_key, grad_q, grad_M0, T, V,
    K, LIMIT: constexpr, RULE: constexpr, EVERY: constexpr, I: constexpr, J: constexpr,
):  # fmt: skip
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    i, j = tl.program_id(1) * I + tl.arange(0, I), tl.arange(0, J)
    cells, live = i[:, None].to(tl.int64) * K + j[None, :], (i < V)[:, None] & (j < K)[None, :]
    before = walked + row * EVERY * V * K + cells  # where the M that each slot of a piece reads is written down
    pieces = tl.cdiv(T, EVERY)
    G = tl.load(grad_last + row * V * K + cells, live, 0.0)  # the gradient of M
    for n in range(pieces):
        first = (pieces - 1 - n) * EVERY
        length = tl.minimum(T - first, EVERY)
        M = tl.load(saved + (row * pieces + pieces - 1 - n) * V * K + cells, live, 0.0)
        for k in range(length):
            slot = row * T + first + k
            M = tl.where(tl.load(start + slot) != 0, 0.0, M)
            tl.store(before + k * V * K, M, live)
            M = advance(M, a, c, v, key, slot, i, j, V, K, LIMIT, RULE)
        tl.debug_barrier()  # other threads of the program may read what was written
        for k in range(length):
            slot = row * T + first + length - 1 - k
            in_part = part * tl.num_programs(0) * T + slot
            M = tl.load(before + (length - 1 - k) * V * K, live, 0.0)
            after = advance(M, a, c, v, key, slot, i, j, V, K, LIMIT, RULE)
            value = tl.load(v + slot * V + i, i < V, 0.0)[:, None]
            column = tl.load(key + slot * K + j, j < K, 0.0)[None, :]
            g = tl.load(grad_y + slot * V + i, i < V, 0.0)[:, None]
            tl.store(grad_q + in_part * K + j, tl.sum(g * after, 0), j < K)
            G += g * tl.load(q + slot * K + j, j < K, 0.0)[None, :]
            if LIMIT > 0:
                G = tl.where(tl.abs(after) < LIMIT, G, 0.0)
            grad_written = tl.sum(G * column, 1)
            if RULE == "delta":
                beta, decay = tl.load(a + slot), tl.load(c + slot)
                decayed = decay * M
                error = value - tl.sum(decayed * column, 1)[:, None]
                tl.store(grad_a + in_part, tl.sum(grad_written * tl.sum(error, 1), 0))
                grad_value = beta * grad_written
                tl.store(grad_v + slot * V + i, grad_value, i < V)
                grad_column = tl.sum(G * beta * error - grad_value[:, None] * decayed, 0)
                G -= grad_value[:, None] * column
                tl.store(grad_c + in_part, tl.sum(tl.sum(G * M, 1), 0))
                G = decay * G
            else:
                tl.store(grad_v + slot * V + i, grad_written, i < V)
                grad_column = tl.sum(G * value, 0)
                if RULE == "hadamard":
                    C = calibration(a, c, slot, i, j, V, K)
                    grad_x = G * M * C * (2.0 - C)
                    theta = tl.load(a + slot * V + i, i < V, 0.0)[:, None]
                    tl.store(
                        grad_a + slot * V + i, tl.sum(grad_x * tl.load(c + slot * K + j, j < K, 0.0)[None, :], 1), i < V
                    )
                    tl.store(grad_c + in_part * K + j, tl.sum(grad_x * theta, 0), j < K)
                    G = G * C
                else:
                    tl.store(grad_a + in_part, tl.sum(tl.sum(G * M, 1), 0))
                    G = tl.load(a + slot) * G
            tl.store(grad_key + in_part * K + j, grad_column, j < K)
            G = tl.where(tl.load(start + slot) != 0, 0.0, G)
        tl.debug_barrier()  # before the next piece writes there
    tl.store(grad_M0 + row * V * K + cells, G, live)
