"""Kernels of the `triton` engine for scans whose state is a matrix: three rules, one walk each way.

A program has the rows `i` of M [V, K] of one row of the batch, value by key, in registers. What a slot does to M is
independent of other rows of M; sums over them are left to the caller, as parts.
"""

import triton
import triton.language as tl
from triton.language import constexpr


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
def forward(
    a, c, v, key, q, M0, start, y, last, kept, T, V, K,
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
                tl.store(kept + (row * tl.cdiv(T, EVERY) + t // EVERY) * V * K + cells, M, live)
        M = tl.where(tl.load(start + slot) != 0, 0.0, M)
        M = advance(M, a, c, v, key, slot, i, j, V, K, LIMIT, RULE)
        query = tl.load(q + slot * K + j, j < K, 0.0)[None, :]
        tl.store(y + slot * V + i, tl.sum(M * query, 1), i < V)
    tl.store(last + row * V * K + cells, M, live)


@triton.jit
def backward(
    a, c, v, key, q, start, kept, walked, grad_y, grad_last, grad_a, grad_c, grad_v, grad_key, grad_q, grad_M0, T, V, K,
    LIMIT: constexpr, RULE: constexpr, EVERY: constexpr, I: constexpr, J: constexpr,
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
        M = tl.load(kept + (row * pieces + pieces - 1 - n) * V * K + cells, live, 0.0)
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
